#include "io/residency.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <vector>

#include "base/align.h"
#include "io/system.h"

namespace fxload {
namespace {

// The kernel answers mincore truthfully only to a file's owner and to who may write it.
bool mincore_is_truthful(const File& file, int fd) {
  if (::geteuid() == 0 || ::geteuid() == file.owner()) return true;
  const std::string self = "/proc/self/fd/" + std::to_string(fd);
  return ::faccessat(AT_FDCWD, self.c_str(), W_OK, AT_EACCESS) == 0;
}

Residency by_mincore(const File& file, int fd, uint64_t offset, uint64_t length) {
  Residency result;
  if (!mincore_is_truthful(file, fd)) {
    result.reason = "the file belongs to another user: mincore would call every page resident";
    return result;
  }
  const uint64_t page = page_bytes();
  const uint64_t begin = align_down(offset, page);
  const size_t span = static_cast<size_t>(align_up(offset + length, page) - begin);
  // Mapped only to ask about it: nothing is accessed, so a shrinking file cannot raise SIGBUS.
  void* mapped = ::mmap(nullptr, span, PROT_NONE, MAP_SHARED, fd, static_cast<off_t>(begin));
  if (mapped == MAP_FAILED) {
    result.reason = "cannot map it: " + std::generic_category().message(errno);
    return result;
  }
  std::vector<unsigned char> pages(span / page);
  if (::mincore(mapped, span, pages.data()) == 0) {
    result.provable = true;
    result.method = "mincore";
    const auto resident = std::count_if(pages.begin(), pages.end(),
                                        [](unsigned char bits) { return (bits & 1) != 0; });
    result.bytes = std::min<uint64_t>(static_cast<uint64_t>(resident) * page, length);
  } else {
    result.reason = "mincore failed: " + std::generic_category().message(errno);
  }
  ::munmap(mapped, span);
  return result;
}

}  // namespace

Residency probe_residency(const File& file, uint64_t offset, uint64_t length) {
  Residency result;
  const uint64_t end = std::min(file.size(), length == 0 ? file.size() : offset + length);
  if (offset >= end) {
    result.provable = true;
    result.method = "none";
    return result;
  }
  if (file.in_memory()) {
    return {end - offset, true, "tmpfs", ""};
  }
  // A second descriptor would cost a round trip a file on a network file system.
  const int fd = file.any_fd();
  const system::CacheState state = system::cache_state(fd, offset, end - offset);
  if (state.os_errno == 0) {
    const uint64_t bytes = std::min(state.resident_pages * page_bytes(), end - offset);
    return {bytes, true, "cachestat", ""};
  }
  if (state.os_errno == EPERM && ::geteuid() != 0 && ::geteuid() != file.owner()) {
    result.reason = "the file belongs to another user: cachestat is not permitted";
    return result;
  }
  return by_mincore(file, fd, offset, end - offset);
}

}  // namespace fxload
