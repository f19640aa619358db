#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

// System calls that older kernels and C libraries lack, or that need a loop around them.
namespace fxload::system {

struct DirectAlignment {
  bool known = false;
  uint32_t memory_align = 0;
  uint32_t offset_align = 0;  // 0 where the file takes no direct I/O
};

// statx(STATX_DIOALIGN), Linux 6.1.
DirectAlignment direct_alignment(int fd);

struct CacheState {
  int os_errno = 0;
  uint64_t resident_pages = 0;
};

// cachestat(2), Linux 6.5. length 0 means to the end of the file.
CacheState cache_state(int fd, uint64_t offset, uint64_t length);

// madvise(MADV_POPULATE_WRITE), Linux 5.14; returns 0 or an errno.
int populate_write(std::byte* begin, size_t length);

// pread until `into` is full; a read of 0 bytes is kTruncated. Adds to *done (which starts as the
// number of bytes before `into`) so that an error can say how far it came.
Status read_exactly(int fd, std::span<std::byte> into, uint64_t offset, const std::string& path,
                    size_t* done);

}  // namespace fxload::system
