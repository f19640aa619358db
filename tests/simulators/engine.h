#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "controls.h"
#include "ledger.h"
#include "memory.h"
#include "stream.h"
#include "traits.h"

namespace fxsim {

// A device runtime over host memory; README.md tells its rules. Thread-safe. Every call answers a
// status of the runtime that it stands in for, 0 for success. Lives until the process ends.
class Engine {
 public:
  static Engine& instance();

  Controls& controls() { return controls_; }

  // Counts a call, and answers the status that it has to fail with, or 0.
  int enter(const char* function);

  int device_count(int* count);
  int select(int device);
  // The calling thread's; -1 if it has selected none and the runtime selects none for it.
  int current() const;

  int allocate(size_t size, void** memory);
  int release(const char* function, void* memory);
  int allocate_host(size_t size, void** memory);
  int release_host(const char* function, void* memory);
  int register_host(const char* function, void* memory, size_t size);
  int unregister_host(const char* function, void* memory);
  int memory_info(size_t* free, size_t* total);
  // The device that an address belongs to; -1: registered host memory; -2: unknown memory.
  int owner_of(const void* address);

  int create_stream(void** stream);
  int stop_on_failure(const char* function, void* stream, bool stops);
  // `drain`: waits for what the stream still holds; else that runs all the same.
  int destroy_stream(const char* function, void* stream, bool drain);
  int stream_status(const char* function, void* stream);
  // Negative: no limit.
  int drain(const char* function, void* stream, int64_t timeout_ms = -1);
  int drain_device();
  int stream_wait(const char* function, void* stream, void* event);

  int create_event(void** event, bool timed);
  int destroy_event(const char* function, void* event);
  int record(const char* function, void* event, void* stream);
  int event_status(const char* function, void* event);
  int wait_for(const char* function, void* event);
  int elapsed_ms(const char* function, void* begin, void* end, float* result);

  // `kind` 4 leaves the kind to the addresses. `wait`: return once it has run.
  int copy(const char* function, void* to, const void* from, size_t size, int kind, void* stream,
           bool wait);

  // Fills device memory, at once.
  int fill(const char* function, void* memory, int value, size_t size);

  // For tests: controls, counters, violations.
  int64_t get(const std::string& name);
  bool set(const std::string& name, int64_t value);
  bool wait_until(const std::string& name, int64_t value, int64_t timeout_ms);
  // Copies of this stream wait until it is let go; nullptr lets all go.
  bool hold(void* stream, bool held);
  std::string violation(size_t index);
  std::string report();
  void reset();

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Link = std::pair<int, int>;  // device, kind

  Engine();

  int use_device(int* device);
  int violate(const char* function, const std::string& what, int status);
  int find_stream(const char* function, void* handle, int device, Stream** stream);
  int find_event(const char* function, void* handle, Event** event);
  std::vector<Stream*> all_streams() const;
  int check_copy(Copy& copy, int device);
  int check_device_end(const Copy& copy, const void* end, int device, uint64_t* block);
  int check_host_end(Copy& copy, const void* end, uint64_t* block);
  void note_races(const Copy& copy, const Stream& stream);
  void note_if_in_use(Lock& lock, const char* function, const Block& block);
  void submit(Stream& stream, Operation operation);
  int drain_locked(Lock& lock, Stream& stream, int64_t timeout_ms);

  void serve(Stream& stream);
  void run_copy(Lock& lock, Stream& stream, const Copy& copy, Clock::time_point submitted);
  Clock::time_point reserve(Stream& stream, const Copy& copy, Clock::time_point submitted);
  void hang_if_asked(Lock& lock, const Stream& stream);
  std::string stale(const Copy& copy);

  Controls controls_;
  std::mutex mutex_;
  std::condition_variable changed_;  // an operation has run, a control has changed
  Ledger ledger_;
  BlockTable device_memory_, host_memory_;      // host: registered, or of the own allocator
  std::unordered_set<void*> streams_, events_;  // also destroyed ones
  std::map<int, Stream*> default_streams_;      // by device
  std::map<Link, Clock::time_point> link_free_at_;
  TouchedPages pages_;           // of the devices
  std::map<int, int64_t> used_;  // device memory by device
  std::unordered_set<void*> own_host_memory_;
  uint64_t copies_submitted_ = 0;
  int64_t copies_started_ = 0;
};

std::string hex(const void* address);

}  // namespace fxsim
