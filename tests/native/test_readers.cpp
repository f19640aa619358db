// The conformance suite of readers: every engine passes it on every kind of mount.

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "base/align.h"
#include "io/reader.h"
#include "temp_file.h"

namespace fxload {
namespace {

using testing::pattern;
using testing::TempFile;

std::unique_ptr<Reader> reader_of(const std::string& engine, size_t depth,
                                  const std::shared_ptr<File>& file, FixedMemory fixed = {}) {
  Result<EngineChoice> choice = make_reader(engine, depth, {&file, 1}, fixed);
  REQUIRE_MESSAGE(choice.ok(), choice.status().detail().reason);
  CHECK(choice->reader->name() == engine);
  return std::move(choice->reader);
}

RingMemory memory(size_t size) {
  Result<RingMemory> ring = RingMemory::create(size);
  REQUIRE(ring.ok());
  return std::move(*ring);
}

// Submits all and reaps until every request has completed; fails instead of hanging.
std::map<uint64_t, Status> run(Reader& reader, std::vector<ReadRequest> requests) {
  std::map<uint64_t, Status> outcomes;
  std::vector<ReadCompletion> done;
  const TimePoint deadline = after_seconds(60);
  const size_t total = requests.size();
  size_t at = 0;
  while (outcomes.size() < total) {
    REQUIRE(Clock::now() < deadline);
    at += reader.submit(std::span(requests).subspan(at));
    CHECK(reader.in_flight() <= reader.depth());
    reader.reap(done, deadline);
    for (ReadCompletion& completion : done) {
      CHECK(outcomes.emplace(completion.tag, std::move(completion.status)).second);
    }
    done.clear();
  }
  CHECK(reader.in_flight() == 0);
  return outcomes;
}

std::vector<ReadRequest> cut(const File& file, std::byte* into, size_t step) {
  std::vector<ReadRequest> requests;
  for (uint64_t at = 0; at < file.size(); at += step) {
    requests.push_back({&file, at, static_cast<size_t>(std::min<uint64_t>(step, file.size() - at)),
                        into + at, requests.size(), file.direct().works});
  }
  return requests;
}

bool same(const std::vector<std::byte>& expected, const std::byte* got) {
  return std::equal(expected.begin(), expected.end(), got);
}

TEST_CASE("every byte arrives, whatever the size, the request size and the depth") {
  for (const std::string& engine : testing::test_engines()) {
    for (const size_t size : {1UL, 4095UL, 4096UL, 4097UL, 65536UL, (3UL << 20) + 12345}) {
      CAPTURE(engine);
      CAPTURE(size);
      const auto content = pattern(size, size);
      const TempFile temp(content);
      for (const bool direct : {true, false}) {
        for (const size_t step : {4096UL, 65536UL, 1UL << 20}) {
          temp.make_cold();
          const auto file = temp.open(direct);
          const RingMemory into = memory(align_up(size, 4096) + 4096);
          const auto reader = reader_of(engine, 5, file);
          for (auto& [tag, status] : run(*reader, cut(*file, into.bytes().data(), step))) {
            CHECK_MESSAGE(status.ok(), status.detail().reason);
          }
          CHECK(same(content, into.bytes().data()));
        }
      }
    }
  }
}

TEST_CASE("registered memory gives the same bytes, and memory beside it too") {
  const auto content = pattern(1 << 20, 7);
  const TempFile temp(content);
  for (const std::string& engine : testing::test_engines()) {
    const auto file = temp.open();
    const RingMemory fixed = memory(1 << 20);
    const RingMemory other = memory(1 << 20);
    const auto reader = reader_of(engine, 4, file, fixed.bytes());
    for (const RingMemory* into : {&fixed, &other}) {
      for (auto& [tag, status] : run(*reader, cut(*file, into->bytes().data(), 65536))) {
        CHECK(status.ok());
      }
      CHECK(same(content, into->bytes().data()));
    }
  }
}

TEST_CASE("a buffered read may begin and end anywhere") {
  const auto content = pattern(100'000, 3);
  const TempFile temp(content);
  for (const std::string& engine : testing::test_engines()) {
    const auto file = temp.open();
    std::vector<std::byte> into(content.size());
    const auto reader = reader_of(engine, 3, file);
    std::vector<ReadRequest> requests;
    for (uint64_t at = 0; at < content.size(); at += 777) {
      requests.push_back({file.get(), at, std::min<size_t>(777, content.size() - at),
                          into.data() + at, at, false});
    }
    for (auto& [tag, status] : run(*reader, requests)) CHECK(status.ok());
    CHECK(into == content);
  }
}

TEST_CASE("a direct read that the file system refuses goes through the page cache") {
  const auto content = pattern(65536, 4);
  const TempFile temp(content);
  for (const std::string& engine : testing::test_engines()) {
    const auto file = temp.open();
    if (!file->direct().works) continue;  // nothing to refuse
    const RingMemory into = memory(1 << 20);
    const auto reader = reader_of(engine, 1, file);
    // Memory that no device takes: an odd address.
    auto outcomes =
        run(*reader, {{file.get(), 0, content.size(), into.bytes().data() + 1, 9, true}});
    CHECK(outcomes[9].ok());
    CHECK(same(content, into.bytes().data() + 1));
  }
}

TEST_CASE("a file that has become shorter is truncation, at once, and says where") {
  const auto content = pattern(1 << 20, 5);
  for (const std::string& engine : testing::test_engines()) {
    for (const bool direct : {true, false}) {
      const TempFile temp(content);
      const auto file = temp.open(direct);
      temp.truncate(300'000);
      const RingMemory into = memory(1 << 20);
      const auto reader = reader_of(engine, 4, file);
      auto outcomes = run(*reader, cut(*file, into.bytes().data(), 65536));
      CHECK(outcomes[0].ok());
      const Status& last = outcomes[15];
      REQUIRE_FALSE(last.ok());
      CHECK(last.detail().code == Code::kTruncated);
      CHECK(last.detail().path == temp.path());
      CHECK(last.detail().offset == 15 * 65536);
      CHECK(last.detail().length == 65536);
    }
  }
}

TEST_CASE("reap returns at its deadline with nothing, and wake ends it before") {
  const TempFile temp(pattern(4096, 6));
  for (const std::string& engine : testing::test_engines()) {
    const auto file = temp.open();
    const auto reader = reader_of(engine, 2, file);
    std::vector<ReadCompletion> done;
    reader->reap(done, Clock::now() + std::chrono::milliseconds(20));
    CHECK(done.empty());
    // Would hang the test if a wake-up were lost.
    for (int i = 0; i < 3; ++i) {
      reader->wake();
      reader->reap(done, after_seconds(3600));
      CHECK(done.empty());
    }
  }
}

TEST_CASE("a reader that goes away waits for what is in flight") {
  const auto content = pattern(4 << 20, 8);
  const TempFile temp(content);
  for (const std::string& engine : testing::test_engines()) {
    temp.make_cold();
    const auto file = temp.open();
    const RingMemory into = memory(4 << 20);
    {
      const auto reader = reader_of(engine, 8, file);
      CHECK(reader->submit(cut(*file, into.bytes().data(), 1 << 20)) == 4);
    }
    CHECK(same(content, into.bytes().data()));
  }
}

TEST_CASE("an unknown engine is refused by name") {
  const Result<EngineChoice> choice = make_reader("libaio", 1, {}, {});
  REQUIRE_FALSE(choice.ok());
  CHECK(choice.status().detail().code == Code::kUsage);
}

}  // namespace
}  // namespace fxload
