#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/quarantine.h"
#include "base/status.h"

namespace fxload {

// Runs `count` jobs of one kind on a bounded number of threads, because each waits for storage.
// Whoever waits may give up at a deadline; the threads then finish in the quarantine, so the job
// must own all that it touches.
class FanOut {
 public:
  using Job = std::function<Status(size_t index)>;

  static Result<std::unique_ptr<FanOut>> start(size_t count, size_t threads,
                                               std::shared_ptr<Quarantine> quarantine, Job job);
  ~FanOut();

  // True when all jobs have ended; false at the deadline.
  bool wait(TimePoint deadline);
  // The error of the first job, in order, that failed so far.
  Status first_error() const;
  // The first job that has not ended; the count of jobs if all have.
  size_t first_unfinished() const;

 private:
  struct State;
  explicit FanOut(std::shared_ptr<State> state, std::shared_ptr<Quarantine> quarantine);

  std::shared_ptr<State> state_;
  std::shared_ptr<Quarantine> quarantine_;
  std::vector<Worker> workers_;
  pid_t owner_pid_;
};

}  // namespace fxload
