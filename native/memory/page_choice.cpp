#include "memory/page_choice.h"

#include <ctime>

namespace fxload {
namespace {

constexpr size_t kEnoughBytes = size_t{8} << 20;
// Small pages cost 0.2 to 0.35 s/GB, backed huge ones 0.05 to 0.1.
constexpr double kTooMuchPerByte = 0.45e-9;

}  // namespace

bool PageChoice::record(size_t bytes, double cpu_s) {
  const std::lock_guard lock(mutex_);
  if (small_) return false;
  bytes_ += bytes;
  cpu_s_ += cpu_s;
  if (bytes_ < kEnoughBytes) return false;
  small_ = cpu_s_ > kTooMuchPerByte * static_cast<double>(bytes_);
  // Judged anew every few megabytes: backed memory may come first, and run out.
  bytes_ = 0;
  cpu_s_ = 0;
  return small_;
}

double thread_cpu_s() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace fxload
