#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace fxsim {

enum class Kind : int {
  kHostToHost = 0,
  kHostToDevice = 1,
  kDeviceToHost = 2,
  kDeviceToDevice = 3
};

// How much of something there is, and was at most.
struct Gauge {
  int64_t now = 0;
  int64_t peak = 0;

  void add(int64_t amount) {
    now += amount;
    if (now > peak) peak = now;
  }
};

// What a process asked of the stand-in, for the test to judge. Not thread-safe: the engine's lock
// guards it.
class Ledger {
 public:
  struct Traffic {
    int64_t copies = 0;
    int64_t bytes = 0;
  };

  void violation(std::string text);

  std::map<std::string, int64_t, std::less<>> calls;
  std::array<Traffic, 4> traffic;  // by kind, of copies that have run
  Traffic pageable;                // those of them that had a host end in unregistered memory
  int64_t queued = 0;              // copies that have been asked for and have not run
  int64_t hanging = 0;             // copies that wait to be released
  Gauge device_bytes, host_bytes, registered_bytes;
  Gauge allocations, host_allocations, registrations, streams, events;
  std::map<int, std::set<std::thread::id>> contexts;  // threads that selected a device
  std::vector<std::string> violations;                // the first kKept
  int64_t violation_count = 0;
  bool host_memory_refuses_direct_reads = false;

  // -1 for a name that nothing has. "calls:NAME" and "contexts:DEVICE" count single ones.
  int64_t get(const std::string& name) const;
  std::string json(const char* runtime) const;

 private:
  static constexpr size_t kKept = 100;
};

}  // namespace fxsim
