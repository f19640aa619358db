#pragma once

#include <functional>
#include <memory>

#include "device/device.h"
#include "device/own_process.h"
#include "device/runtime_library.h"
#include "platforms/gpu/table.h"

namespace fxload::gpu {

// The name of a device, "" if it has none to tell; opens nothing on it.
using DeviceName = std::function<std::string(int index)>;

// A runtime that was found: what its platform and its devices share. Never changes.
struct Runtime {
  RuntimeLibrary library;
  Dialect dialect;
  Table table;
  DeviceName device_name;

  // kDevice, with the runtime's words; `function` without its prefix. Makes the runtime forget it.
  Status failed(const std::string& function, int status) const;
  Status check(const char* function, int status) const {
    return status == 0 ? Status() : failed(function, status);
  }
  bool absent(int status) const;
};

// ROCm's platform, or CUDA's. Thread-safe. Fails with kUnsupported where there is no device.
Result<std::shared_ptr<Platform>> make_platform(std::shared_ptr<const Runtime> runtime);

}  // namespace fxload::gpu
