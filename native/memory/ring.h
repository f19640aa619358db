#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"

namespace fxload {

// Touched, huge-page aligned memory of a fixed size: what a bounded pipeline recycles.
class RingMemory {
 public:
  static Result<RingMemory> create(size_t size);
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
