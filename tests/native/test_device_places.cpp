// Where devices are attached: PCI addresses, NUMA nodes, and what npu-smi prints.

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "device/pci.h"
#include "platforms/ascend/npu_smi.h"
#include "temp_file.h"

namespace fxload {
namespace {

TEST_CASE("a PCI address is written as the kernel writes it") {
  CHECK(normal_pci_bus("0000:C1:00.0") == "0000:c1:00.0");
  CHECK(normal_pci_bus("00000000:C1:00.0") == "0000:c1:00.0");
  CHECK(normal_pci_bus("0001:c1:00.7") == "0001:c1:00.7");
  for (const char* other : {"", "NA", "c1:00.0", "0000:C1:00.0 ", "../../etc/passwd", "OK"}) {
    CHECK(normal_pci_bus(other).empty());
  }
}

TEST_CASE("the NUMA node of a device is the kernel's, or unknown") {
  const std::filesystem::path root =
      testing::test_folder() + "/fxload-test-sysfs-" + std::to_string(::getpid());
  const auto device = root / "bus/pci/devices/0000:c1:00.0";
  std::filesystem::create_directories(device);
  const auto node = [&](const char* content) {
    std::ofstream(device / "numa_node") << content;
    return pci_numa_node("0000:c1:00.0", root.string());
  };
  CHECK(node("3\n") == 3);
  CHECK(node("0\n") == 0);
  CHECK(node("-1\n") == -1);
  CHECK(node("x\n") == -1);
  CHECK(pci_numa_node("0000:c2:00.0", root.string()) == -1);
  CHECK(pci_numa_node("", root.string()) == -1);
  std::filesystem::remove_all(root);
}

constexpr const char* kOneChipEach = R"(
+------------------------------------------------------------------------------------------------+
| npu-smi 23.0.rc2                 Version: 23.0.rc2                                             |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 4     910B3               | OK            | 93.6        40                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           0    / 0          3123 / 65536         |
+===========================+===============+====================================================+
| 5     910B3               | OK            | 90.1        41                0    / 0             |
| 0                         | 0000:01:00.0  | 0           0    / 0          3122 / 65536         |
+===========================+===============+====================================================+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 4       0                 | 4711          | python3                  | 51                      |
)";

constexpr const char* kTwoChipsEach = R"(
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     Ascend910           | OK            | 170.1       36                0    / 0             |
| 0     0                   | 0000:9D:00.0  | 0           0    / 0          3129 / 65536         |
+------------------------------------------------------------------------------------------------+
| 0     Ascend910           | OK            | -           35                0    / 0             |
| 1     1                   | 0000:9F:00.0  | 0           0    / 0          2902 / 65536         |
+------------------------------------------------------------------------------------------------+
| 1     Ascend910           | OK            | 170.1       36                0    / 0             |
| 0     2                   | 0000:99:00.0  | 0           0    / 0          3129 / 65536         |
)";

TEST_CASE("npu-smi's table tells where a device is attached") {
  CHECK(ascend::pci_bus_in(kOneChipEach, 4) == "0000:c1:00.0");
  CHECK(ascend::pci_bus_in(kOneChipEach, 5) == "0000:01:00.0");
  CHECK(ascend::pci_bus_in(kOneChipEach, 0).empty());
  CHECK(ascend::pci_bus_in(kTwoChipsEach, 1) == "0000:9f:00.0");
  CHECK(ascend::pci_bus_in(kTwoChipsEach, 2) == "0000:99:00.0");
  CHECK(ascend::pci_bus_in("", 0).empty());
  CHECK(ascend::pci_bus_in("npu-smi: no device\n", 0).empty());
}

TEST_CASE("a tool that fails, hangs or does not exist tells nothing") {
  const auto output = [](const std::vector<std::string>& command, double timeout_s) {
    return ascend::output_of(command, after_seconds(timeout_s));
  };
  CHECK(output({"echo", "a", "b c"}, 60) == "a b c\n");
  CHECK(output({"sh", "-c", "head -c 300000 /dev/zero"}, 60)->size() == 300'000);
  CHECK_FALSE(output({"sh", "-c", "echo half; exit 3"}, 60).has_value());
  CHECK_FALSE(output({"fxload-no-such-program"}, 60).has_value());
  // Would hang the test if the tool were waited for.
  CHECK_FALSE(output({"sleep", "3600"}, 0.05).has_value());
  CHECK_FALSE(output({"sh", "-c", "exec >&-; exec sleep 3600"}, 0.05).has_value());
}

}  // namespace
}  // namespace fxload
