#include "base/fan_out.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <system_error>

#include "base/wakeup.h"

namespace fxload {

struct FanOut::State {
  Job job;
  std::vector<std::optional<Status>> outcomes;
  std::atomic<size_t> next{0};
  std::atomic<bool> stopping{false};
  Wakeup wakeup;
  size_t ended = 0;  // guarded by wakeup.mutex
};

Result<std::unique_ptr<FanOut>> FanOut::start(size_t count, size_t threads,
                                              std::shared_ptr<Quarantine> quarantine, Job job) {
  auto state = std::make_shared<State>();
  state->job = std::move(job);
  state->outcomes.resize(count);
  auto fan_out = std::unique_ptr<FanOut>(new FanOut(state, std::move(quarantine)));
  try {
    for (size_t i = 0; i < std::min(threads, count); ++i) {
      fan_out->workers_.emplace_back("fxload-fan", [state] {
        for (size_t at = state->next++; at < state->outcomes.size() && !state->stopping;
             at = state->next++) {
          Status outcome = state->job(at);
          {
            const std::lock_guard lock(state->wakeup.mutex);
            state->outcomes[at] = std::move(outcome);
            ++state->ended;
          }
          state->wakeup.changed.notify_all();
        }
      });
    }
  } catch (const std::system_error& error) {
    if (fan_out->workers_.empty()) {
      return Status::error(Code::kMemory,
                           std::string("the host refuses a thread: ") + error.what());
    }
    // A limit on threads: those that started do all of it.
  }
  return fan_out;
}

FanOut::FanOut(std::shared_ptr<State> state, std::shared_ptr<Quarantine> quarantine)
    : state_(std::move(state)), quarantine_(std::move(quarantine)), owner_pid_(::getpid()) {}

FanOut::~FanOut() {
  if (::getpid() != owner_pid_) {
    Worker::forget(workers_);
    return;
  }
  state_->stopping = true;
  const bool all_ended = [&] {
    const std::lock_guard lock(state_->wakeup.mutex);
    return state_->ended == state_->outcomes.size();
  }();
  quarantine_->settle(workers_, all_ended);
  quarantine_->reap();
}

bool FanOut::wait(TimePoint deadline) {
  std::unique_lock lock(state_->wakeup.mutex);
  return state_->wakeup.changed.wait_until(
      lock, deadline, [&] { return state_->ended == state_->outcomes.size(); });
}

Status FanOut::first_error() const {
  const std::lock_guard lock(state_->wakeup.mutex);
  for (const std::optional<Status>& outcome : state_->outcomes) {
    if (outcome && !outcome->ok()) return *outcome;
  }
  return {};
}

size_t FanOut::first_unfinished() const {
  const std::lock_guard lock(state_->wakeup.mutex);
  const auto found = std::find_if(state_->outcomes.begin(), state_->outcomes.end(),
                                  [](const std::optional<Status>& outcome) { return !outcome; });
  return static_cast<size_t>(found - state_->outcomes.begin());
}

}  // namespace fxload
