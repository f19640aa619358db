#pragma once

#include <cstdint>

#include "base/status.h"
#include "pipeline/pinned_ring.h"

namespace fxload {

struct CopyRate {
  uint64_t bytes = 0;
  double seconds = 0;
};

// Copies the ring to the device, slot by slot on two streams, for about so long, and tells what
// ran. Selects the device for the calling thread, which should be one that its owner can abandon:
// it stays until the last copy has run, however long the device takes.
Result<CopyRate> measure_copy_rate(const std::shared_ptr<PinnedRing>& ring, double seconds);

}  // namespace fxload
