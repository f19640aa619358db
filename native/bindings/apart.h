#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "base/fan_out.h"
#include "base/quarantine.h"
#include "bindings/errors.h"

namespace fxload::bindings {

// What a device's runtime may take to answer.
constexpr double kDeviceTimeoutS = 120;

// Runs the job on a thread of its own and waits for it without the GIL, so that Python's threads
// keep the current device that they have, and a runtime that does not answer keeps nobody for
// longer than the timeout. The job owns all that it touches.
inline void run_apart(const std::shared_ptr<Quarantine>& quarantine, const std::string& action,
                      std::function<Status()> job) {
  std::unique_ptr<FanOut> work =
      value_of(FanOut::start(1, 1, quarantine, [job = std::move(job)](size_t) { return job(); }));
  if (!wait_interruptibly(kDeviceTimeoutS, [&](TimePoint slice) { return work->wait(slice); })) {
    raise(Status::error(Code::kDeadline, action + ": the device's runtime has not answered in " +
                                             seconds_text(kDeviceTimeoutS)));
  }
  check(work->first_error());
}

// As above, of a job that returns a value.
template <typename Job>
auto value_apart(const std::shared_ptr<Quarantine>& quarantine, const std::string& action,
                 Job job) {
  using Value = std::remove_cvref_t<decltype(*job())>;
  auto value = std::make_shared<std::optional<Value>>();
  run_apart(quarantine, action, [value, job = std::move(job)] {
    Result<Value> result = job();
    if (!result.ok()) return result.status();
    *value = std::move(*result);
    return Status();
  });
  return std::move(**value);
}

}  // namespace fxload::bindings
