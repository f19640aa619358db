#pragma once

#include <cstddef>

#include "base/status.h"

namespace fxload {

// Bytes a second of copying `size` bytes of touched memory with `threads` threads, into memory that
// is fresh (its pages are first touched by the copy) or touched, in huge or in small pages. What a
// load from memory is measured against.
Result<double> copy_bandwidth(size_t size, size_t threads, bool fresh, bool huge_pages);

}  // namespace fxload
