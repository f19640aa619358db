#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"

namespace fxload {

// Touched, huge-page aligned memory of a fixed size: what a bounded pipeline recycles.
class RingMemory {
 public:
  // On that NUMA node where there is room; -1: wherever the kernel likes.
  static Result<RingMemory> create(size_t size, int numa_node = -1);
  RingMemory() = default;
  RingMemory(RingMemory&& other) noexcept;
  RingMemory& operator=(RingMemory&& other) noexcept;
  ~RingMemory();

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  explicit RingMemory(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes_;
};

}  // namespace fxload
