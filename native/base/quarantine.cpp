#include "base/quarantine.h"

#include <pthread.h>

namespace fxload {

Worker::Worker(const std::string& name, std::function<void()> body)
    : finished_(std::make_shared<std::atomic<bool>>(false)) {
  thread_ = std::thread([finished = finished_, run = std::move(body)]() mutable {
    run();
    // Release what the body owns before anybody is told that it is done.
    run = nullptr;
    finished->store(true, std::memory_order_release);
  });
  ::pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
}

Quarantine::~Quarantine() {
  reap();
  for (Worker& worker : workers_) worker.abandon();
}

void Quarantine::adopt(Worker worker) {
  const std::lock_guard lock(mutex_);
  workers_.push_back(std::move(worker));
}

void Quarantine::settle(std::vector<Worker>& workers, bool through) {
  for (Worker& worker : workers) {
    if (through) {
      worker.join();
    } else {
      adopt(std::move(worker));
    }
  }
  workers.clear();
}

size_t Quarantine::reap() {
  const std::lock_guard lock(mutex_);
  for (auto it = workers_.begin(); it != workers_.end();) {
    if (it->finished()) {
      it->join();
      it = workers_.erase(it);
    } else {
      ++it;
    }
  }
  return workers_.size();
}

}  // namespace fxload
