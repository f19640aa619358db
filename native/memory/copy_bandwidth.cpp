#include "memory/copy_bandwidth.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "memory/region.h"
#include "memory/ring.h"
#include "memory/touch.h"

namespace fxload {

Result<double> copy_bandwidth(size_t size, size_t threads, bool fresh, bool huge_pages) {
  if (size == 0) return Status::error(Code::kUsage, "a copy needs a size");
  constexpr size_t kStep = kHugePageBytes;
  // Larger than any cache, small enough to leave the memory to the destination.
  constexpr size_t kSourceBytes = size_t{512} << 20;
  Result<RingMemory> source = RingMemory::create(std::min(size, kSourceBytes));
  if (!source.ok()) return source.status();
  const std::span<std::byte> from = source->bytes();
  std::memset(from.data(), 0x5a, from.size());  // a page of zeroes may be shared by the host
  const size_t steps = (size + kStep - 1) / kStep;
  Result<std::byte*> into = reserve_address_space(steps * kStep);
  if (!into.ok()) return into.status();
  std::byte* to = *into;
  Status status;
  if (::mprotect(to, steps * kStep, PROT_READ | PROT_WRITE) != 0) {
    status = Status::from_errno(errno, "get memory from the host");
  }
  (void)::madvise(to, steps * kStep, huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  if (status.ok() && !fresh) status = touch(to, steps * kStep);
  double seconds = 0;
  if (status.ok()) {
    std::atomic<size_t> next{0};
    const auto work = [&] {
      for (size_t i = next++; i < steps; i = next++) {
        std::memcpy(to + i * kStep, from.data() + (i * kStep) % from.size(), kStep);
      }
    };
    const TimePoint begin = Clock::now();
    {
      std::vector<std::jthread> helpers;
      for (size_t i = 1; i < threads; ++i) helpers.emplace_back(work);
      work();
    }
    seconds = seconds_between(begin, Clock::now());
  }
  ::munmap(to, steps * kStep);
  if (!status.ok()) return status;
  return static_cast<double>(steps * kStep) / seconds;
}

}  // namespace fxload
