// What torch_npu calls beyond acl.cpp. All else that it links against is a function generated at
// build time that answers 0 (tests/support/simulators.py).
#include <cstdint>
#include <string>

#include "acl_call.h"

namespace {

constexpr int64_t kCores = 20;

// A device's only context, as a handle.
void* context_of(int device) { return reinterpret_cast<void*>(static_cast<intptr_t>(device) + 1); }

}  // namespace

FXSIM_EXPORT int aclrtGetCurrentContext(void** context) {
  FXSIM_ENTER();
  const int device = engine().current();
  if (device < 0) return noted(fxsim::kTraits.codes.no_context);
  *context = context_of(device);
  return 0;
}

FXSIM_EXPORT int aclrtSetCurrentContext(void* context) {
  FXSIM_ENTER();
  const auto device = static_cast<int>(reinterpret_cast<intptr_t>(context) - 1);
  return noted(engine().select(device));
}

// Gives back nothing: what lives goes on.
FXSIM_EXPORT int aclrtResetDevice(int32_t device) {
  FXSIM_ENTER();
  static_cast<void>(device);
  return 0;
}

// How many cores a device has, which torch_npu shows and nothing here uses.
FXSIM_EXPORT int aclGetDeviceCapability(uint32_t device, int what, int64_t* value) {
  FXSIM_ENTER();
  static_cast<void>(device);
  static_cast<void>(what);
  *value = kCores;
  return 0;
}

FXSIM_EXPORT int aclrtGetPrimaryCtxState(int32_t device, uint32_t* flags, int32_t* active) {
  FXSIM_ENTER();
  if (flags != nullptr) *flags = 0;
  *active = engine().get("contexts:" + std::to_string(device)) > 0 ? 1 : 0;
  return 0;
}

FXSIM_EXPORT int aclrtStreamGetId(void* stream, int32_t* id) {
  FXSIM_ENTER();
  *id = static_cast<int32_t>(reinterpret_cast<intptr_t>(stream) >> 4);
  return 0;
}

FXSIM_EXPORT int aclrtQueryEventWaitStatus(void* event, int* status) {
  FXSIM_ENTER();
  const int state = engine().event_status(function, event);
  *status = state == fxsim::kTraits.codes.not_ready ? 1 : 0;
  return noted(state == fxsim::kTraits.codes.not_ready ? 0 : state);
}

// Devices that copy to one another are beyond the stand-in.
FXSIM_EXPORT int aclrtDeviceCanAccessPeer(int32_t* answer, int32_t device, int32_t peer) {
  FXSIM_ENTER();
  static_cast<void>(device);
  static_cast<void>(peer);
  *answer = 0;
  return 0;
}

FXSIM_EXPORT int aclrtGetSysParamOpt(int option, int64_t* value) {
  FXSIM_ENTER();
  static_cast<void>(option);
  *value = 0;
  return 0;
}

// It looks these up by name, insists on them, and is content with success.
#define FXSIM_SUCCEEDS(name) \
  FXSIM_EXPORT int name() { return 0; }

FXSIM_SUCCEEDS(aclrtCtxSetSysParamOpt)
FXSIM_SUCCEEDS(aclrtSetDeviceSatMode)
FXSIM_SUCCEEDS(aclrtSetOpExecuteTimeOut)
FXSIM_SUCCEEDS(aclrtSetSysParamOpt)
FXSIM_SUCCEEDS(aclSetCompileopt)
