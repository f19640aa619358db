#include "memory/ring.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "base/align.h"
#include "memory/placement.h"
#include "memory/region.h"
#include "memory/touch.h"

namespace fxload {
namespace {

constexpr size_t kMostThreads = 8;

}  // namespace

Result<RingMemory> RingMemory::create(size_t size, int numa_node) {
  Result<std::byte*> base = reserve_address_space(align_up(size, kHugePageBytes));
  if (!base.ok()) return base.status();
  RingMemory ring({*base, align_up(size, kHugePageBytes)});
  if (::mprotect(ring.bytes_.data(), ring.bytes_.size(), PROT_READ | PROT_WRITE) != 0) {
    return Status::from_errno(errno, "get memory from the host");
  }
  advise_huge(ring.bytes_.data(), ring.bytes_.size());
  prefer_numa_node(ring.bytes_.data(), ring.bytes_.size(), numa_node);
  const size_t threads = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMostThreads);
  if (Status status = touch_in_parallel(ring.bytes_.data(), ring.bytes_.size(), threads);
      !status.ok()) {
    return status;
  }
  return ring;
}

RingMemory::RingMemory(RingMemory&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

RingMemory& RingMemory::operator=(RingMemory&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

RingMemory::~RingMemory() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace fxload
