#pragma once

#include <cstddef>

#include "base/status.h"

namespace fxload {

// Makes the host back [begin, begin + length) with memory now, without changing its content, so
// that no later access faults. In a virtual machine a first touch can cost more than the read that
// fills the page; it must not happen inside a submitting call. Idempotent, safe beside reads into
// neighbouring bytes of the same pages.
Status touch(std::byte* begin, size_t length);

// The same by several threads, the calling one among them.
Status touch_in_parallel(std::byte* begin, size_t length, size_t threads);

// Advises huge pages; nothing is lost where there are none.
void advise_huge(std::byte* begin, size_t length);

}  // namespace fxload
