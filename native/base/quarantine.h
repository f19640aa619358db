#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fxload {

// A thread together with a flag that it has nothing more to do. The body must own (through shared
// pointers) everything that it touches: the thread may outlive whoever started it.
class Worker {
 public:
  // Throws std::system_error where the host refuses a thread.
  Worker(const std::string& name, std::function<void()> body);
  Worker(Worker&&) = default;
  Worker& operator=(Worker&&) = default;

  bool finished() const { return finished_->load(std::memory_order_acquire); }
  void join() { thread_.join(); }
  // The kernel still holds the thread, and ends it with the process.
  void abandon() { thread_.detach(); }
  // For the threads of a parent, in a forked child: after a fork they exist in the parent alone,
  // and even to detach them would touch memory that the C library has already reused. Leaks the
  // handle.
  static void forget(Worker worker) { new Worker(std::move(worker)); }
  static void forget(std::vector<Worker>& workers) {
    new std::vector<Worker>(std::exchange(workers, {}));
  }

 private:
  std::shared_ptr<std::atomic<bool>> finished_;
  std::thread thread_;
};

// Keeps threads that were still inside a system call when their owner's deadline passed. They own
// the memory that a late completion may write to, so that it is not reused before; this keeper
// joins them once they are through. Thread-safe.
class Quarantine {
 public:
  Quarantine() = default;
  Quarantine(const Quarantine&) = delete;
  // Joins what has finished; a thread that the kernel still holds ends with the process.
  ~Quarantine();

  void adopt(Worker worker);
  // Joins threads that are through, or keeps them all where their owner could not see them through.
  void settle(std::vector<Worker>& workers, bool through);
  // Joins what has finished since; returns how many threads remain.
  size_t reap();

 private:
  std::mutex mutex_;
  std::list<Worker> workers_;
};

}  // namespace fxload
