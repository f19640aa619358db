#pragma once

#include <algorithm>
#include <chrono>

namespace fxload {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;

// A time point `seconds` from now; huge values mean "practically never" instead of overflowing.
inline TimePoint after_seconds(double seconds) {
  constexpr double kLongest = 3600.0 * 24 * 365;
  const double bounded = std::clamp(seconds, 0.0, kLongest);
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(bounded));
}

inline double seconds_between(TimePoint from, TimePoint to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace fxload
