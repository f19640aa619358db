#include "device/pci.h"

#include <cctype>
#include <cstdio>

namespace fxload {

std::string normal_pci_bus(std::string_view bus) {
  std::string normal;
  for (const char c : bus) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isxdigit(byte) == 0 && c != ':' && c != '.') return "";
    normal += static_cast<char>(std::tolower(byte));
  }
  // Some write the domain with eight digits: 00000000:c1:00.0.
  if (normal.size() == 16 && normal.starts_with("0000")) normal.erase(0, 4);
  if (normal.size() != 12 || normal[4] != ':' || normal[7] != ':' || normal[10] != '.') return "";
  return normal;
}

int pci_numa_node(const std::string& bus, const std::string& sysfs) {
  const std::string path = sysfs + "/bus/pci/devices/" + bus + "/numa_node";
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return -1;
  int node = -1;
  if (std::fscanf(file, "%d", &node) != 1 || node < 0) node = -1;
  std::fclose(file);
  return node;
}

}  // namespace fxload
