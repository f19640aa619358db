// libamdhip64 over host memory.
#define FXSIM_NAME(name) hip##name
#include "cuda_like.h"

namespace fxsim {

const Traits kTraits = {
    .name = "hip",
    .implicit_device = true,
    .selecting_opens = false,
    .secret_host_memory = false,
    .registers_whole_pages = false,
    .goes_on_after_failure = false,
    .copy_align = 1,
    .codes = {.invalid_value = 1,
              .out_of_memory = 2,
              .not_initialized = 3,
              .no_device = 100,
              .invalid_device = 101,
              .no_context = 201,
              .bad_stream = 400,
              .bad_event = 400,
              .not_ready = 600,
              .already_registered = 712,
              .not_registered = 713,
              .timed_out = 909,
              .misaligned = 1},
};

}  // namespace fxsim

FXSIM_EXPORT int hipRuntimeGetVersion(int* version) {
  FXSIM_ENTER(RuntimeGetVersion);
  *version = 70253211;  // 7.2
  return 0;
}

FXSIM_EXPORT int hipDeviceGetName(char* name, int size, int device) {
  FXSIM_ENTER(DeviceGetName);
  int count = 0;
  if (const int status = engine().device_count(&count)) return noted(status);
  if (device < 0 || device >= count) return noted(fxsim::kTraits.codes.invalid_device);
  std::snprintf(name, static_cast<size_t>(size), "Stand-in HIP device");
  return 0;
}

FXSIM_EXPORT int hipHostMalloc(void** memory, size_t size, unsigned flags) {
  FXSIM_ENTER(HostMalloc);
  static_cast<void>(flags);
  return noted(engine().allocate_host(size, memory));
}

FXSIM_EXPORT int hipHostFree(void* memory) {
  FXSIM_ENTER(HostFree);
  return noted(engine().release_host(function, memory));
}

// Attributes tell where the ends lie, which the addresses do as well.
FXSIM_EXPORT int hipMemcpyBatchAsync(void** to, void** from, size_t* sizes, size_t count,
                                     void* attributes, size_t* attribute_indices,
                                     size_t attribute_count, size_t* failed, void* stream) {
  FXSIM_ENTER(MemcpyBatchAsync);
  if (attributes == nullptr || attribute_indices == nullptr || attribute_count == 0 ||
      attribute_indices[0] != 0 || stream_of(stream) == nullptr) {
    return noted(fxsim::kTraits.codes.invalid_value);
  }
  for (size_t i = 0; i < count; i++) {
    const int status =
        engine().copy(function, to[i], from[i], sizes[i], 4, stream_of(stream), false);
    if (status == 0) continue;
    if (failed != nullptr) *failed = i;
    return noted(status);
  }
  return 0;
}
