#include "memory/touch.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/align.h"
#include "io/system.h"

namespace fxload {

Status touch(std::byte* begin, size_t length) {
  if (length == 0) return {};
  const uint64_t page = page_bytes();
  const auto at = reinterpret_cast<uintptr_t>(begin);
  const uintptr_t first = align_down(at, page);
  const uintptr_t end = align_up(at + length, page);
  const int failed = system::populate_write(reinterpret_cast<std::byte*>(first), end - first);
  if (failed == 0) return {};
  if (failed != EINVAL && failed != EPERM && failed != ENOSYS) {
    return Status::from_errno(failed == EFAULT ? ENOMEM : failed, "get memory from the host");
  }
  // Kernels before 5.14. An atomic OR with nothing writes to the page without changing it, and
  // only to bytes of this range: others of the page may already be somebody's data.
  for (uintptr_t byte = at; byte < at + length; byte = align_down(byte, page) + page) {
    __atomic_fetch_or(reinterpret_cast<unsigned char*>(byte), 0, __ATOMIC_RELAXED);
  }
  return {};
}

Status touch_in_parallel(std::byte* begin, size_t length, size_t threads) {
  constexpr size_t kStep = size_t{16} << 20;
  const size_t steps = (length + kStep - 1) / kStep;
  std::atomic<size_t> next{0};
  std::mutex failure_mutex;
  Status failure;
  const auto work = [&] {
    for (size_t i = next++; i < steps; i = next++) {
      if (Status status = touch(begin + i * kStep, std::min(kStep, length - i * kStep));
          !status.ok()) {
        const std::lock_guard lock(failure_mutex);
        failure = std::move(status);
        return;
      }
    }
  };
  std::vector<std::jthread> helpers;
  try {
    for (size_t i = 1; i < std::min(threads, steps); ++i) helpers.emplace_back(work);
  } catch (const std::system_error&) {
    // A limit on threads: those that there are do it all.
  }
  work();
  helpers.clear();
  return failure;
}

void advise_huge(std::byte* begin, size_t length) { (void)::madvise(begin, length, MADV_HUGEPAGE); }

}  // namespace fxload
