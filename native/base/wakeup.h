#pragma once

#include <condition_variable>
#include <mutex>

namespace fxload {

// A mutex and the condition that goes with it, shared by the parts of one pipeline so that any of
// them can wake the others.
struct Wakeup {
  std::mutex mutex;
  std::condition_variable changed;

  void notify() {
    // Taking the mutex keeps a waiter between its check and its wait from missing this.
    {
      const std::lock_guard lock(mutex);
    }
    changed.notify_all();
  }
};

}  // namespace fxload
