#pragma once

#include "base/status.h"
#include "device/runtime_library.h"
#include "platforms/ascend/abi.h"

namespace fxload::ascend {

// The functions of ACL, filled at run time. The last block may be null.
struct Table {
  abi::Init* init = nullptr;
  abi::GetRecentErrMsg* get_recent_err_msg = nullptr;
  abi::GetDeviceCount* get_device_count = nullptr;
  abi::SetDevice* set_device = nullptr;

  abi::Malloc* malloc = nullptr;
  abi::Free* free = nullptr;
  abi::GetMemInfo* get_mem_info = nullptr;
  abi::MallocHost* malloc_host = nullptr;
  abi::FreeHost* free_host = nullptr;
  abi::HostRegister* host_register = nullptr;
  abi::HostUnregister* host_unregister = nullptr;

  abi::CreateStreamWithConfig* create_stream = nullptr;
  abi::DestroyStream* destroy_stream = nullptr;
  abi::StreamQuery* stream_query = nullptr;
  abi::SetStreamFailureMode* set_stream_failure_mode = nullptr;  // optional
  abi::StreamWaitEvent* stream_wait_event = nullptr;

  abi::CreateEventExWithFlag* create_event = nullptr;
  abi::DestroyEvent* destroy_event = nullptr;
  abi::RecordEvent* record_event = nullptr;
  abi::QueryEventStatus* query_event_status = nullptr;
  abi::EventElapsedTime* event_elapsed_time = nullptr;

  abi::MemcpyAsync* memcpy_async = nullptr;

  abi::HostRegisterV2* host_register_v2 = nullptr;
  abi::MemcpyBatchAsync* memcpy_batch_async = nullptr;
  abi::GetVersion* get_version = nullptr;
  abi::GetSocName* get_soc_name = nullptr;
  abi::GetPhyDevIdByLogicDevId* get_physical_id = nullptr;
};

// An ACL that was found: what its platform and its devices share. Never changes.
struct Runtime {
  RuntimeLibrary library;
  Table table;

  // kDevice, with the runtime's words.
  Status failed(const char* function, int status) const;
  Status check(const char* function, int status) const {
    return status == abi::kSuccess ? Status() : failed(function, status);
  }
};

}  // namespace fxload::ascend
