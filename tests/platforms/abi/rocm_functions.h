// Included after either set of declarations of HIP. C++ overloads two of its functions with
// templates.

#include "lowered.h"
#include "platforms/rocm/abi.h"

namespace abi = fxload::rocm::abi;

using MallocOverload = hipError_t(void**, size_t);
using HostMallocOverload = hipError_t(void**, size_t, unsigned);
SAME_FUNCTION(abi::Malloc, *abi_test::overload<MallocOverload>(hipMalloc));
SAME_FUNCTION(abi::HostAlloc, *abi_test::overload<HostMallocOverload>(hipHostMalloc));

SAME_FUNCTION(abi::GetDeviceCount, hipGetDeviceCount);
SAME_FUNCTION(abi::SetDevice, hipSetDevice);
SAME_FUNCTION(abi::GetErrorString, hipGetErrorString);
SAME_FUNCTION(abi::GetLastError, hipGetLastError);
SAME_FUNCTION(abi::Free, hipFree);
SAME_FUNCTION(abi::MemGetInfo, hipMemGetInfo);
SAME_FUNCTION(abi::HostFree, hipHostFree);
SAME_FUNCTION(abi::HostRegister, hipHostRegister);
SAME_FUNCTION(abi::HostUnregister, hipHostUnregister);
SAME_FUNCTION(abi::StreamCreateWithFlags, hipStreamCreateWithFlags);
SAME_FUNCTION(abi::StreamDestroy, hipStreamDestroy);
SAME_FUNCTION(abi::StreamQuery, hipStreamQuery);
SAME_FUNCTION(abi::StreamWaitEvent, hipStreamWaitEvent);
SAME_FUNCTION(abi::EventCreateWithFlags, hipEventCreateWithFlags);
SAME_FUNCTION(abi::EventDestroy, hipEventDestroy);
SAME_FUNCTION(abi::EventRecord, hipEventRecord);
SAME_FUNCTION(abi::EventQuery, hipEventQuery);
SAME_FUNCTION(abi::EventElapsedTime, hipEventElapsedTime);
SAME_FUNCTION(abi::MemcpyAsync, hipMemcpyAsync);
SAME_FUNCTION(abi::RuntimeGetVersion, hipRuntimeGetVersion);
SAME_FUNCTION(abi::DeviceGetPCIBusId, hipDeviceGetPCIBusId);
SAME_FUNCTION(abi::DeviceGetName, hipDeviceGetName);
