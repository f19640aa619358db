#include "platforms/ascend/device.h"

#include "base/align.h"
#include "device/checks.h"

namespace fxload::ascend {

namespace {

// What torch_npu's allocator starts blocks on, and kernels count on.
constexpr size_t kTensorAlign = 512;
// Older CANN refuses copies that start elsewhere, newer does not: never rely on it.
constexpr size_t kCopyAlign = 64;

constexpr uint32_t kNormalPriority = 0;
// As torch_npu makes its own: tasks of a copy are launched, and waited for, without a detour.
constexpr uint32_t kStreamFlags = abi::kStreamFastLaunch | abi::kStreamFastSync;
constexpr uint32_t kEventFlags =
    abi::kEventSync | abi::kEventCaptureStreamProgress | abi::kEventTimeLine;

}  // namespace

AscendDevice::AscendDevice(std::shared_ptr<const Runtime> runtime, int index, DeviceInfo info)
    : runtime_(std::move(runtime)),
      table_(runtime_->table),
      index_(index),
      info_(std::move(info)),
      traits_{"ascend", "npu", kTensorAlign, kCopyAlign, false},
      copies_batches_(table_.memcpy_batch_async != nullptr) {}

Status AscendDevice::select() {
  if (Status status = process_.check("ascend"); !status.ok()) return status;
  return runtime_->check("aclrtSetDevice", table_.set_device(index_));
}

Result<MemoryInfo> AscendDevice::memory() {
  MemoryInfo info;
  const int status = table_.get_mem_info(abi::kHbmMemory, &info.free_bytes, &info.total_bytes);
  if (status != abi::kSuccess) return runtime_->failed("aclrtGetMemInfo", status);
  return info;
}

Result<std::byte*> AscendDevice::allocated(const char* function, int status, void* memory,
                                           size_t size) const {
  if (status == abi::kSuccess) return static_cast<std::byte*>(memory);
  Status failure = runtime_->failed(function, status);
  const bool out_of_memory = status == abi::kMemoryAllocation || status == abi::kBadAlloc ||
                             status == abi::kDeviceOutOfMemory;
  if (!out_of_memory) return failure;
  return no_memory("ascend", index_, size, failure);
}

Result<std::byte*> AscendDevice::allocate(size_t size) {
  if (Status status = check_size(size); !status.ok()) return status;
  void* memory = nullptr;
  const int status = table_.malloc(&memory, size, abi::kMallocHugeFirst);
  return allocated("aclrtMalloc", status, memory, size);
}

Status AscendDevice::release(std::byte* memory) {
  if (!process_.here()) return {};
  return runtime_->check("aclrtFree", table_.free(memory));
}

Status AscendDevice::pin(std::span<std::byte> memory) {
  if (Status status = check_pages(memory); !status.ok()) return status;
  if (table_.host_register_v2 == nullptr) {
    void* mapped = nullptr;  // where the device sees it, which no copy needs
    return runtime_->check(
        "aclrtHostRegister",
        table_.host_register(memory.data(), memory.size(), abi::kHostRegisterMapped, &mapped));
  }
  int status = table_.host_register_v2(memory.data(), memory.size(), abi::kHostRegPinned);
  if (status == abi::kSuccess) return {};
  // Before it could pin alone, it pinned what it mapped.
  Status failure = runtime_->failed("aclrtHostRegisterV2", status);
  status = table_.host_register_v2(memory.data(), memory.size(), abi::kHostRegMapped);
  return status == abi::kSuccess ? Status() : failure;
}

Status AscendDevice::unpin(std::byte* memory) {
  if (!process_.here()) return {};
  return runtime_->check("aclrtHostUnregister", table_.host_unregister(memory));
}

Result<std::byte*> AscendDevice::allocate_pinned(size_t size) {
  if (Status status = check_size(size); !status.ok()) return status;
  void* memory = nullptr;
  const int status = table_.malloc_host(&memory, size);
  return allocated("aclrtMallocHost", status, memory, size);
}

Status AscendDevice::release_pinned(std::byte* memory) {
  if (!process_.here()) return {};
  return runtime_->check("aclrtFreeHost", table_.free_host(memory));
}

Result<StreamHandle> AscendDevice::create_stream() {
  StreamHandle stream = nullptr;
  const int status = table_.create_stream(&stream, kNormalPriority, kStreamFlags);
  if (status != abi::kSuccess) return runtime_->failed("aclrtCreateStreamWithConfig", status);
  // By default a stream goes on, and the event behind a copy that was lost completes.
  if (table_.set_stream_failure_mode != nullptr) {
    const int set = table_.set_stream_failure_mode(stream, abi::kStopOnFailure);
    if (set != abi::kSuccess) {
      Status failure = runtime_->failed("aclrtSetStreamFailureMode", set);
      (void)table_.destroy_stream(stream);
      return failure;
    }
  }
  return stream;
}

Status AscendDevice::destroy_stream(StreamHandle stream) {
  if (!process_.here()) return {};
  return runtime_->check("aclrtDestroyStream", table_.destroy_stream(stream));
}

Result<bool> AscendDevice::stream_idle(StreamHandle stream) {
  int state = -1;
  const int status = table_.stream_query(stream, &state);
  if (status != abi::kSuccess) return runtime_->failed("aclrtStreamQuery", status);
  return state == abi::kStreamComplete;
}

Status AscendDevice::stream_wait(StreamHandle stream, EventHandle event) {
  const auto* awaited = static_cast<Event*>(event);
  if (!awaited->recorded) return {};
  return runtime_->check("aclrtStreamWaitEvent", table_.stream_wait_event(stream, awaited->event));
}

Result<EventHandle> AscendDevice::create_event() {
  auto event = std::make_unique<Event>();
  const int status = table_.create_event(&event->event, kEventFlags);
  if (status != abi::kSuccess) return runtime_->failed("aclrtCreateEventExWithFlag", status);
  return EventHandle{event.release()};
}

Status AscendDevice::destroy_event(EventHandle event) {
  if (!process_.here()) return {};
  const std::unique_ptr<Event> owned(static_cast<Event*>(event));
  return runtime_->check("aclrtDestroyEvent", table_.destroy_event(owned->event));
}

Status AscendDevice::record(EventHandle event, StreamHandle stream) {
  auto* recorded = static_cast<Event*>(event);
  const int status = table_.record_event(recorded->event, stream);
  if (status != abi::kSuccess) return runtime_->failed("aclrtRecordEvent", status);
  recorded->recorded = true;
  return {};
}

Result<bool> AscendDevice::done(EventHandle event) {
  const auto* asked = static_cast<Event*>(event);
  if (!asked->recorded) return true;
  int state = -1;
  const int status = table_.query_event_status(asked->event, &state);
  if (status != abi::kSuccess) return runtime_->failed("aclrtQueryEventStatus", status);
  return state == abi::kEventComplete;
}

Result<double> AscendDevice::elapsed_s(EventHandle begin, EventHandle end) {
  float milliseconds = 0;
  const int status = table_.event_elapsed_time(&milliseconds, static_cast<Event*>(begin)->event,
                                               static_cast<Event*>(end)->event);
  if (status != abi::kSuccess) return runtime_->failed("aclrtEventElapsedTime", status);
  return static_cast<double>(milliseconds) / 1e3;
}

// A copy within the device may start anywhere: that is how tensors are realigned, and torch_npu
// itself copies slices so.
Status AscendDevice::check_aligned(const CopyPiece& piece, CopyKind kind) const {
  if (kind == CopyKind::kDeviceToDevice) return {};
  if (is_aligned(reinterpret_cast<uintptr_t>(piece.to), kCopyAlign) &&
      is_aligned(reinterpret_cast<uintptr_t>(piece.from), kCopyAlign)) {
    return {};
  }
  return Status::error(Code::kUsage, "both ends of a copy must start on a multiple of " +
                                         std::to_string(kCopyAlign) + " bytes on ascend devices");
}

Status AscendDevice::copy(const CopyPiece& piece, CopyKind kind, StreamHandle stream) {
  if (piece.length == 0) return {};
  if (Status status = check_aligned(piece, kind); !status.ok()) return status;
  return runtime_->check("aclrtMemcpyAsync",
                         table_.memcpy_async(piece.to, piece.length, piece.from, piece.length,
                                             static_cast<int>(kind), stream));
}

Result<bool> AscendDevice::copy_at_once(std::span<const CopyPiece> pieces, CopyKind kind,
                                        StreamHandle stream) {
  std::vector<void*> to;
  std::vector<void*> from;
  std::vector<size_t> sizes;
  for (const CopyPiece& piece : pieces) {
    if (piece.length == 0) continue;
    to.push_back(piece.to);
    from.push_back(const_cast<std::byte*>(piece.from));
    sizes.push_back(piece.length);
  }
  if (sizes.empty()) return true;
  const abi::MemLocation host{0, abi::kLocationHost};
  const abi::MemLocation device{static_cast<uint32_t>(index_), abi::kLocationDevice};
  abi::MemcpyBatchAttr attributes{};
  attributes.to = kind == CopyKind::kHostToDevice ? device : host;
  attributes.from = kind == CopyKind::kHostToDevice ? host : device;
  size_t first = 0;
  size_t failed = SIZE_MAX;
  const int status =
      table_.memcpy_batch_async(to.data(), sizes.data(), from.data(), sizes.data(), sizes.size(),
                                &attributes, &first, 1, &failed, stream);
  if (status == abi::kFeatureNotSupported) return false;
  if (status != abi::kSuccess) return runtime_->failed("aclrtMemcpyBatchAsync", status);
  return true;
}

// In one call between host and device, where the runtime has it: it takes no copies within the
// device.
Status AscendDevice::copy_batch(std::span<const CopyPiece> pieces, CopyKind kind,
                                StreamHandle stream) {
  for (const CopyPiece& piece : pieces) {
    if (piece.length == 0) continue;
    if (Status status = check_aligned(piece, kind); !status.ok()) return status;
  }
  const bool crosses = kind == CopyKind::kHostToDevice || kind == CopyKind::kDeviceToHost;
  if (crosses && copies_batches_) {
    Result<bool> copied = copy_at_once(pieces, kind, stream);
    if (!copied.ok()) return copied.status();
    if (*copied) return {};
    copies_batches_ = false;
  }
  for (const CopyPiece& piece : pieces) {
    if (Status status = copy(piece, kind, stream); !status.ok()) return status;
  }
  return {};
}

}  // namespace fxload::ascend
