#include "memory/memory_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "base/align.h"
#include "memory/region.h"
#include "memory/touch.h"

namespace fxload {

size_t MemoryPool::retained_bytes() const {
  const std::lock_guard lock(mutex_);
  return retained_.size() * window_bytes_;
}

size_t MemoryPool::live_bytes() const {
  const std::lock_guard lock(mutex_);
  return live_windows_ * window_bytes_;
}

Status MemoryPool::prefault(size_t size, size_t threads) {
  const size_t windows = (size + window_bytes_ - 1) / window_bytes_;
  if (windows == 0) return {};
  Result<std::byte*> reserved = reserve_address_space(windows * window_bytes_);
  if (!reserved.ok()) return reserved.status();
  std::byte* base = *reserved;
  const size_t bytes = windows * window_bytes_;
  if (::mprotect(base, bytes, PROT_READ | PROT_WRITE) != 0) {
    const Status status = Status::from_errno(errno, "get memory from the host");
    ::munmap(base, bytes);
    return status;
  }
  advise_huge(base, bytes);
  if (Status failure = touch_in_parallel(base, bytes, threads); !failure.ok()) {
    ::munmap(base, bytes);
    return failure;
  }
  const std::lock_guard lock(mutex_);
  for (size_t i = windows; i > 0; --i) retained_.push_back(base + (i - 1) * window_bytes_);
  limit_bytes_ = std::max(limit_bytes_, retained_.size() * window_bytes_);
  return {};
}

void MemoryPool::trim() {
  const std::lock_guard lock(mutex_);
  for (std::byte* window : retained_) ::munmap(window, window_bytes_);
  retained_.clear();
}

bool MemoryPool::place(std::byte* address) {
  const std::lock_guard lock(mutex_);
  ++live_windows_;
  if (retained_.empty()) return false;
  // Refused at the kernel's limit on mappings. Fresh memory merges with its neighbours and needs
  // none of its own.
  if (::mremap(retained_.back(), window_bytes_, window_bytes_, MREMAP_MAYMOVE | MREMAP_FIXED,
               address) == MAP_FAILED) {
    return false;
  }
  retained_.pop_back();
  return true;
}

void MemoryPool::give_back(std::byte* address) {
  const std::lock_guard lock(mutex_);
  --live_windows_;
  if ((retained_.size() + 1) * window_bytes_ <= limit_bytes_) {
    retained_.push_back(address);
  } else {
    ::munmap(address, window_bytes_);
  }
}

}  // namespace fxload
