#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace fxload::gpu {

// The functions of a runtime whose calls are HIP's, whatever the prefix of their names. Filled at
// run time from a shared library; the last block may be null.
struct Table {
  int (*get_device_count)(int*) = nullptr;
  int (*set_device)(int) = nullptr;
  const char* (*get_error_string)(int) = nullptr;
  // Also forgets it. A runtime remembers the last failure of a thread, and would report ours to
  // whoever asks next in it: torch does, after every kernel.
  int (*get_last_error)() = nullptr;

  int (*malloc)(void**, size_t) = nullptr;
  int (*free)(void*) = nullptr;
  int (*mem_get_info)(size_t*, size_t*) = nullptr;
  int (*host_alloc)(void**, size_t, unsigned) = nullptr;
  int (*host_free)(void*) = nullptr;
  int (*host_register)(void*, size_t, unsigned) = nullptr;
  int (*host_unregister)(void*) = nullptr;

  int (*stream_create)(void**, unsigned) = nullptr;
  int (*stream_destroy)(void*) = nullptr;
  int (*stream_query)(void*) = nullptr;
  int (*stream_wait_event)(void*, void*, unsigned) = nullptr;

  int (*event_create)(void**, unsigned) = nullptr;
  int (*event_destroy)(void*) = nullptr;
  int (*event_record)(void*, void*) = nullptr;
  int (*event_query)(void*) = nullptr;
  int (*event_elapsed_time)(float*, void*, void*) = nullptr;

  int (*memcpy_async)(void*, const void*, size_t, int, void*) = nullptr;

  int (*runtime_get_version)(int*) = nullptr;
  int (*device_get_pci_bus_id)(char*, int, int) = nullptr;
};

// For all flags but those of a stream: events with times, memory that is pinned and nothing else.
constexpr unsigned kNoFlags = 0;

// What differs between the two runtimes beside the names of functions.
struct Dialect {
  std::string platform;                  // "rocm"
  std::string vendor;                    // "ROCm"
  std::string prefix;                    // of its functions: "hip"
  std::string host_alloc = "HostAlloc";  // how it calls the two that differ
  std::string host_free = "HostFree";
  std::span<const int> absent;  // statuses of a machine without a device
  int out_of_memory = 0;
  int not_ready = 0;
  unsigned stream_flags = 0;
  // "7.1.2" from the runtime's number.
  std::string (*version_text)(int) = nullptr;
};

}  // namespace fxload::gpu
