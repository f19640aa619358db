// libascendcl over host memory: the functions that copy. acl_torch.cpp has the others that
// torch_npu calls with effect.
#include <atomic>
#include <cstdint>

#include "acl_call.h"

namespace fxsim {

const Traits kTraits = {
    .name = "acl",
    .implicit_device = false,
    .selecting_opens = true,
    .secret_host_memory = true,
    .registers_whole_pages = true,
    .goes_on_after_failure = true,
    .copy_align = 64,
    .codes = {.invalid_value = 107000,
              .out_of_memory = 207001,
              .not_initialized = 100001,
              .no_device = 507899,
              .invalid_device = 107001,
              .no_context = 107002,
              .bad_stream = 107003,
              .bad_event = 107017,
              .not_ready = -1,  // a state of its own, never a status
              .already_registered = 107000,
              .not_registered = 107000,
              .timed_out = 107020,
              .misaligned = 107008},
};

}  // namespace fxsim

namespace {

// Of an event's flags. The others tell what else it is for, which torch_npu does not heed.
constexpr uint32_t kTimeLine = 8;

std::atomic<bool> initialized{false};

const char* error_text(int status) {
  switch (status) {
    case 100001:
      return "EZ0001: ACL is not initialized";
    case 107000:
      return "EE1001: invalid argument";
    case 107001:
      return "EE1002: invalid device id";
    case 107002:
      return "EE1003: the current context is null";
    case 107003:
      return "EE1004: the stream is not in the current context";
    case 107008:
      return "EE1005: memory address unaligned";
    case 107017:
      return "EE1006: invalid handle";
    case 207001:
      return "EL0004: memory allocation error";
    case 507899:
      return "EL0005: driver error: no device";
    default:
      return "EE9999: inner error";
  }
}

// Ready or not is an answer of its own here, told in `status`.
int answer(int state, int ready, int not_ready, int* status) {
  *status = state == fxsim::kTraits.codes.not_ready ? not_ready : ready;
  return noted(state == fxsim::kTraits.codes.not_ready ? 0 : state);
}

int copy_bounded(const char* function, void* to, size_t room, const void* from, size_t size,
                 int kind, void* stream, bool wait) {
  if (size > room) return fxsim::kTraits.codes.invalid_value;
  return engine().copy(function, to, from, size, kind, stream, wait);
}

}  // namespace

FXSIM_EXPORT int aclInit(const char* config) {
  FXSIM_ENTER();
  static_cast<void>(config);
  return initialized.exchange(true) ? 100002 : 0;
}

FXSIM_EXPORT int aclFinalize() {
  FXSIM_ENTER();
  initialized = false;
  return 0;
}

FXSIM_EXPORT const char* aclGetRecentErrMsg() {
  return fxsim::last_error == 0 ? nullptr : error_text(fxsim::last_error);
}

FXSIM_EXPORT int aclrtGetVersion(int32_t* major, int32_t* minor, int32_t* patch) {
  FXSIM_ENTER();
  *major = 1;
  *minor = 15;
  *patch = 0;
  return 0;
}

FXSIM_EXPORT const char* aclrtGetSocName() {
  return engine().current() < 0 && engine().get("devices") == 0 ? nullptr : "Ascend910B3";
}

FXSIM_EXPORT int aclrtGetDeviceCount(uint32_t* count) {
  FXSIM_ENTER();
  int devices = 0;
  static_cast<void>(engine().device_count(&devices));
  *count = static_cast<uint32_t>(devices);
  const auto status = static_cast<int>(engine().get("no_device_status"));
  return devices > 0 ? 0 : noted(status);
}

// Nothing hides a device here, so both numbers are the same.
FXSIM_EXPORT int aclrtGetPhyDevIdByLogicDevId(int32_t logical, int32_t* physical) {
  FXSIM_ENTER();
  if (logical < 0 || logical >= engine().get("devices")) {
    return noted(fxsim::kTraits.codes.invalid_device);
  }
  *physical = logical;
  return 0;
}

FXSIM_EXPORT int aclrtSetDevice(int32_t device) {
  FXSIM_ENTER();
  if (!initialized) return noted(fxsim::kTraits.codes.not_initialized);
  return noted(engine().select(device));
}

FXSIM_EXPORT int aclrtGetDevice(int32_t* device) {
  FXSIM_ENTER();
  *device = engine().current();
  return *device < 0 ? noted(fxsim::kTraits.codes.no_context) : 0;
}

FXSIM_EXPORT int aclrtSynchronizeDevice() {
  FXSIM_ENTER();
  return noted(engine().drain_device());
}

FXSIM_EXPORT int aclrtGetMemInfo(int kind, size_t* free, size_t* total) {
  FXSIM_ENTER();
  static_cast<void>(kind);
  return noted(engine().memory_info(free, total));
}

FXSIM_EXPORT int aclrtMalloc(void** memory, size_t size, int policy) {
  FXSIM_ENTER();
  static_cast<void>(policy);
  return noted(engine().allocate(size, memory));
}

FXSIM_EXPORT int aclrtMallocAlign32(void** memory, size_t size, int policy) {
  FXSIM_ENTER();
  static_cast<void>(policy);
  return noted(engine().allocate(size, memory));
}

FXSIM_EXPORT int aclrtFree(void* memory) {
  FXSIM_ENTER();
  return noted(engine().release(function, memory));
}

FXSIM_EXPORT int aclrtMallocHost(void** memory, size_t size) {
  FXSIM_ENTER();
  return noted(engine().allocate_host(size, memory));
}

FXSIM_EXPORT int aclrtMallocHostWithCfg(void** memory, uint64_t size, void* config) {
  FXSIM_ENTER();
  static_cast<void>(config);
  return noted(engine().allocate_host(size, memory));
}

