#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <variant>

#include "ledger.h"

namespace fxsim {

using Clock = std::chrono::steady_clock;

struct Stream;

// Of each stream, how many operations are sure to be over.
using Order = std::map<const Stream*, uint64_t>;

// One recording of an event: an event that is recorded again has a new one, and who waits for the
// former is not held up by it.
struct Record {
  bool done = false;
  int error = 0;  // of the stream, when it got here
  Clock::time_point time;
  Order order;  // what is over once this is done
};

struct Copy {
  std::string function;  // that asked for it
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  size_t size = 0;
  Kind kind = Kind::kHostToHost;
  uint64_t number = 0;                    // in the order in which copies were asked for
  uint64_t sequence = 0;                  // among the operations of its stream
  uint64_t to_block = 0, from_block = 0;  // ids of device memory or registrations; 0: neither
  bool pageable = false;
  bool checked = false;
  uint64_t sum = 0;  // of the source when it was asked for, if checked
};
struct Signal {
  std::shared_ptr<Record> record;
};
struct Await {
  std::shared_ptr<Record> record;
};

struct Operation {
  std::variant<Copy, Signal, Await> what;
  Clock::time_point submitted;
};

// What a stream holds is served in order by a thread of its own, which ends once the stream is
// destroyed and empty. The object stays, so that a stale handle is always known as one. All
// members are guarded by the engine's lock.
struct Stream {
  int device = 0;
  bool held = false;    // its copies wait until it is not
  bool served = false;  // has its thread
  bool destroyed = false;
  bool running = false;  // the first operation is a copy that moves bytes now
  bool stops = false;    // for good, at a copy that fails; otherwise it is as if that had run
  int error = 0;         // of the copy at which it stopped
  uint64_t submitted = 0;
  uint64_t finished = 0;
  Clock::time_point free_at;  // when the link was through with the last operation
  std::deque<Operation> queue;
  Order order;  // what is over before what is asked for next
};

struct Event {
  int device = 0;
  bool timed = false;  // tells when it was done
  bool destroyed = false;
  std::shared_ptr<Record> latest;  // nullptr: never recorded
};

}  // namespace fxsim
