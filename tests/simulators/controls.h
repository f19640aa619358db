#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "traits.h"

namespace fxsim {

// What a test asks of the stand-in. README.md describes each name; the environment variable of a
// control is FXSIM_ and its name in capitals. Thread-safe.
class Controls {
 public:
  explicit Controls(const Traits& traits);

  using Value = std::atomic<int64_t>;

  Value devices{2};
  Value device_memory{int64_t{64} << 30};
  Value bandwidth{0};
  Value bandwidth_shared{0};
  Value copy_delay_us{0};
  Value jitter_us{0};
  Value seed{1};
  Value hang{0};
  Value hang_after{-1};
  Value refuse_registration{0};
  Value poison{0};
  Value touched_memory{0};
  Value copy_align{1};
  Value copy_align_within{1};
  Value secret_host_memory{0};
  Value no_device_status{0};

  // nullptr for a name that no control has.
  Value* find(std::string_view name);

  // From now on, the `nth` call (1 is the next) of a function answers `status` and does nothing
  // else. "copy" is no function but a copy at the moment it runs.
  void fail(std::string_view function, int64_t nth, int status);
  // The status that this call has to answer with, 0 for none.
  int failure_of(std::string_view function);

 private:
  struct Failure {
    std::string function;
    int64_t calls_left;
    int status;
  };

  void read_failures(std::string_view text);

  std::mutex mutex_;
  std::vector<Failure> failures_;
};

}  // namespace fxsim
