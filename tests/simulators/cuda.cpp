// libcudart over host memory.
#define FXSIM_NAME(name) cuda##name
#include <cstring>

#include "cuda_like.h"

namespace fxsim {

const Traits kTraits = {
    .name = "cuda",
    .implicit_device = true,
    .selecting_opens = true,
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

namespace {

// Of the structure of properties in version 13; a name comes first.
constexpr size_t kPropertiesBytes = 1008;
constexpr const char* kDeviceName = "Stand-in CUDA device";

}  // namespace

FXSIM_EXPORT int cudaRuntimeGetVersion(int* version) {
  FXSIM_ENTER(RuntimeGetVersion);
  *version = 13000;
  return 0;
}

FXSIM_EXPORT int cudaGetDeviceProperties(void* properties, int device) {
  FXSIM_ENTER(GetDeviceProperties);
  int count = 0;
  if (const int status = engine().device_count(&count)) return noted(status);
  if (device < 0 || device >= count) return noted(fxsim::kTraits.codes.invalid_device);
  std::memset(properties, 0, kPropertiesBytes);
  std::strcpy(static_cast<char*>(properties), kDeviceName);
  return 0;
}

FXSIM_EXPORT int cudaHostAlloc(void** memory, size_t size, unsigned flags) {
  FXSIM_ENTER(HostAlloc);
  static_cast<void>(flags);
  return noted(engine().allocate_host(size, memory));
}

FXSIM_EXPORT int cudaFreeHost(void* memory) {
  FXSIM_ENTER(FreeHost);
  return noted(engine().release_host(function, memory));
}
