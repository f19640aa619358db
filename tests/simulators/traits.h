#pragma once

#include <cstdint>

namespace fxsim {

// The runtime's own numbers for what goes wrong.
struct Codes {
  int invalid_value;
  int out_of_memory;
  int not_initialized;  // also: used again in a forked child
  int no_device;
  int invalid_device;
  int no_context;  // the thread has selected no device
  int bad_stream;
  int bad_event;
  int not_ready;
  int already_registered;
  int not_registered;
  int timed_out;
  int misaligned;
};

// How one runtime differs from another. Each export layer defines its own.
struct Traits {
  const char* name;
  bool implicit_device;        // a thread that has selected no device uses device 0
  bool selecting_opens;        // selecting a device opens a context on it at once
  bool secret_host_memory;     // host memory of its own allocator refuses direct reads
  bool registers_whole_pages;  // registered memory has to start on a page
  bool goes_on_after_failure;  // a stream runs what lies behind a copy that failed, unless told not
                               // to
  int64_t copy_align;          // bytes; where both ends of a copy across the link have to start
  Codes codes;
};

extern const Traits kTraits;

}  // namespace fxsim

#define FXSIM_EXPORT extern "C" __attribute__((visibility("default")))
