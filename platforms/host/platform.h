#pragma once

#include <memory>

#include "device/device.h"

namespace fxload::host {

// Host memory in the role of a device, which every machine has: copies really
// run behind the caller's back, each stream on a thread of its own.
std::shared_ptr<Platform> make_platform();

}  // namespace fxload::host
