#pragma once

#include <cstddef>

namespace fxload {

// Prefers a NUMA node for pages of a range that are not backed yet. Advice: on hosts without such
// nodes, or where the call is refused, the kernel places them as it likes.
void prefer_numa_node(std::byte* begin, size_t length, int node);

// The node of the page at `address`, which must be backed; -1 where the kernel does not tell.
int numa_node_of(const std::byte* address);

}  // namespace fxload
