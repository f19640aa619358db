#pragma once

#include <string>
#include <string_view>

namespace fxload {

// "0000:C1:00.0" as the kernel writes it; "" where it is no such address.
std::string normal_pci_bus(std::string_view bus);

// The NUMA node next to a device, as sysfs (mounted at `sysfs`) has it; -1 where that is unknown.
int pci_numa_node(const std::string& bus, const std::string& sysfs = "/sys");

}  // namespace fxload
