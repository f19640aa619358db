#include "platforms/host/stream.h"

#include <deque>
#include <string>
#include <system_error>

namespace fxload::host {

uint64_t Event::record() {
  const std::lock_guard lock(mutex_);
  return ++recorded_;
}

void Event::complete(uint64_t record) {
  {
    const std::lock_guard lock(mutex_);
    // Recorded on two streams, the earlier record may complete last.
    if (record > completed_) {
      completed_ = record;
      at_ = Clock::now();
    }
  }
  changed_.notify_all();
}

uint64_t Event::last_record() const {
  const std::lock_guard lock(mutex_);
  return recorded_;
}

bool Event::done() const {
  const std::lock_guard lock(mutex_);
  return completed_ == recorded_;
}

std::optional<TimePoint> Event::completed_at() const {
  const std::lock_guard lock(mutex_);
  if (recorded_ == 0 || completed_ != recorded_) return std::nullopt;
  return at_;
}

void Event::wait_for(uint64_t record) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return completed_ >= record; });
}

struct Stream::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> jobs;
  bool busy = false;
  bool ending = false;

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return ending || !jobs.empty(); });
      if (jobs.empty()) return;
      {
        const std::function<void()> job = std::move(jobs.front());
        jobs.pop_front();
        busy = true;
        lock.unlock();
        job();
      }
      lock.lock();
      busy = false;
    }
  }
};

Result<std::shared_ptr<Stream>> Stream::start() {
  auto state = std::make_shared<State>();
  try {
    return std::shared_ptr<Stream>(
        new Stream(state, Worker("fxload-stream", [state] { state->run(); })));
  } catch (const std::system_error& error) {
    return Status::error(Code::kMemory, std::string("the host refuses a thread: ") + error.what());
  }
}

Stream::~Stream() {
  if (!process_.here()) {
    Worker::forget(std::move(worker_));
    // Its mutex may be locked for ever.
    new std::shared_ptr<State>(std::move(state_));
    return;
  }
  {
    const std::lock_guard lock(state_->mutex);
    state_->ending = true;
  }
  state_->changed.notify_all();
  worker_.join();
}

void Stream::queue(std::function<void()> job) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->jobs.push_back(std::move(job));
  }
  state_->changed.notify_all();
}

bool Stream::idle() const {
  const std::lock_guard lock(state_->mutex);
  return state_->jobs.empty() && !state_->busy;
}

}  // namespace fxload::host
