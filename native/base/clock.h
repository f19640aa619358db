#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <string>

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

// "0.5 s", "120 s".
inline std::string seconds_text(double seconds) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g s", seconds);
  return text.data();
}

inline double seconds_between(TimePoint from, TimePoint to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace fxload
