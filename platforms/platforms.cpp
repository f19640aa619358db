#include "platforms/platforms.h"

#include <array>
#include <functional>

#include "platforms/ascend/platform.h"
#include "platforms/cuda/platform.h"
#include "platforms/host/platform.h"
#include "platforms/rocm/platform.h"

namespace fxload {

namespace {

struct Known {
  std::string_view name;
  Result<std::shared_ptr<Platform>> (*find)(std::span<const std::string> folders);
};

Result<std::shared_ptr<Platform>> find_host(std::span<const std::string> /*folders*/) {
  return host::make_platform();
}

constexpr std::array kPlatforms{
    Known{"ascend", ascend::find_platform},
    Known{"rocm", rocm::find_platform},
    Known{"cuda", cuda::find_platform},
    Known{"host", find_host},
};

}  // namespace

std::vector<std::string_view> platform_names() {
  std::vector<std::string_view> names;
  for (const Known& platform : kPlatforms) names.push_back(platform.name);
  return names;
}

Result<std::shared_ptr<Platform>> find_platform(std::string_view name,
                                                std::span<const std::string> folders) {
  std::string known;
  for (const Known& platform : kPlatforms) {
    if (platform.name == name) return platform.find(folders);
    known += (known.empty() ? "" : ", ") + std::string(platform.name);
  }
  return Status::error(Code::kUsage,
                       "there is no platform '" + std::string(name) + "', only " + known);
}

}  // namespace fxload
