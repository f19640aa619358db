// CUDA as the toolkit's headers declare it.

#include <cuda_runtime_api.h>

#include "device/device.h"
#include "lowered.h"
#include "platforms/cuda/abi.h"

namespace abi = fxload::cuda::abi;
using fxload::CopyKind;

SAME_FUNCTION(abi::GetDeviceCount, cudaGetDeviceCount);
SAME_FUNCTION(abi::SetDevice, cudaSetDevice);
SAME_FUNCTION(abi::GetErrorString, cudaGetErrorString);
SAME_FUNCTION(abi::GetLastError, cudaGetLastError);
SAME_FUNCTION(abi::Malloc, cudaMalloc);
SAME_FUNCTION(abi::Free, cudaFree);
SAME_FUNCTION(abi::MemGetInfo, cudaMemGetInfo);
SAME_FUNCTION(abi::HostAlloc, cudaHostAlloc);
SAME_FUNCTION(abi::HostFree, cudaFreeHost);
SAME_FUNCTION(abi::HostRegister, cudaHostRegister);
SAME_FUNCTION(abi::HostUnregister, cudaHostUnregister);
SAME_FUNCTION(abi::StreamCreateWithFlags, cudaStreamCreateWithFlags);
SAME_FUNCTION(abi::StreamDestroy, cudaStreamDestroy);
SAME_FUNCTION(abi::StreamQuery, cudaStreamQuery);
SAME_FUNCTION(abi::StreamWaitEvent, cudaStreamWaitEvent);
SAME_FUNCTION(abi::EventCreateWithFlags, cudaEventCreateWithFlags);
SAME_FUNCTION(abi::EventDestroy, cudaEventDestroy);
SAME_FUNCTION(abi::EventRecord, cudaEventRecord);
SAME_FUNCTION(abi::EventQuery, cudaEventQuery);
SAME_FUNCTION(abi::EventElapsedTime, cudaEventElapsedTime);
SAME_FUNCTION(abi::MemcpyAsync, cudaMemcpyAsync);
SAME_FUNCTION(abi::RuntimeGetVersion, cudaRuntimeGetVersion);
SAME_FUNCTION(abi::DeviceGetPCIBusId, cudaDeviceGetPCIBusId);
// Also what is bound by another name where the header renames it.
SAME_FUNCTION(abi::GetDeviceProperties, cudaGetDeviceProperties);
static_assert(offsetof(cudaDeviceProp, name) == 0);
static_assert(sizeof(cudaDeviceProp::name) == abi::kPropertiesNameBytes);
static_assert(sizeof(cudaDeviceProp) <= abi::kPropertiesBytes && alignof(cudaDeviceProp) <= 16);

SAME_VALUE(abi::kSuccess, cudaSuccess);
SAME_VALUE(abi::kOutOfMemory, cudaErrorMemoryAllocation);
SAME_VALUE(abi::kInsufficientDriver, cudaErrorInsufficientDriver);
SAME_VALUE(abi::kNoDevice, cudaErrorNoDevice);
SAME_VALUE(abi::kNotReady, cudaErrorNotReady);

SAME_VALUE(abi::kStreamNonBlocking, cudaStreamNonBlocking);
SAME_VALUE(abi::kEventDefault, cudaEventDefault);
SAME_VALUE(abi::kHostAllocDefault, cudaHostAllocDefault);
SAME_VALUE(abi::kHostRegisterDefault, cudaHostRegisterDefault);
SAME_VALUE(abi::kWaitDefault, cudaEventWaitDefault);

SAME_VALUE(static_cast<int>(CopyKind::kHostToHost), cudaMemcpyHostToHost);
SAME_VALUE(static_cast<int>(CopyKind::kHostToDevice), cudaMemcpyHostToDevice);
SAME_VALUE(static_cast<int>(CopyKind::kDeviceToHost), cudaMemcpyDeviceToHost);
SAME_VALUE(static_cast<int>(CopyKind::kDeviceToDevice), cudaMemcpyDeviceToDevice);
