#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"

namespace fxload {

// The platforms of this build, in the order in which they are tried.
std::vector<std::string_view> platform_names();

// Finds the runtime of a platform: one that this process has loaded already, else in `folders`
// (torch's own libraries), else the toolkit's, else by its bare name. kUnsupported, with all that
// was tried, where there is none or where it has no device; that is no failure of the machine.
Result<std::shared_ptr<Platform>> find_platform(std::string_view name,
                                                std::span<const std::string> folders);

}  // namespace fxload
