#include <doctest/doctest.h>

#include "pipeline/batches.h"

namespace fxload {
namespace {

constexpr uint64_t kBlock = 512;
constexpr uint64_t kSlot = 2UL << 20;

TEST_CASE("a direct read that is rounded up stays in its slot") {
  // The last chunk ends with its file: 64 KiB are asked for where it has 100 bytes.
  constexpr uint64_t kUnit = 65536;
  const std::vector<Chunk> chunks{{0, Route::kDirect, 0, kSlot - 8192, 0},
                                  {0, Route::kDirect, kSlot - 8192, 100, kSlot - 8192}};
  const std::vector<uint64_t> units{kUnit};
  auto batches = cut_batches(chunks, units, kBlock, 4096, kSlot);
  REQUIRE(batches.ok());
  CHECK(batches->size() == 2);
}

}  // namespace
}  // namespace fxload