FXSIM_EXPORT int aclrtFreeHost(void* memory) {
  FXSIM_ENTER();
  return noted(engine().release_host(function, memory));
}

FXSIM_EXPORT int aclrtHostRegister(void* memory, uint64_t size, int type, void** mapped) {
  FXSIM_ENTER();
  static_cast<void>(type);
  *mapped = memory;
  return noted(engine().register_host(function, memory, size));
}

FXSIM_EXPORT int aclrtHostRegisterV2(void* memory, uint64_t size, uint32_t flags) {
  FXSIM_ENTER();
  static_cast<void>(flags);
  return noted(engine().register_host(function, memory, size));
}

FXSIM_EXPORT int aclrtHostUnregister(void* memory) {
  FXSIM_ENTER();
  return noted(engine().unregister_host(function, memory));
}

FXSIM_EXPORT int aclrtCreateStream(void** stream) {
  FXSIM_ENTER();
  return noted(engine().create_stream(stream));
}

FXSIM_EXPORT int aclrtCreateStreamWithConfig(void** stream, uint32_t priority, uint32_t flags) {
  FXSIM_ENTER();
  static_cast<void>(priority);
  static_cast<void>(flags);
  return noted(engine().create_stream(stream));
}

FXSIM_EXPORT int aclrtSetStreamFailureMode(void* stream, uint64_t mode) {
  FXSIM_ENTER();
  return noted(engine().stop_on_failure(function, stream, mode == 1));
}

FXSIM_EXPORT int aclrtDestroyStream(void* stream) {
  FXSIM_ENTER();
  return noted(engine().destroy_stream(function, stream, true));
}

FXSIM_EXPORT int aclrtDestroyStreamForce(void* stream) {
  FXSIM_ENTER();
  return noted(engine().destroy_stream(function, stream, false));
}

FXSIM_EXPORT int aclrtSynchronizeStream(void* stream) {
  FXSIM_ENTER();
  return noted(engine().drain(function, stream));
}

FXSIM_EXPORT int aclrtSynchronizeStreamWithTimeout(void* stream, int32_t timeout_ms) {
  FXSIM_ENTER();
  return noted(engine().drain(function, stream, timeout_ms));
}

FXSIM_EXPORT int aclrtStreamQuery(void* stream, int* status) {
  FXSIM_ENTER();
  return answer(engine().stream_status(function, stream), 0, 1, status);
}

FXSIM_EXPORT int aclrtStreamWaitEvent(void* stream, void* event) {
  FXSIM_ENTER();
  return noted(engine().stream_wait(function, stream, event));
}

FXSIM_EXPORT int aclrtCreateEvent(void** event) {
  FXSIM_ENTER();
  return noted(engine().create_event(event, true));
}

FXSIM_EXPORT int aclrtCreateEventWithFlag(void** event, uint32_t flags) {
  FXSIM_ENTER();
  return noted(engine().create_event(event, (flags & kTimeLine) != 0));
}

FXSIM_EXPORT int aclrtCreateEventExWithFlag(void** event, uint32_t flags) {
  FXSIM_ENTER();
  return noted(engine().create_event(event, (flags & kTimeLine) != 0));
}

FXSIM_EXPORT int aclrtDestroyEvent(void* event) {
  FXSIM_ENTER();
  return noted(engine().destroy_event(function, event));
}

FXSIM_EXPORT int aclrtRecordEvent(void* event, void* stream) {
  FXSIM_ENTER();
  return noted(engine().record(function, event, stream));
}

FXSIM_EXPORT int aclrtQueryEventStatus(void* event, int* status) {
  FXSIM_ENTER();
  return answer(engine().event_status(function, event), 1, 0, status);
}

FXSIM_EXPORT int aclrtSynchronizeEvent(void* event) {
  FXSIM_ENTER();
  return noted(engine().wait_for(function, event));
}

FXSIM_EXPORT int aclrtEventElapsedTime(float* milliseconds, void* begin, void* end) {
  FXSIM_ENTER();
  const int status = engine().elapsed_ms(function, begin, end, milliseconds);
  return noted(status == fxsim::kTraits.codes.not_ready ? 107006 : status);
}

FXSIM_EXPORT int aclrtMemcpy(void* to, size_t room, const void* from, size_t size, int kind) {
  FXSIM_ENTER();
  return noted(copy_bounded(function, to, room, from, size, kind, nullptr, true));
}

FXSIM_EXPORT int aclrtMemcpyAsync(void* to, size_t room, const void* from, size_t size, int kind,
                                  void* stream) {
  FXSIM_ENTER();
  return noted(copy_bounded(function, to, room, from, size, kind, stream, false));
}

// Attributes tell where the ends lie, which the addresses do as well.
FXSIM_EXPORT int aclrtMemcpyBatchAsync(void** to, size_t* rooms, void** from, size_t* sizes,
                                       size_t count, void* attributes, size_t* indices,
                                       size_t attribute_count, size_t* failed, void* stream) {
  FXSIM_ENTER();
  if (attributes == nullptr || indices == nullptr || attribute_count == 0 || indices[0] != 0) {
    return noted(fxsim::kTraits.codes.invalid_value);
  }
  for (size_t i = 0; i < count; i++) {
    const int status = copy_bounded(function, to[i], rooms[i], from[i], sizes[i], 4, stream, false);
    if (status == 0) continue;
    if (failed != nullptr) *failed = i;
    return noted(status);
  }
  return 0;
}

FXSIM_EXPORT int aclrtMemset(void* memory, size_t room, int32_t value, size_t size) {
  FXSIM_ENTER();
  if (size > room) return noted(fxsim::kTraits.codes.invalid_value);
  return noted(engine().fill(function, memory, value, size));
}
