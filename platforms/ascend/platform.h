#pragma once

#include <memory>
#include <span>
#include <string>

#include "device/device.h"

namespace fxload::ascend {

// Huawei's devices, through ACL. kUnsupported where there is no runtime or no device.
Result<std::shared_ptr<Platform>> find_platform(std::span<const std::string> folders);

}  // namespace fxload::ascend
