#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "io/reader.h"

namespace fxload {

// Feeds one reader from a queue that any thread may push to, and reports completions. run() is the
// body of the one thread that owns the reader.
class Lane {
 public:
  using OnDone = std::function<void(uint64_t tag, Status status)>;

  explicit Lane(std::unique_ptr<Reader> reader) : reader_(std::move(reader)) {}

  const Reader& reader() const { return *reader_; }
  void push(const ReadRequest& request);
  // Calls on_done for every request pushed. Returns after stop(), once nothing is in flight; what
  // was still queued then is reported as not read.
  void run(const OnDone& on_done);
  void stop();

 private:
  std::unique_ptr<Reader> reader_;
  std::mutex mutex_;
  std::deque<ReadRequest> queue_;
  std::atomic<bool> stopping_{false};
};

}  // namespace fxload
