#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "base/wakeup.h"
#include "memory/memory_pool.h"

namespace fxload {

constexpr size_t kHugePageBytes = size_t{2} << 20;

// Inaccessible address space, aligned to huge pages.
Result<std::byte*> reserve_address_space(size_t size);

// Address space for one load, backed window by window from a pool. A range of it can be contiguous
// over many windows, and yet each window's memory goes back as soon as nobody holds it: that is
// what lets a tensor be a plain view, a stream run in bounded memory, and one tensor kept alone
// keep little else alive.
//
// A window is placed once (acquire, from no holders to one), shared by hold(), and given back when
// its last holder drops it; it is never placed again. Thread-safe, except that acquire() must not
// run twice at once; hold() needs somebody who already holds.
class Region {
 public:
  // `released` is notified whenever a window has been given back.
  static Result<std::shared_ptr<Region>> create(std::shared_ptr<MemoryPool> pool, size_t size,
                                                std::shared_ptr<Wakeup> released);
  Region(const Region&) = delete;
  ~Region();

  std::byte* data() const { return base_; }
  size_t size() const { return size_; }
  size_t window_bytes() const { return window_bytes_; }
  size_t window_of(uint64_t offset) const { return offset / window_bytes_; }

  // Places the window with one holder, unless it is placed already. *touched as in the pool.
  Status acquire(size_t window, bool* touched);
  bool placed(size_t window) const;
  // Windows from `first` on, none of them placed yet, get small pages.
  void use_small_pages(size_t first);
  size_t live_windows() const { return live_windows_.load(std::memory_order_relaxed); }
  // Notifies `released`: not to be called with its mutex held.
  void drop(size_t first, size_t last);
  void hold(size_t first, size_t last);

 private:
  Region(std::shared_ptr<MemoryPool> pool, std::byte* base, size_t size,
         std::shared_ptr<Wakeup> released);

  Status open_until(size_t window);

  // Negative: not yet placed; 0: given back; else the number of holders.
  static constexpr int32_t kUnplaced = -1;

  std::shared_ptr<MemoryPool> pool_;
  std::shared_ptr<Wakeup> released_;
  const size_t window_bytes_;
  std::byte* const base_;
  const size_t size_;
  std::vector<std::atomic<int32_t>> holders_;
  std::atomic<size_t> live_windows_{0};
  const pid_t owner_pid_;
  size_t opened_ = 0;  // windows below are accessible
};

// Holds the windows under a byte range until it dies.
class RegionLease {
 public:
  RegionLease() = default;
  // Somebody must hold the range already.
  RegionLease(std::shared_ptr<Region> region, uint64_t offset, size_t length);
  RegionLease(RegionLease&&) noexcept = default;
  RegionLease& operator=(RegionLease&&) = delete;
  ~RegionLease();

  std::byte* data() const { return region_->data() + offset_; }
  size_t size() const { return length_; }

 private:
  std::shared_ptr<Region> region_;
  uint64_t offset_ = 0;
  size_t length_ = 0;
};

}  // namespace fxload
