#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "base/status.h"
#include "base/unique_fd.h"

namespace fxload {

// What tells one state of a file from another. Reading does not change it; any write does.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t size_bytes = 0;
  int64_t mtime_ns = 0;
  int64_t ctime_ns = 0;
  bool operator==(const FileIdentity&) const = default;
};

FileIdentity identity_of(const struct stat& st);

// How direct I/O has to be shaped on one file.
struct DirectShape {
  bool works = false;  // a real direct read came back
  std::string reason;  // why not
  uint32_t memory_align = 0;
  uint32_t offset_align = 0;
  bool from_statx = false;  // otherwise the alignments are assumed
};

// One regular file open for reading, directly where its mount allows it and through the page cache
// otherwise. Immutable after open() except for the lazily opened second descriptor; thread-safe.
class File {
 public:
  // Opens, stats and probes. The probe is a real read of the first bytes into `head` (page
  // aligned, its size a multiple of the alignment); `head_bytes` tells how many arrived.
  static Result<std::shared_ptr<File>> open(const std::string& path, bool want_direct,
                                            std::span<std::byte> head, size_t* head_bytes);

  const std::string& path() const { return path_; }
  const FileIdentity& identity() const { return identity_; }
  uint64_t size() const { return identity_.size_bytes; }
  // Wall-clock time just before the file was opened: what changed shortly before may have changed
  // again within the resolution of the file's own times.
  int64_t opened_ns() const { return opened_ns_; }
  const DirectShape& direct() const { return direct_; }
  const std::string& file_system() const { return file_system_; }
  bool in_memory() const { return file_system_ == "tmpfs" || file_system_ == "ramfs"; }
  uid_t owner() const { return owner_; }

  int direct_fd() const { return direct_fd_.get(); }
  // Whichever descriptor there is: for questions about the file, not for its bytes.
  int any_fd() const;
  // Opened at first use: a file that is read directly never needs it.
  Result<int> buffered_fd() const;

  // Error of kind kChanged if the file is no longer what was opened.
  Status check_unchanged() const;

 private:
  File() = default;
  Status probe_direct(std::span<std::byte> head, size_t* head_bytes);

  std::string path_;
  FileIdentity identity_;
  int64_t opened_ns_ = 0;
  uid_t owner_ = 0;
  std::string file_system_;
  DirectShape direct_;
  UniqueFd direct_fd_;
  mutable std::mutex buffered_mutex_;
  mutable UniqueFd buffered_fd_;
};

}  // namespace fxload
