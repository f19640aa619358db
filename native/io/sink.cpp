#include "io/sink.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/align.h"

namespace fxload {
namespace {

constexpr uint64_t kDirectUnit = 4096;
constexpr long kTmpfsMagic = 0x01021994;

}  // namespace

Status Sink::open() {
  fd_ = UniqueFd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd_.valid()) return Status::from_errno(errno, "create").at(path_);
  if (size_bytes_ == 0) return {};
  int failed;
  do {
    failed = ::fallocate(fd_.get(), 0, 0, static_cast<off_t>(size_bytes_)) == 0 ? 0 : errno;
  } while (failed == EINTR);
  if (failed != 0 && failed != EOPNOTSUPP && failed != ENOSYS) {
    return Status::from_errno(failed, "reserve space").at(path_, 0, size_bytes_);
  }
  struct statfs fs{};
  if (::fstatfs(fd_.get(), &fs) == 0 && fs.f_type == kTmpfsMagic) return {};
  // Written past the page cache where that works: what has just been staged would push out what
  // others have in it.
  const std::string self = "/proc/self/fd/" + std::to_string(fd_.get());
  direct_fd_ = UniqueFd(::open(self.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC));
  return {};
}

Status Sink::write_all(int fd, uint64_t offset, std::span<const std::byte> data) const {
  while (!data.empty()) {
    const ssize_t put = ::pwrite(fd, data.data(), data.size(), static_cast<off_t>(offset));
    if (put < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      return Status::from_errno(errno, "write").at(path_, offset, data.size());
    }
    data = data.subspan(static_cast<size_t>(put));
    offset += static_cast<uint64_t>(put);
  }
  return {};
}

Status Sink::write(uint64_t offset, std::span<std::byte> data) {
  if (direct_fd_.valid() && is_aligned(offset, kDirectUnit)) {
    const size_t padded = align_up(data.size(), kDirectUnit);
    std::memset(data.data() + data.size(), 0, padded - data.size());
    const ssize_t put = ::pwrite(direct_fd_.get(), data.data(), padded, static_cast<off_t>(offset));
    if (put == static_cast<ssize_t>(padded)) return {};
    // Refused or cut short: the page cache takes the piece, and reports the storage's own faults.
  }
  return write_all(fd_.get(), offset, data);
}

Status Sink::finish() {
  if (::ftruncate(fd_.get(), static_cast<off_t>(size_bytes_)) != 0) {
    return Status::from_errno(errno, "set the size").at(path_);
  }
  if (::fdatasync(fd_.get()) != 0) return Status::from_errno(errno, "sync").at(path_);
  direct_fd_.reset();
  fd_.reset();
  return {};
}

}  // namespace fxload
