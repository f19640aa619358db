#include "memory/region.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/align.h"
#include "memory/touch.h"

namespace fxload {
namespace {

// Address space is made accessible in steps of this: little enough for a host that charges for it.
constexpr size_t kOpenedBytes = size_t{4} << 30;

}  // namespace

Result<std::byte*> reserve_address_space(size_t size) {
  const size_t padded = size + kHugePageBytes;
  void* mapped =
      ::mmap(nullptr, padded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return Status::from_errno(errno, "reserve address space");
  const auto at = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t aligned = align_up(at, kHugePageBytes);
  if (aligned > at) ::munmap(mapped, aligned - at);
  const uintptr_t tail = at + padded - (aligned + size);
  if (tail > 0) ::munmap(reinterpret_cast<void*>(aligned + size), tail);
  return reinterpret_cast<std::byte*>(aligned);
}

Result<std::shared_ptr<Region>> Region::create(std::shared_ptr<MemoryPool> pool, size_t size,
                                               std::shared_ptr<Wakeup> released) {
  const size_t window = pool->window_bytes();
  const size_t whole = (size + window - 1) / window * window;
  if (whole == 0) {
    return std::shared_ptr<Region>(new Region(std::move(pool), nullptr, 0, std::move(released)));
  }
  Result<std::byte*> base = reserve_address_space(whole);
  if (!base.ok()) return base.status();
  advise_huge(*base, whole);
  return std::shared_ptr<Region>(new Region(std::move(pool), *base, whole, std::move(released)));
}

Region::Region(std::shared_ptr<MemoryPool> pool, std::byte* base, size_t size,
               std::shared_ptr<Wakeup> released)
    : pool_(std::move(pool)),
      released_(std::move(released)),
      window_bytes_(pool_->window_bytes()),
      base_(base),
      size_(size),
      holders_(size / window_bytes_),
      owner_pid_(::getpid()) {
  for (auto& holders : holders_) holders.store(kUnplaced, std::memory_order_relaxed);
}

Region::~Region() {
  // What was never placed is still this region's reservation; what was placed has been given back,
  // since every holder keeps the region alive. Neighbouring windows go in one call.
  for (size_t i = 0; i < holders_.size();) {
    size_t end = i;
    while (end < holders_.size() && holders_[end].load(std::memory_order_relaxed) == kUnplaced) {
      ++end;
    }
    if (end > i) ::munmap(base_ + i * window_bytes_, (end - i) * window_bytes_);
    i = end + 1;
  }
}

Status Region::acquire(size_t window, bool* touched) {
  *touched = false;
  if (placed(window)) return {};
  if (Status status = open_until(window); !status.ok()) return status;
  *touched = pool_->place(base_ + window * window_bytes_);
  holders_[window].store(1, std::memory_order_release);
  live_windows_.fetch_add(1, std::memory_order_relaxed);
  return {};
}

Status Region::open_until(size_t window) {
  if (window < opened_) return {};
  // Many at a time: changing a mapping waits for whoever is touching pages of this process.
  const size_t end =
      std::min(holders_.size(), window + std::max<size_t>(1, kOpenedBytes / window_bytes_));
  if (::mprotect(base_ + opened_ * window_bytes_, (end - opened_) * window_bytes_,
                 PROT_READ | PROT_WRITE) != 0) {
    return Status::from_errno(errno, "get memory from the host");
  }
  opened_ = end;
  return {};
}

bool Region::placed(size_t window) const {
  return holders_[window].load(std::memory_order_acquire) > 0;
}

void Region::hold(size_t first, size_t last) {
  for (size_t i = first; i <= last; ++i) holders_[i].fetch_add(1, std::memory_order_relaxed);
}

void Region::use_small_pages(size_t first) {
  const size_t begin = first * window_bytes_;
  if (begin < size_) (void)::madvise(base_ + begin, size_ - begin, MADV_NOHUGEPAGE);
}

void Region::drop(size_t first, size_t last) {
  bool gave_back = false;
  for (size_t i = first; i <= last; ++i) {
    // In a forked child a mutex may be held for ever by a thread that exists in the parent alone:
    // there the memory goes back with the process.
    if (holders_[i].fetch_sub(1, std::memory_order_acq_rel) == 1 && ::getpid() == owner_pid_) {
      pool_->give_back(base_ + i * window_bytes_);
      live_windows_.fetch_sub(1, std::memory_order_relaxed);
      gave_back = true;
    }
  }
  if (gave_back) released_->notify();
}

RegionLease::RegionLease(std::shared_ptr<Region> region, uint64_t offset, size_t length)
    : region_(std::move(region)), offset_(offset), length_(length) {
  region_->hold(region_->window_of(offset_), region_->window_of(offset_ + length_ - 1));
}

RegionLease::~RegionLease() {
  if (region_)
    region_->drop(region_->window_of(offset_), region_->window_of(offset_ + length_ - 1));
}

}  // namespace fxload
