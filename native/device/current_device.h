#pragma once

#include "device/device.h"

namespace fxload {

// Selects a device on a thread that is not the core's own, and puts back what was current before.
class CurrentDevice {
 public:
  explicit CurrentDevice(Device& device)
      : device_(device), before_(device.current()), status_(device.select()) {}
  CurrentDevice(const CurrentDevice&) = delete;
  ~CurrentDevice() {
    if (before_ >= 0 && before_ != device_.index()) device_.restore(before_);
  }
  const Status& status() const { return status_; }

 private:
  Device& device_;
  const int before_;
  Status status_;
};

}  // namespace fxload
