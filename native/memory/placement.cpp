#include "memory/placement.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <climits>

namespace fxload {
namespace {

constexpr int kMostNodes = 1024;
constexpr size_t kBitsPerWord = sizeof(unsigned long) * CHAR_BIT;

}  // namespace

void prefer_numa_node(std::byte* begin, size_t length, int node) {
  if (node < 0 || node >= kMostNodes) return;
  std::array<unsigned long, kMostNodes / kBitsPerWord> mask{};
  mask[static_cast<size_t>(node) / kBitsPerWord] = 1UL
                                                   << (static_cast<size_t>(node) % kBitsPerWord);
  // The kernel counts one bit less than it is told.
  (void)::syscall(SYS_mbind, begin, length, MPOL_PREFERRED, mask.data(), kMostNodes + 1UL, 0U);
}

int numa_node_of(const std::byte* address) {
  int node = -1;
  if (::syscall(SYS_get_mempolicy, &node, nullptr, 0UL, address, MPOL_F_NODE | MPOL_F_ADDR) != 0) {
    return -1;
  }
  return node;
}

}  // namespace fxload
