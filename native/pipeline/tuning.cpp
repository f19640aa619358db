#include "pipeline/tuning.h"

#include <algorithm>
#include <thread>

namespace fxload {

Tuning tune_storage(bool direct) {
  constexpr size_t kMiB = size_t{1} << 20;
  if (direct) {
    return {8 * kMiB, 32,
            "direct: 256 MiB in flight hold 25 GB/s at 10 ms, and one request fills a stripe"};
  }
  return {8 * kMiB, 32, "through the page cache: as many blocking reads as a direct queue is deep"};
}

Tuning tune_memory() {
  constexpr size_t kMostThreads = 16;
  const size_t processors = std::max(1U, std::thread::hardware_concurrency());
  return {size_t{2} << 20, std::min(processors, kMostThreads),
          "already in memory: one copying thread a processor, a huge page at a time"};
}

}  // namespace fxload
