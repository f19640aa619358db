#pragma once

// What fxload uses of the CUDA runtime (libcudart), declared by hand.
// Sources and remarks: README.md beside this file; tests/platforms/test_abi.py compares every line
// with the vendor's own headers.

#include <cstddef>

namespace fxload::cuda::abi {

// Enumerations are passed as int.
using Status = int;
using Stream = void*;
using Event = void*;

constexpr Status kSuccess = 0;
constexpr Status kOutOfMemory = 2;
constexpr Status kInsufficientDriver = 35;
constexpr Status kNoDevice = 100;
constexpr Status kNotReady = 600;

constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventDefault = 0;
constexpr unsigned kHostAllocDefault = 0;
constexpr unsigned kHostRegisterDefault = 0;
constexpr unsigned kWaitDefault = 0;

// The structure of device properties grows with every version; its name comes first in all.
constexpr size_t kPropertiesBytes = 4096;
constexpr size_t kPropertiesNameBytes = 256;

using GetDeviceCount = Status(int* count);
using SetDevice = Status(int device);
using GetErrorString = const char*(Status status);
using GetLastError = Status();

using Malloc = Status(void** memory, size_t size);
using Free = Status(void* memory);
using MemGetInfo = Status(size_t* free, size_t* total);
using HostAlloc = Status(void** memory, size_t size, unsigned flags);
using HostFree = Status(void* memory);
using HostRegister = Status(void* memory, size_t size, unsigned flags);
using HostUnregister = Status(void* memory);

using StreamCreateWithFlags = Status(Stream* stream, unsigned flags);
using StreamDestroy = Status(Stream stream);
using StreamQuery = Status(Stream stream);
using StreamWaitEvent = Status(Stream stream, Event event, unsigned flags);

using EventCreateWithFlags = Status(Event* event, unsigned flags);
using EventDestroy = Status(Event event);
using EventRecord = Status(Event event, Stream stream);
using EventQuery = Status(Event event);
using EventElapsedTime = Status(float* milliseconds, Event begin, Event end);

using MemcpyAsync = Status(void* to, const void* from, size_t size, int kind, Stream stream);

using RuntimeGetVersion = Status(int* version);
using DeviceGetPCIBusId = Status(char* bus, int length, int device);
using GetDeviceProperties = Status(void* properties, int device);

}  // namespace fxload::cuda::abi
