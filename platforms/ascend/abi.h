#pragma once

// What fxload uses of ACL (libascendcl), declared by hand.
// Sources and remarks: README.md beside this file; tests/platforms/test_abi.py compares every line
// with the vendor's own headers.

#include <cstddef>
#include <cstdint>

namespace fxload::ascend::abi {

// Enumerations are passed as int.
using Status = int;
using Stream = void*;
using Event = void*;

constexpr Status kSuccess = 0;
constexpr Status kRepeatInitialize = 100002;
constexpr Status kBadAlloc = 200000;
constexpr Status kFeatureNotSupported = 207000;
constexpr Status kMemoryAllocation = 207001;
constexpr Status kNoDevice = 207004;
constexpr Status kDeviceOutOfMemory = 207018;
constexpr Status kDriverInternalError = 507899;

constexpr int kMallocHugeFirst = 0;
constexpr int kHbmMemory = 1;
constexpr int kHostRegisterMapped = 0;
constexpr uint32_t kHostRegMapped = 0x2;
constexpr uint32_t kHostRegPinned = 0x10000000;

constexpr uint32_t kStreamFastLaunch = 0x1;
constexpr uint32_t kStreamFastSync = 0x2;
constexpr int kStreamComplete = 0;

constexpr uint32_t kEventSync = 0x1;
constexpr uint32_t kEventCaptureStreamProgress = 0x2;
constexpr uint32_t kEventTimeLine = 0x8;
constexpr int kEventComplete = 1;

constexpr int kLocationHost = 0;
constexpr int kLocationDevice = 1;

struct MemLocation {
  uint32_t id;
  int type;
};

struct MemcpyBatchAttr {
  MemLocation to;
  MemLocation from;
  uint8_t reserved[16];
};

using Init = Status(const char* config_path);
using GetRecentErrMsg = const char*();
using GetDeviceCount = Status(uint32_t* count);
using SetDevice = Status(int32_t device);

using Malloc = Status(void** memory, size_t size, int policy);
using Free = Status(void* memory);
using GetMemInfo = Status(int kind, size_t* free, size_t* total);
using MallocHost = Status(void** memory, size_t size);
using FreeHost = Status(void* memory);
using HostRegister = Status(void* memory, uint64_t size, int type, void** device_memory);
using HostRegisterV2 = Status(void* memory, uint64_t size, uint32_t flags);
using HostUnregister = Status(void* memory);

// Otherwise a stream goes on behind a task that has failed.
constexpr uint64_t kStopOnFailure = 1;
using SetStreamFailureMode = Status(Stream stream, uint64_t mode);
using CreateStreamWithConfig = Status(Stream* stream, uint32_t priority, uint32_t flags);
using DestroyStream = Status(Stream stream);
using StreamQuery = Status(Stream stream, int* status);
using StreamWaitEvent = Status(Stream stream, Event event);

using CreateEventExWithFlag = Status(Event* event, uint32_t flags);
using DestroyEvent = Status(Event event);
using RecordEvent = Status(Event event, Stream stream);
using QueryEventStatus = Status(Event event, int* status);
using EventElapsedTime = Status(float* milliseconds, Event begin, Event end);

using MemcpyAsync = Status(void* to, size_t to_size, const void* from, size_t size, int kind,
                           Stream stream);
using MemcpyBatchAsync = Status(void** to, size_t* to_sizes, void** from, size_t* sizes,
                                size_t count, MemcpyBatchAttr* attributes,
                                size_t* attribute_indices, size_t attribute_count, size_t* failed,
                                Stream stream);

using GetVersion = Status(int32_t* major, int32_t* minor, int32_t* patch);
using GetSocName = const char*();
using GetPhyDevIdByLogicDevId = Status(int32_t logical, int32_t* physical);

}  // namespace fxload::ascend::abi
