#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.h"

namespace fxload {

// Host memory in windows of one size, kept between uses because memory that the host already backs
// is several times cheaper to fill than fresh memory. A window is moved to the address where it is
// wanted by remapping its pages, never by copying. Thread-safe; shared by the regions that use it,
// the last of which may die on any thread (hence shared_from_this: its owner in Python is one owner
// among others, and no thread of the core needs the interpreter to let it go).
class MemoryPool : public std::enable_shared_from_this<MemoryPool> {
 public:
  // window_bytes: a multiple of the huge page; limit_bytes: what may be retained unused.
  MemoryPool(size_t window_bytes, size_t limit_bytes)
      : window_bytes_(window_bytes), limit_bytes_(limit_bytes) {}
  MemoryPool(const MemoryPool&) = delete;
  ~MemoryPool() { trim(); }

  size_t window_bytes() const { return window_bytes_; }
  size_t retained_bytes() const;
  size_t live_bytes() const;

  // Retains `size` bytes of touched memory, raising the limit to hold it.
  Status prefault(size_t size, size_t threads);
  // Unmaps all that is retained.
  void trim();

  // Takes account of a window at `address`, the caller's own accessible memory, and puts retained
  // pages there if there are any; tells whether it did.
  bool place(std::byte* address);
  // Takes the window at `address` back: retains it there, or unmaps it. Either way the range is no
  // longer the caller's.
  void give_back(std::byte* address);

 private:
  const size_t window_bytes_;
  mutable std::mutex mutex_;
  size_t limit_bytes_;
  size_t live_windows_ = 0;
  std::vector<std::byte*> retained_;
};

}  // namespace fxload
