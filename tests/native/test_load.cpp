#include <doctest/doctest.h>

#include <algorithm>
#include <thread>

#include "base/align.h"
#include "pipeline/digest.h"
#include "pipeline/load.h"
#include "temp_file.h"

namespace fxload {
namespace {

using testing::pattern;
using testing::TempFile;

constexpr size_t kWindow = kHugePageBytes;
constexpr size_t kRequest = 65536;

struct Setup {
  std::vector<std::vector<std::byte>> contents;
  std::vector<std::unique_ptr<TempFile>> temps;
  std::vector<std::shared_ptr<File>> files;
  std::shared_ptr<MemoryPool> pool = std::make_shared<MemoryPool>(kWindow, 0);
  std::shared_ptr<Quarantine> quarantine = std::make_shared<Quarantine>();

  explicit Setup(const std::vector<size_t>& sizes) {
    for (const size_t size : sizes) {
      contents.push_back(pattern(size, contents.size() + 1));
      temps.push_back(std::make_unique<TempFile>(contents.back()));
    }
    reopen();
  }
  void reopen() {
    files.clear();
    for (const auto& temp : temps) {
      temp->make_cold();
      files.push_back(temp->open());
    }
  }
  // Each file whole, one after the other.
  std::vector<Extent> whole(uint64_t* space) const {
    std::vector<Extent> extents;
    *space = 0;
    for (size_t i = 0; i < files.size(); ++i) {
      if (files[i]->size() > 0) extents.push_back({i, 0, files[i]->size(), *space});
      *space += align_up(files[i]->size(), 4096);
    }
    return extents;
  }
  std::unique_ptr<Load> start(const std::vector<Extent>& extents, uint64_t space,
                              LoadOptions options) const {
    if (options.request_bytes == 0) options.request_bytes = kRequest;
    Result<std::unique_ptr<Load>> load =
        Load::start(files, extents, space, pool, quarantine, options);
    REQUIRE_MESSAGE(load.ok(), load.status().detail().reason);
    return std::move(*load);
  }
};

void wait_all(Load& load, uint64_t end) {
  const Load::Wait wait = load.wait_past(end, after_seconds(60));
  REQUIRE_MESSAGE(wait.status.ok(), wait.status.detail().reason);
  REQUIRE(wait.done);
}

bool holds(const Load& load, uint64_t at, const std::vector<std::byte>& expected) {
  if (expected.empty()) return true;
  Result<RegionLease> lease = load.lease(at, expected.size());
  REQUIRE(lease.ok());
  return std::equal(expected.begin(), expected.end(), lease->data());
}

TEST_CASE("whole files land byte for byte, with the digest of their content") {
  for (const std::string& engine : testing::test_engines()) {
    for (const bool use_page_cache : {true, false}) {
      Setup setup({(9UL << 20) + 5, 0, 4096, 1, 300'001});
      uint64_t space = 0;
      const auto extents = setup.whole(&space);
      LoadOptions options;
      options.engine = engine;
      options.digest = true;
      options.use_page_cache = use_page_cache;
      const auto load = setup.start(extents, space, options);
      wait_all(*load, space);
      for (const Extent& extent : extents) {
        CHECK(holds(*load, extent.destination, setup.contents[extent.file]));
      }
      const auto digests = load->digests(after_seconds(60));
      REQUIRE(digests.ok());
      for (size_t i = 0; i < setup.contents.size(); ++i) {
        FileDigest expected(setup.contents[i].size());
        for (size_t leaf = 0; leaf < expected.leaves(); ++leaf) {
          const size_t begin = leaf * kDigestLeafBytes;
          expected.set_leaf(leaf, std::span(setup.contents[i])
                                      .subspan(begin, std::min(kDigestLeafBytes,
                                                               setup.contents[i].size() - begin)));
        }
        CHECK((*Result(digests))[i] == expected.hex());
      }
      CHECK(load->close(after_seconds(30)) == 0);
      CHECK(setup.pool->live_bytes() == 0);
    }
  }
}

TEST_CASE("scattered extents, aligned and not, land where they were planned") {
  for (const std::string& engine : testing::test_engines()) {
    Setup setup({3UL << 20, 1UL << 20});
    const std::vector<Extent> extents{
        {0, 4096, 8192, 4096}, {0, 1'000'001, 777, 20'001}, {0, (2UL << 20) + 4096, 65536, 69632},
        {1, 0, 5, 200'000},    {1, 12'288, 4096, 204'800},  {1, (1UL << 20) - 3, 3, 300'000}};
    LoadOptions options;
    options.engine = engine;
    const auto load = setup.start(extents, 1 << 20, options);
    wait_all(*load, 1 << 20);
    for (const Extent& extent : extents) {
      const auto& content = setup.contents[extent.file];
      const auto begin = content.begin() + static_cast<long>(extent.file_offset);
      CHECK(holds(*load, extent.destination, {begin, begin + static_cast<long>(extent.length)}));
    }
  }
}

TEST_CASE("a stream stays within its budget and recycles its memory") {
  Setup setup({40UL << 20});
  setup.pool = std::make_shared<MemoryPool>(kWindow, 8 * kWindow);
  uint64_t space = 0;
  const auto extents = setup.whole(&space);
  LoadOptions options;
  options.budget_bytes = 4 * kWindow;
  const auto load = setup.start(extents, space, options);
  constexpr size_t kPiece = 1'500'000;  // crosses windows
  for (size_t at = 0; at < setup.contents[0].size(); at += kPiece) {
    const size_t length = std::min(kPiece, setup.contents[0].size() - at);
    wait_all(*load, at + length);
    const auto begin = setup.contents[0].begin() + static_cast<long>(at);
    CHECK(holds(*load, at, {begin, begin + static_cast<long>(length)}));
    load->release_before(at + length);
  }
  CHECK(load->stats().peak_bytes <= options.budget_bytes);
  CHECK(load->stats().over_budget_bytes == 0);
}

TEST_CASE(
    "a consumer that keeps everything exceeds the budget, counted, and never waits for ever") {
  Setup setup({20UL << 20});
  uint64_t space = 0;
  const auto extents = setup.whole(&space);
  LoadOptions options;
  options.budget_bytes = 2 * kWindow;
  const auto load = setup.start(extents, space, options);
  std::vector<RegionLease> kept;
  for (size_t at = 0; at < space; at += kWindow) {
    wait_all(*load, at + kWindow);
    Result<RegionLease> lease = load->lease(at, kWindow);
    REQUIRE(lease.ok());
    kept.push_back(std::move(*lease));
    load->release_before(at + kWindow);
  }
  CHECK(load->stats().over_budget_bytes > 0);
}

TEST_CASE("leases outlive the load, and nothing else of it does") {
  Setup setup({8UL << 20});
  uint64_t space = 0;
  const auto extents = setup.whole(&space);
  std::optional<RegionLease> kept;
  {
    const auto load = setup.start(extents, space, {});
    wait_all(*load, space);
    Result<RegionLease> lease = load->lease(100, 50);
    REQUIRE(lease.ok());
    kept.emplace(std::move(*lease));
    CHECK(load->close(after_seconds(30)) == 0);
    CHECK_FALSE(load->lease(0, 1).ok());
  }
  CHECK(setup.pool->live_bytes() == kWindow);
  CHECK(std::equal(setup.contents[0].begin() + 100, setup.contents[0].begin() + 150, kept->data()));
  kept.reset();
  CHECK(setup.pool->live_bytes() == 0);
}

TEST_CASE("truncation is reported where it is, what landed before it stays good, memory returns") {
  for (const bool digest : {false, true}) {
    Setup setup({4UL << 20, 1UL << 20});
    setup.temps[1]->truncate(100'000);
    uint64_t space = 0;
    const auto extents = setup.whole(&space);
    LoadOptions options;
    options.digest = digest;
    const auto load = setup.start(extents, space, options);
    const Load::Wait wait = load->wait_past(space, after_seconds(60));
    REQUIRE_FALSE(wait.status.ok());
    CHECK(wait.status.detail().code == Code::kTruncated);
    CHECK(wait.status.detail().path == setup.temps[1]->path());
    CHECK(wait.status.detail().offset >= 65536);
    CHECK(load->close(after_seconds(30)) == 0);
    CHECK(setup.pool->live_bytes() == 0);
  }
}

TEST_CASE("closing in the middle returns all memory") {
  for (const std::string& engine : testing::test_engines()) {
    for (const bool digest : {false, true}) {
      for (int round = 0; round < 10; ++round) {
        Setup setup({16UL << 20});
        uint64_t space = 0;
        const auto extents = setup.whole(&space);
        LoadOptions options;
        options.engine = engine;
        options.digest = digest;
        auto load = setup.start(extents, space, options);
        (void)load->wait_past(static_cast<uint64_t>(round) * kRequest, after_seconds(60));
        CHECK(load->close(after_seconds(30)) == 0);
        CHECK(load->close(after_seconds(30)) == 0);
        load.reset();
        CHECK(setup.pool->live_bytes() == 0);
        CHECK(setup.quarantine->reap() == 0);
      }
    }
  }
}

TEST_CASE("another thread may close while one waits") {
  Setup setup({4UL << 20});
  setup.temps[0]->make_cold();
  uint64_t space = 0;
  const auto extents = setup.whole(&space);
  LoadOptions options;
  options.budget_bytes = kWindow;  // the second window waits for a release that never comes
  const auto load = setup.start(extents, space, options);
  std::jthread closer([&] { (void)load->close(after_seconds(30)); });
  const Load::Wait wait = load->wait_past(space, after_seconds(60));
  CHECK((wait.done || !wait.status.ok()));
}

TEST_CASE("plans that make no sense are refused before anything is read") {
  Setup setup({1UL << 20});
  const auto refused = [&](const std::vector<Extent>& extents, LoadOptions options = {}) {
    const auto load =
        Load::start(setup.files, extents, 1 << 20, setup.pool, setup.quarantine, options);
    return !load.ok() && load.status().detail().code == Code::kUsage;
  };
  CHECK(refused({{1, 0, 10, 0}}));                          // no such file
  CHECK(refused({{0, 0, (1UL << 20) + 1, 0}}));             // beyond the file
  CHECK(refused({{0, UINT64_MAX - 5, 10, 0}}));             // overflow
  CHECK(refused({{0, 0, 0, 0}}));                           // empty
  CHECK(refused({{0, 0, 4096, 0}, {0, 4096, 4096, 100}}));  // overlap
  CHECK(refused({{0, 0, 4096, (1UL << 20) - 1}}));          // beyond the destination
  LoadOptions odd;
  odd.request_bytes = 5000;
  CHECK(refused({{0, 0, 10, 0}}, odd));
  LoadOptions large;
  large.request_bytes = 2 * kDigestLeafBytes;
  large.digest = true;
  CHECK(refused({{0, 0, 10, 0}}, large));
}

}  // namespace
}  // namespace fxload
