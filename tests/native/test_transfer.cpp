#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pipeline/digest.h"
#include "pipeline/transfer.h"
#include "temp_file.h"

namespace fxload {
namespace {

using testing::content_of;
using testing::pattern;
using testing::TempFile;

struct Sinks {
  std::vector<std::string> paths;
  explicit Sinks(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      paths.push_back(testing::test_folder() + "/fxload-sink-" + std::to_string(::getpid()) + "-" +
                      std::to_string(i));
    }
  }
  ~Sinks() {
    for (const auto& path : paths) ::unlink(path.c_str());
  }
};

bool wait_done(Transfer& transfer) {
  Result<bool> done = transfer.wait(after_seconds(60));
  REQUIRE_MESSAGE(done.ok(), done.status().detail().reason);
  return *done;
}

TEST_CASE("a copy is equal, private, durable, and digested as it passes") {
  for (const std::string& engine : testing::test_engines()) {
    std::vector<std::vector<std::byte>> contents{
        pattern((17UL << 20) + 4321, 1), {}, pattern(4096, 2), pattern(1, 3)};
    std::vector<std::unique_ptr<TempFile>> temps;
    std::vector<std::shared_ptr<File>> files;
    for (const auto& content : contents) {
      temps.push_back(std::make_unique<TempFile>(content));
      temps.back()->make_cold();
      files.push_back(temps.back()->open());
    }
    Sinks sinks(contents.size());
    TransferOptions options;
    options.engine = engine;
    options.sinks = sinks.paths;
    options.ring_bytes = 2 * kDigestLeafBytes;  // less than the file: slots are used again
    auto transfer = Transfer::start(files, std::make_shared<Quarantine>(), options);
    REQUIRE_MESSAGE(transfer.ok(), transfer.status().detail().reason);
    CHECK(wait_done(**transfer));
    const auto digests = (*transfer)->digests();
    REQUIRE(digests.ok());
    for (size_t i = 0; i < contents.size(); ++i) {
      CHECK(content_of(sinks.paths[i]) == contents[i]);
      struct stat st{};
      REQUIRE(::stat(sinks.paths[i].c_str(), &st) == 0);
      CHECK((st.st_mode & 0777) == 0600);
      FileDigest expected(contents[i].size());
      for (size_t leaf = 0; leaf < expected.leaves(); ++leaf) {
        const size_t begin = leaf * kDigestLeafBytes;
        expected.set_leaf(
            leaf, std::span(contents[i])
                      .subspan(begin, std::min(kDigestLeafBytes, contents[i].size() - begin)));
      }
      CHECK((*Result(digests))[i] == expected.hex());
    }
  }
}

TEST_CASE("reading alone goes through a ring of any request size") {
  const TempFile temp(pattern((5UL << 20) + 77, 1));
  for (const std::string& engine : testing::test_engines()) {
    for (const size_t request : {4096UL, 131072UL, 2UL << 20}) {
      temp.make_cold();
      TransferOptions options;
      options.engine = engine;
      options.digest = false;
      options.request_bytes = request;
      options.depth = 3;
      auto transfer = Transfer::start({temp.open()}, std::make_shared<Quarantine>(), options);
      REQUIRE(transfer.ok());
      CHECK(wait_done(**transfer));
      CHECK((*transfer)->stats().done_bytes == (5UL << 20) + 77);
      CHECK((*transfer)->stats().requests == ((5UL << 20) + 77 + request - 1) / request);
      CHECK_FALSE((*transfer)->digests().ok());
    }
  }
}

TEST_CASE("a sink that exists is not overwritten, and a truncated source fails the copy") {
  const TempFile temp(pattern(1 << 20, 1));
  const TempFile there(pattern(10, 2));
  TransferOptions options;
  options.sinks = {there.path()};
  {
    auto transfer = Transfer::start({temp.open()}, std::make_shared<Quarantine>(), options);
    REQUIRE(transfer.ok());
    Result<bool> done = (*transfer)->wait(after_seconds(60));
    REQUIRE_FALSE(done.ok());
    CHECK(done.status().detail().path == there.path());
    CHECK(content_of(there.path()).size() == 10);
  }
  const auto file = temp.open();
  temp.truncate(5000);
  options.sinks.clear();
  auto transfer = Transfer::start({file}, std::make_shared<Quarantine>(), options);
  REQUIRE(transfer.ok());
  Result<bool> done = (*transfer)->wait(after_seconds(60));
  REQUIRE_FALSE(done.ok());
  CHECK(done.status().detail().code == Code::kTruncated);
  CHECK((*transfer)->close(after_seconds(30)) == 0);
}

TEST_CASE("closing in the middle stops, also when a rate limit holds it back") {
  const TempFile temp(pattern(40UL << 20, 1));
  Sinks sinks(1);
  TransferOptions options;
  options.sinks = sinks.paths;
  options.limit_bytes_per_s = 1 << 20;
  auto transfer = Transfer::start({temp.open()}, std::make_shared<Quarantine>(), options);
  REQUIRE(transfer.ok());
  Result<bool> done = (*transfer)->wait(Clock::now() + std::chrono::milliseconds(100));
  REQUIRE(done.ok());
  CHECK_FALSE(*done);
  CHECK((*transfer)->close(after_seconds(30)) == 0);
  CHECK_FALSE((*transfer)->wait(after_seconds(1)).ok());
}

}  // namespace
}  // namespace fxload
