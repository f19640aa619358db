#pragma once

#include <span>

#include "base/clock.h"
#include "device/device.h"

namespace fxload {

// Copies device memory into the host's, through a pinned buffer, and waits for it. The memory in
// front of `from`, down to the device's copy_align, must belong to the same allocation. Selects the
// device for the calling thread. kDeadline abandons the wait: the buffer that the copy may still
// write to is then never freed.
Status read_back(Device& device, std::span<std::byte> to, const std::byte* from,
                 TimePoint deadline);

}  // namespace fxload
