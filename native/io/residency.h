#pragma once

#include <cstdint>
#include <string>

#include "io/file.h"

namespace fxload {

// How much of a file range is in the page cache, and whether that can be believed.
struct Residency {
  uint64_t bytes = 0;
  bool provable = false;
  std::string method = "none";  // "cachestat", "mincore", "tmpfs", "none"
  std::string reason;           // why not provable
};

// Does no I/O. Where the kernel gives no answer that proves anything (mincore for a file of another
// user calls every page resident), the range counts as cold.
Residency probe_residency(const File& file, uint64_t offset, uint64_t length);

}  // namespace fxload
