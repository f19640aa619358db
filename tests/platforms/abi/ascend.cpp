// ACL as the headers in torch_npu's wheel declare it.

#include <acl/acl.h>

#include "device/device.h"
#include "lowered.h"
#include "platforms/ascend/abi.h"

namespace abi = fxload::ascend::abi;
using fxload::CopyKind;

SAME_FUNCTION(abi::Init, aclInit);
SAME_FUNCTION(abi::GetRecentErrMsg, aclGetRecentErrMsg);
SAME_FUNCTION(abi::GetDeviceCount, aclrtGetDeviceCount);
SAME_FUNCTION(abi::SetDevice, aclrtSetDevice);
SAME_FUNCTION(abi::Malloc, aclrtMalloc);
SAME_FUNCTION(abi::Free, aclrtFree);
SAME_FUNCTION(abi::GetMemInfo, aclrtGetMemInfo);
SAME_FUNCTION(abi::MallocHost, aclrtMallocHost);
SAME_FUNCTION(abi::FreeHost, aclrtFreeHost);
SAME_FUNCTION(abi::HostUnregister, aclrtHostUnregister);
SAME_FUNCTION(abi::CreateStreamWithConfig, aclrtCreateStreamWithConfig);
SAME_FUNCTION(abi::DestroyStream, aclrtDestroyStream);
SAME_FUNCTION(abi::StreamQuery, aclrtStreamQuery);
SAME_FUNCTION(abi::StreamWaitEvent, aclrtStreamWaitEvent);
SAME_FUNCTION(abi::CreateEventExWithFlag, aclrtCreateEventExWithFlag);
SAME_FUNCTION(abi::DestroyEvent, aclrtDestroyEvent);
SAME_FUNCTION(abi::RecordEvent, aclrtRecordEvent);
SAME_FUNCTION(abi::QueryEventStatus, aclrtQueryEventStatus);
SAME_FUNCTION(abi::EventElapsedTime, aclrtEventElapsedTime);
SAME_FUNCTION(abi::MemcpyAsync, aclrtMemcpyAsync);
SAME_FUNCTION(abi::HostRegisterV2, aclrtHostRegisterV2);
SAME_FUNCTION(abi::HostRegister, aclrtHostRegister);
SAME_FUNCTION(abi::MemcpyBatchAsync, aclrtMemcpyBatchAsync);
SAME_FUNCTION(abi::GetVersion, aclrtGetVersion);
SAME_FUNCTION(abi::SetStreamFailureMode, aclrtSetStreamFailureMode);
SAME_FUNCTION(abi::GetSocName, aclrtGetSocName);
SAME_FUNCTION(abi::GetPhyDevIdByLogicDevId, aclrtGetPhyDevIdByLogicDevId);

static_assert(sizeof(abi::MemLocation) == sizeof(aclrtMemLocation));
static_assert(offsetof(abi::MemLocation, id) == offsetof(aclrtMemLocation, id));
static_assert(offsetof(abi::MemLocation, type) == offsetof(aclrtMemLocation, type));
static_assert(sizeof(abi::MemcpyBatchAttr) == sizeof(aclrtMemcpyBatchAttr));
static_assert(offsetof(abi::MemcpyBatchAttr, to) == offsetof(aclrtMemcpyBatchAttr, dstLoc));
static_assert(offsetof(abi::MemcpyBatchAttr, from) == offsetof(aclrtMemcpyBatchAttr, srcLoc));

SAME_VALUE(abi::kSuccess, ACL_SUCCESS);
SAME_VALUE(abi::kRepeatInitialize, ACL_ERROR_REPEAT_INITIALIZE);
SAME_VALUE(abi::kBadAlloc, ACL_ERROR_BAD_ALLOC);
SAME_VALUE(abi::kFeatureNotSupported, ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
SAME_VALUE(abi::kMemoryAllocation, ACL_ERROR_RT_MEMORY_ALLOCATION);
SAME_VALUE(abi::kNoDevice, ACL_ERROR_RT_NO_DEVICE);
SAME_VALUE(abi::kDeviceOutOfMemory, ACL_ERROR_RT_DEVICE_OOM);
SAME_VALUE(abi::kDriverInternalError, ACL_ERROR_RT_DRV_INTERNAL_ERROR);

SAME_VALUE(abi::kMallocHugeFirst, ACL_MEM_MALLOC_HUGE_FIRST);
SAME_VALUE(abi::kHbmMemory, ACL_HBM_MEM);
SAME_VALUE(abi::kHostRegisterMapped, ACL_HOST_REGISTER_MAPPED);
SAME_VALUE(abi::kHostRegMapped, ACL_HOST_REG_MAPPED);
SAME_VALUE(abi::kHostRegPinned, ACL_HOST_REG_PINNED);

SAME_VALUE(abi::kStreamFastLaunch, ACL_STREAM_FAST_LAUNCH);
SAME_VALUE(abi::kStreamFastSync, ACL_STREAM_FAST_SYNC);
SAME_VALUE(abi::kStreamComplete, ACL_STREAM_STATUS_COMPLETE);
SAME_VALUE(abi::kEventSync, ACL_EVENT_SYNC);
SAME_VALUE(abi::kEventCaptureStreamProgress, ACL_EVENT_CAPTURE_STREAM_PROGRESS);
SAME_VALUE(abi::kEventTimeLine, ACL_EVENT_TIME_LINE);
SAME_VALUE(abi::kEventComplete, ACL_EVENT_RECORDED_STATUS_COMPLETE);
SAME_VALUE(abi::kLocationHost, ACL_MEM_LOCATION_TYPE_HOST);
SAME_VALUE(abi::kLocationDevice, ACL_MEM_LOCATION_TYPE_DEVICE);

SAME_VALUE(static_cast<int>(CopyKind::kHostToHost), ACL_MEMCPY_HOST_TO_HOST);
SAME_VALUE(static_cast<int>(CopyKind::kHostToDevice), ACL_MEMCPY_HOST_TO_DEVICE);
SAME_VALUE(static_cast<int>(CopyKind::kDeviceToHost), ACL_MEMCPY_DEVICE_TO_HOST);
SAME_VALUE(static_cast<int>(CopyKind::kDeviceToDevice), ACL_MEMCPY_DEVICE_TO_DEVICE);
SAME_VALUE(abi::kStopOnFailure, ACL_STOP_ON_FAILURE);
