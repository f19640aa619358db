#pragma once

#include <unistd.h>

#include <cstdint>

namespace fxload {

// `unit` is a power of two.
constexpr uint64_t align_down(uint64_t value, uint64_t unit) { return value & ~(unit - 1); }
constexpr uint64_t align_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) & ~(unit - 1);
}
constexpr bool is_aligned(uint64_t value, uint64_t unit) { return (value & (unit - 1)) == 0; }

inline uint64_t page_bytes() { return static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)); }

}  // namespace fxload
