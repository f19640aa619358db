#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace fxload::ascend {

// What a program prints, nothing where it cannot be run, fails, or has not ended by the deadline
// (it is killed then).
std::optional<std::string> output_of(const std::vector<std::string>& command, TimePoint deadline);

// The PCI address of a device in what `npu-smi info` prints, "" where it is not there. `physical`
// is the device's number on the host.
std::string pci_bus_in(const std::string& table, int physical);

}  // namespace fxload::ascend
