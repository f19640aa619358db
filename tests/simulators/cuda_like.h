// The functions that HIP and CUDA share but for their prefix: FXSIM_NAME(Malloc) is hipMalloc in
// one and cudaMalloc in the other. Included by hip.cpp and cuda.cpp only.
#pragma once

#include <cstdint>
#include <cstdio>
#include <utility>

#include "engine.h"

namespace {

fxsim::Engine& engine() { return fxsim::Engine::instance(); }

// Set by what fails in this thread, cleared by GetLastError.
thread_local int last_error = 0;

int noted(int status) {
  if (status != 0 && status != fxsim::kTraits.codes.not_ready) last_error = status;
  return status;
}

// Streams that are handles by number: the default one, and the default one of a thread.
void* stream_of(void* stream) {
  return reinterpret_cast<uintptr_t>(stream) <= 2 ? nullptr : stream;
}

const char* error_text(int status) {
  switch (status) {
    case 0:
      return "no error";
    case 1:
      return "invalid argument";
    case 2:
      return "out of memory";
    case 3:
      return "initialization error";
    case 35:
      return "the driver is too old for the runtime";
    case 100:
      return "no capable device is detected";
    case 101:
      return "invalid device ordinal";
    case 400:
      return "invalid resource handle";
    case 600:
      return "device not ready";
    case 700:
      return "an illegal memory access was encountered";
    case 712:
      return "resource already mapped";
    case 713:
      return "pointer does not correspond to a registered memory region";
    case 719:
      return "unspecified launch failure";
    default:
      return "unknown error";
  }
}

}  // namespace

#define FXSIM_TEXT_(name) #name
#define FXSIM_TEXT(name) FXSIM_TEXT_(name)
// Counts the call, and leaves the function where it has to fail.
#define FXSIM_ENTER(name)                                                         \
  [[maybe_unused]] constexpr const char* function = FXSIM_TEXT(FXSIM_NAME(name)); \
  if (const int entered = engine().enter(function)) return noted(entered)

FXSIM_EXPORT const char* FXSIM_NAME(GetErrorString)(int status) { return error_text(status); }

FXSIM_EXPORT int FXSIM_NAME(GetLastError)() { return std::exchange(last_error, 0); }

FXSIM_EXPORT int FXSIM_NAME(PeekAtLastError)() { return last_error; }

FXSIM_EXPORT int FXSIM_NAME(GetDeviceCount)(int* count) {
  FXSIM_ENTER(GetDeviceCount);
  return noted(engine().device_count(count));
}

FXSIM_EXPORT int FXSIM_NAME(SetDevice)(int device) {
  FXSIM_ENTER(SetDevice);
  return noted(engine().select(device));
}

FXSIM_EXPORT int FXSIM_NAME(GetDevice)(int* device) {
  FXSIM_ENTER(GetDevice);
  *device = engine().current();
  return 0;
}

FXSIM_EXPORT int FXSIM_NAME(DeviceSynchronize)() {
  FXSIM_ENTER(DeviceSynchronize);
  return noted(engine().drain_device());
}

FXSIM_EXPORT int FXSIM_NAME(DeviceGetPCIBusId)(char* text, int size, int device) {
  FXSIM_ENTER(DeviceGetPCIBusId);
  int count = 0;
  if (const int status = engine().device_count(&count)) return noted(status);
  if (device < 0 || device >= count) return noted(fxsim::kTraits.codes.invalid_device);
  if (size < 13) return noted(fxsim::kTraits.codes.invalid_value);
  std::snprintf(text, static_cast<size_t>(size), "0000:%02x:00.0", 0xc1 + device);
  return 0;
}

FXSIM_EXPORT int FXSIM_NAME(MemGetInfo)(size_t* free, size_t* total) {
  FXSIM_ENTER(MemGetInfo);
  return noted(engine().memory_info(free, total));
}

