#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/status.h"

namespace fxload::bindings {

// The one place where a status becomes an exception. Needs the GIL.
[[noreturn]] void raise(const Status& status);

inline void check(const Status& status) {
  if (!status.ok()) raise(status);
}

template <typename T>
T value_of(Result<T> result) {
  if (!result.ok()) raise(result.status());
  return std::move(*result);
}

// Calls step(slice) without the GIL until it returns true, or the timeout. Between slices signals
// are handled, so that Ctrl-C ends any wait. Returns false at the timeout.
template <typename Step>
bool wait_interruptibly(double timeout_s, Step step) {
  const TimePoint deadline = after_seconds(timeout_s);
  for (;;) {
    bool done = false;
    {
      const nanobind::gil_scoped_release unlocked;
      done = step(std::min(deadline, Clock::now() + std::chrono::milliseconds(50)));
    }
    if (done) return true;
    if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
    if (Clock::now() >= deadline) return false;
  }
}

}  // namespace fxload::bindings
