// HIP as Debian's headers declare it.

#include <hip/hip_runtime_api.h>

#include "device/device.h"
#include "rocm_functions.h"

using fxload::CopyKind;

SAME_VALUE(abi::kSuccess, hipSuccess);
SAME_VALUE(abi::kOutOfMemory, hipErrorOutOfMemory);
SAME_VALUE(abi::kInsufficientDriver, hipErrorInsufficientDriver);
SAME_VALUE(abi::kNoDevice, hipErrorNoDevice);
SAME_VALUE(abi::kNotReady, hipErrorNotReady);

SAME_VALUE(abi::kStreamNonBlocking, hipStreamNonBlocking);
SAME_VALUE(abi::kEventDefault, hipEventDefault);
SAME_VALUE(abi::kHostAllocDefault, hipHostMallocDefault);
SAME_VALUE(abi::kHostRegisterDefault, hipHostRegisterDefault);
SAME_VALUE(abi::kWaitDefault, 0);

SAME_VALUE(static_cast<int>(CopyKind::kHostToHost), hipMemcpyHostToHost);
SAME_VALUE(static_cast<int>(CopyKind::kHostToDevice), hipMemcpyHostToDevice);
SAME_VALUE(static_cast<int>(CopyKind::kDeviceToHost), hipMemcpyDeviceToHost);
SAME_VALUE(static_cast<int>(CopyKind::kDeviceToDevice), hipMemcpyDeviceToDevice);
