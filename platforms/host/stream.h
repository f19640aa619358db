#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "base/clock.h"
#include "base/quarantine.h"
#include "base/status.h"
#include "device/own_process.h"

namespace fxload::host {

// A point in a stream that others can ask about and wait for. It may be recorded again; what counts
// is then the last record. Thread-safe; shared between its owner and the streams that still hold
// it.
class Event {
 public:
  // The number of a new record, which the stream then completes.
  uint64_t record();
  void complete(uint64_t record);
  uint64_t last_record() const;
  // True if it was never recorded.
  bool done() const;
  // When its last record completed.
  std::optional<TimePoint> completed_at() const;
  // Ends when that record, or a later one, has completed: streams run all that they hold before
  // they go away, so it does.
  void wait_for(uint64_t record);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t recorded_ = 0;
  uint64_t completed_ = 0;
  TimePoint at_;
};

// Runs jobs one after the other on a thread of its own. Thread-safe. The destructor runs what is
// still queued and joins the thread; in a forked child, where there is no such thread, it does
// neither.
class Stream {
 public:
  static Result<std::shared_ptr<Stream>> start();
  Stream(const Stream&) = delete;
  ~Stream();

  void queue(std::function<void()> job);
  bool idle() const;

 private:
  struct State;
  Stream(std::shared_ptr<State> state, Worker worker)
      : state_(std::move(state)), worker_(std::move(worker)) {}

  OwnProcess process_;
  std::shared_ptr<State> state_;
  Worker worker_;
};

}  // namespace fxload::host
