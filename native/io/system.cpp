#include "io/system.h"

#include <fcntl.h>
#include <linux/stat.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace fxload::system {
namespace {

// From the kernel's interface headers; named here because a build host's may be older.
constexpr unsigned kStatxDirectAlign = 0x2000;
constexpr size_t kStatxDirectMemoryAlignAt = 0x98;
constexpr size_t kStatxDirectOffsetAlignAt = 0x9c;
constexpr size_t kStatxBytes = 0x100;
constexpr long kCachestatCall = 451;  // the same number on every architecture
constexpr int kPopulateWrite = 23;

}  // namespace

DirectAlignment direct_alignment(int fd) {
  alignas(8) std::array<unsigned char, kStatxBytes> buffer{};
  constexpr int kEmptyPath = 0x1000;  // AT_EMPTY_PATH
  if (::syscall(SYS_statx, fd, "", kEmptyPath, kStatxDirectAlign, buffer.data()) != 0) return {};
  uint32_t mask;
  DirectAlignment result;
  std::memcpy(&mask, buffer.data(), sizeof mask);
  std::memcpy(&result.memory_align, buffer.data() + kStatxDirectMemoryAlignAt, 4);
  std::memcpy(&result.offset_align, buffer.data() + kStatxDirectOffsetAlignAt, 4);
  result.known = (mask & kStatxDirectAlign) != 0;
  return result;
}

CacheState cache_state(int fd, uint64_t offset, uint64_t length) {
  struct Range {
    uint64_t offset, length;
  } range{offset, length};
  struct Counts {
    uint64_t cache, dirty, writeback, evicted, recently_evicted;
  } counts{};
  CacheState result;
  if (::syscall(kCachestatCall, fd, &range, &counts, 0U) != 0) {
    result.os_errno = errno;
  } else {
    result.resident_pages = counts.cache;
  }
  return result;
}

int populate_write(std::byte* begin, size_t length) {
  int failed;
  do {
    failed = ::madvise(begin, length, kPopulateWrite) == 0 ? 0 : errno;
  } while (failed == EINTR || failed == EAGAIN);
  return failed;
}

Status read_exactly(int fd, std::span<std::byte> into, uint64_t offset, const std::string& path,
                    size_t* done) {
  while (!into.empty()) {
    const ssize_t got = ::pread(fd, into.data(), into.size(), static_cast<off_t>(offset));
    if (got < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      return Status::from_errno(errno, "read").at(path, offset, into.size());
    }
    if (got == 0) {
      return Status::error(Code::kTruncated, "the file ends before its size")
          .at(path, offset, into.size());
    }
    into = into.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
    *done += static_cast<size_t>(got);
  }
  return {};
}

}  // namespace fxload::system
