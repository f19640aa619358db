#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory/region.h"
#include "pipeline/copy_rate.h"
#include "pipeline/pinned_ring.h"
#include "scripted_device.h"

namespace fxload {
namespace {

using testing::ScriptedDevice;
using Script = ScriptedDevice::Script;

constexpr size_t kSlot = kHugePageBytes;

TEST_CASE("a forked child has nothing of a ring") {
  auto ring = PinnedRing::create(std::make_shared<ScriptedDevice>(Script{}), kSlot, kSlot, "");
  REQUIRE(ring.ok());
  const pid_t child = ::fork();
  if (child == 0) {
    unsigned char resident = 0;
    ::_exit(::mincore((*ring)->slot(0), 1, &resident) == 0 ? 1 : 7);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 7);
}

TEST_CASE("the copy rate counts what has run") {
  auto device = std::make_shared<ScriptedDevice>(Script{});
  auto ring = PinnedRing::create(device, 2 * kSlot, kSlot, "");
  REQUIRE(ring.ok());
  CHECK((*ring)->pinned());
  CHECK((*ring)->direct() == PinnedRing::Direct::kNotProbed);
  auto rate = measure_copy_rate(*ring, 0.01);
  REQUIRE(rate.ok());
  CHECK(rate->bytes == device->bytes_run());
  CHECK(rate->bytes > 0);
}

}  // namespace
}  // namespace fxload