FXSIM_EXPORT int FXSIM_NAME(Malloc)(void** memory, size_t size) {
  FXSIM_ENTER(Malloc);
  return noted(engine().allocate(size, memory));
}

FXSIM_EXPORT int FXSIM_NAME(Free)(void* memory) {
  FXSIM_ENTER(Free);
  return noted(engine().release(function, memory));
}

FXSIM_EXPORT int FXSIM_NAME(HostRegister)(void* memory, size_t size, unsigned flags) {
  FXSIM_ENTER(HostRegister);
  static_cast<void>(flags);
  return noted(engine().register_host(function, memory, size));
}

FXSIM_EXPORT int FXSIM_NAME(HostUnregister)(void* memory) {
  FXSIM_ENTER(HostUnregister);
  return noted(engine().unregister_host(function, memory));
}

FXSIM_EXPORT int FXSIM_NAME(StreamCreateWithFlags)(void** stream, unsigned flags) {
  FXSIM_ENTER(StreamCreateWithFlags);
  static_cast<void>(flags);
  return noted(engine().create_stream(stream));
}

FXSIM_EXPORT int FXSIM_NAME(StreamDestroy)(void* stream) {
  FXSIM_ENTER(StreamDestroy);
  return noted(engine().destroy_stream(function, stream_of(stream), false));
}

FXSIM_EXPORT int FXSIM_NAME(StreamSynchronize)(void* stream) {
  FXSIM_ENTER(StreamSynchronize);
  return noted(engine().drain(function, stream_of(stream)));
}

FXSIM_EXPORT int FXSIM_NAME(StreamQuery)(void* stream) {
  FXSIM_ENTER(StreamQuery);
  return noted(engine().stream_status(function, stream_of(stream)));
}

FXSIM_EXPORT int FXSIM_NAME(StreamWaitEvent)(void* stream, void* event, unsigned flags) {
  FXSIM_ENTER(StreamWaitEvent);
  static_cast<void>(flags);
  return noted(engine().stream_wait(function, stream_of(stream), event));
}

FXSIM_EXPORT int FXSIM_NAME(EventCreateWithFlags)(void** event, unsigned flags) {
  FXSIM_ENTER(EventCreateWithFlags);
  constexpr unsigned kDisableTiming = 2;
  return noted(engine().create_event(event, (flags & kDisableTiming) == 0));
}

FXSIM_EXPORT int FXSIM_NAME(EventDestroy)(void* event) {
  FXSIM_ENTER(EventDestroy);
  return noted(engine().destroy_event(function, event));
}

FXSIM_EXPORT int FXSIM_NAME(EventRecord)(void* event, void* stream) {
  FXSIM_ENTER(EventRecord);
  return noted(engine().record(function, event, stream_of(stream)));
}

FXSIM_EXPORT int FXSIM_NAME(EventQuery)(void* event) {
  FXSIM_ENTER(EventQuery);
  return noted(engine().event_status(function, event));
}

FXSIM_EXPORT int FXSIM_NAME(EventSynchronize)(void* event) {
  FXSIM_ENTER(EventSynchronize);
  return noted(engine().wait_for(function, event));
}

FXSIM_EXPORT int FXSIM_NAME(EventElapsedTime)(float* milliseconds, void* begin, void* end) {
  FXSIM_ENTER(EventElapsedTime);
  return noted(engine().elapsed_ms(function, begin, end, milliseconds));
}

FXSIM_EXPORT int FXSIM_NAME(Memcpy)(void* to, const void* from, size_t size, int kind) {
  FXSIM_ENTER(Memcpy);
  return noted(engine().copy(function, to, from, size, kind, nullptr, true));
}

FXSIM_EXPORT int FXSIM_NAME(MemcpyAsync)(void* to, const void* from, size_t size, int kind,
                                         void* stream) {
  FXSIM_ENTER(MemcpyAsync);
  return noted(engine().copy(function, to, from, size, kind, stream_of(stream), false));
}
