#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "base/quarantine.h"
#include "device/device.h"

namespace fxload::bindings {

// Python's Device.
class DeviceHolder {
 public:
  explicit DeviceHolder(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  const std::shared_ptr<Device>& device() const { return device_; }

 private:
  std::shared_ptr<Device> device_;
};

void bind_devices(nanobind::module_& module, const std::shared_ptr<Quarantine>& quarantine);

}  // namespace fxload::bindings
