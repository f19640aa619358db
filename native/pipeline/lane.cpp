#include "pipeline/lane.h"

#include <algorithm>
#include <chrono>

namespace fxload {
namespace {

constexpr size_t kFirstRequests = 4;

}  // namespace

void Lane::push(const ReadRequest& request) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(request);
  }
  reader_->wake();
}

void Lane::stop() {
  stopping_.store(true, std::memory_order_release);
  reader_->wake();
}

void Lane::run(const OnDone& on_done) {
  std::vector<ReadRequest> batch;
  std::vector<ReadCompletion> done;
  // The queue deepens with what comes back: filled at once, every request would share the link and
  // the first would arrive with the last.
  size_t allowed = std::min(kFirstRequests, reader_->depth());
  for (;;) {
    const bool stopping = stopping_.load(std::memory_order_acquire);
    {
      const std::lock_guard lock(mutex_);
      const size_t room =
          stopping ? queue_.size() : allowed - std::min(allowed, reader_->in_flight());
      const auto end = queue_.begin() + static_cast<long>(std::min(room, queue_.size()));
      batch.assign(queue_.begin(), end);
      queue_.erase(queue_.begin(), end);
    }
    if (stopping) {
      for (const ReadRequest& request : batch) {
        on_done(request.tag, Status::error(Code::kDeadline, "the load was closed"));
      }
      if (reader_->in_flight() == 0) return;
    } else if (!batch.empty()) {
      reader_->submit(batch);
    }
    reader_->reap(done, Clock::now() + std::chrono::seconds(1));
    for (ReadCompletion& completion : done) on_done(completion.tag, std::move(completion.status));
    allowed = std::min(reader_->depth(), allowed + 2 * done.size());
    done.clear();
  }
}

}  // namespace fxload
