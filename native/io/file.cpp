#include "io/file.h"

#include <fcntl.h>
#include <linux/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <system_error>

#include "base/align.h"
#include "io/system.h"

namespace fxload {
namespace {

// Kernels before 6.1 do not tell what a file's direct I/O needs; 4096 suits every block size.
constexpr uint32_t kAssumedAlign = 4096;

int64_t nanoseconds(const timespec& time) {
  return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

std::string file_system_name(long magic) {
  struct Known {
    unsigned long magic;
    const char* name;
  };
  static constexpr std::array<Known, 16> kKnown{{
      {0xEF53, "ext4"},
      {0x58465342, "xfs"},
      {0x01021994, "tmpfs"},
      {0x858458f6, "ramfs"},
      {0x794c7630, "overlay"},
      {0x65735546, "fuse"},
      {0x6969, "nfs"},
      {0x9123683E, "btrfs"},
      {0x73717368, "squashfs"},
      {0x0BD00BD0, "lustre"},
      {0xFF534D42, "cifs"},
      {0xFE534D42, "smb2"},
      {0x00C36400, "ceph"},
      {0x47504653, "gpfs"},
      {0xF2F52010, "f2fs"},
      {0x2FC12FC1, "zfs"},
  }};
  for (const Known& known : kKnown) {
    if (known.magic == static_cast<unsigned long>(magic)) return known.name;
  }
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), "0x%lx", static_cast<unsigned long>(magic));
  return text.data();
}

// The same open file under other flags, without naming the path a second time: it might have come
// to name another file, and on a network file system a name costs a round trip.
UniqueFd reopen(int fd, int flags) {
  const std::string self = "/proc/self/fd/" + std::to_string(fd);
  return UniqueFd(::open(self.c_str(), flags));
}

}  // namespace

FileIdentity identity_of(const struct stat& st) {
  return {st.st_dev, st.st_ino, static_cast<uint64_t>(st.st_size), nanoseconds(st.st_mtim),
          nanoseconds(st.st_ctim)};
}

Result<std::shared_ptr<File>> File::open(const std::string& path, bool want_direct,
                                         std::span<std::byte> head, size_t* head_bytes) {
  auto file = std::shared_ptr<File>(new File());
  file->path_ = path;
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  file->opened_ns_ = nanoseconds(now);
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;  // a fifo must not block the open
  UniqueFd fd;
  if (want_direct) {
    fd = UniqueFd(::open(path.c_str(), kFlags | O_DIRECT));
    if (fd.valid()) {
      file->direct_fd_ = std::move(fd);
    } else if (errno == EINVAL || errno == EOPNOTSUPP) {
      file->direct_.reason = "the file system refuses to open with O_DIRECT";
    } else {
      return Status::from_errno(errno, "open").at(path);
    }
  } else {
    file->direct_.reason = "direct I/O was not asked for";
  }
  if (!file->direct_fd_.valid()) {
    fd = UniqueFd(::open(path.c_str(), kFlags));
    if (!fd.valid()) return Status::from_errno(errno, "open").at(path);
    file->buffered_fd_ = std::move(fd);
  }
  const int opened = file->any_fd();
  struct stat st{};
  if (::fstat(opened, &st) != 0) return Status::from_errno(errno, "stat").at(path);
  if (!S_ISREG(st.st_mode)) {
    return Status::error(Code::kUsage,
                         S_ISDIR(st.st_mode) ? "is a folder, not a file" : "is not a regular file")
        .at(path);
  }
  // It would make io_uring give up where it could wait.
  (void)::fcntl(opened, F_SETFL, ::fcntl(opened, F_GETFL) & ~O_NONBLOCK);
  file->identity_ = identity_of(st);
  file->owner_ = st.st_uid;
  struct statfs fs{};
  if (::fstatfs(opened, &fs) != 0) return Status::from_errno(errno, "statfs").at(path);
  file->file_system_ = file_system_name(fs.f_type);
  if (Status status = file->probe_direct(head, head_bytes); !status.ok()) return status;
  return file;
}

Status File::probe_direct(std::span<std::byte> head, size_t* head_bytes) {
  const size_t wanted = static_cast<size_t>(std::min<uint64_t>(head.size(), size()));
  *head_bytes = 0;
  if (direct_fd_.valid()) {
    direct_.memory_align = direct_.offset_align = kAssumedAlign;
    const system::DirectAlignment alignment = system::direct_alignment(direct_fd_.get());
    if (alignment.known && alignment.offset_align == 0) {
      direct_.reason = "the kernel reports no direct I/O for this file";
      if (Result<int> fd = buffered_fd(); !fd.ok()) return fd.status();
      direct_fd_.reset();
    } else {
      if (alignment.known) {
        direct_.from_statx = true;
        direct_.memory_align = alignment.memory_align;
        direct_.offset_align = alignment.offset_align;
      }
      ssize_t got;
      do {
        got = ::pread(direct_fd_.get(), head.data(), head.size(), 0);
      } while (got < 0 && (errno == EINTR || errno == EAGAIN));
      if (got < 0) {
        // Some file systems accept the flag and refuse the read. The page cache may still serve;
        // if the fault is the storage's own, the buffered read below reports it.
        direct_.reason = "a direct read failed: " + std::generic_category().message(errno);
        if (Result<int> fd = buffered_fd(); !fd.ok()) return fd.status();
        direct_fd_.reset();
      } else {
        direct_.works = true;
        *head_bytes = std::min<size_t>(static_cast<size_t>(got), wanted);
      }
    }
  }
  if (*head_bytes == wanted) return {};
  const Result<int> fd = buffered_fd();
  if (!fd.ok()) return fd.status();
  return system::read_exactly(*Result<int>(fd), head.subspan(*head_bytes, wanted - *head_bytes),
                              *head_bytes, path_, head_bytes);
}

Result<int> File::buffered_fd() const {
  const std::lock_guard lock(buffered_mutex_);
  if (!buffered_fd_.valid()) {
    buffered_fd_ = reopen(direct_fd_.get(), O_RDONLY | O_CLOEXEC);
    if (!buffered_fd_.valid()) return Status::from_errno(errno, "open").at(path_);
  }
  return buffered_fd_.get();
}

int File::any_fd() const {
  if (direct_fd_.valid()) return direct_fd_.get();
  const std::lock_guard lock(buffered_mutex_);
  return buffered_fd_.get();
}

Status File::check_unchanged() const {
  struct stat st{};
  if (::fstat(any_fd(), &st) != 0) return Status::from_errno(errno, "stat").at(path_);
  if (identity_of(st) == identity_) return {};
  return Status::error(Code::kChanged, "the file changed while it was being read").at(path_);
}

}  // namespace fxload
