#include "platforms/gpu/device.h"

#include "device/checks.h"

namespace fxload::gpu {

namespace {

// Vectorised loads of kernels, and the granularity of torch's own allocator.
constexpr size_t kTensorAlign = 256;

}  // namespace

GpuDevice::GpuDevice(std::shared_ptr<const Runtime> runtime, int index, DeviceInfo info)
    : runtime_(std::move(runtime)),
      table_(runtime_->table),
      index_(index),
      info_(std::move(info)),
      // torch calls ROCm's devices cuda, too.
      traits_{runtime_->dialect.platform, "cuda", kTensorAlign, 1, true} {}

Status GpuDevice::select() {
  if (Status status = process_.check(traits_.platform); !status.ok()) return status;
  return runtime_->check("SetDevice", table_.set_device(index_));
}

Result<MemoryInfo> GpuDevice::memory() {
  MemoryInfo info;
  const int status = table_.mem_get_info(&info.free_bytes, &info.total_bytes);
  if (status != 0) return runtime_->failed("MemGetInfo", status);
  return info;
}

Result<std::byte*> GpuDevice::allocated(const std::string& function, int status, void* memory,
                                        size_t size) const {
  if (status == 0) return static_cast<std::byte*>(memory);
  Status failure = runtime_->failed(function, status);
  if (status != runtime_->dialect.out_of_memory) return failure;
  return no_memory(traits_.platform, index_, size, failure);
}

Result<std::byte*> GpuDevice::allocate(size_t size) {
  if (Status status = check_size(size); !status.ok()) return status;
  void* memory = nullptr;
  const int status = table_.malloc(&memory, size);
  return allocated("Malloc", status, memory, size);
}

Status GpuDevice::release(std::byte* memory) {
  if (!process_.here()) return {};
  return runtime_->check("Free", table_.free(memory));
}

Status GpuDevice::pin(std::span<std::byte> memory) {
  if (Status status = check_pages(memory); !status.ok()) return status;
  return runtime_->check("HostRegister",
                         table_.host_register(memory.data(), memory.size(), kNoFlags));
}

Status GpuDevice::unpin(std::byte* memory) {
  if (!process_.here()) return {};
  return runtime_->check("HostUnregister", table_.host_unregister(memory));
}

Result<std::byte*> GpuDevice::allocate_pinned(size_t size) {
  if (Status status = check_size(size); !status.ok()) return status;
  void* memory = nullptr;
  const int status = table_.host_alloc(&memory, size, kNoFlags);
  return allocated(runtime_->dialect.host_alloc, status, memory, size);
}

Status GpuDevice::release_pinned(std::byte* memory) {
  if (!process_.here()) return {};
  const int status = table_.host_free(memory);
  return status == 0 ? Status() : runtime_->failed(runtime_->dialect.host_free, status);
}

Result<StreamHandle> GpuDevice::create_stream() {
  StreamHandle stream = nullptr;
  const int status = table_.stream_create(&stream, runtime_->dialect.stream_flags);
  if (status != 0) return runtime_->failed("StreamCreateWithFlags", status);
  return stream;
}

Status GpuDevice::destroy_stream(StreamHandle stream) {
  if (!process_.here()) return {};
  return runtime_->check("StreamDestroy", table_.stream_destroy(stream));
}

Result<bool> GpuDevice::answer(const char* function, int status) const {
  if (status == 0) return true;
  if (status != runtime_->dialect.not_ready) return runtime_->failed(function, status);
  (void)table_.get_last_error();
  return false;
}

Result<bool> GpuDevice::stream_idle(StreamHandle stream) {
  return answer("StreamQuery", table_.stream_query(stream));
}

Status GpuDevice::stream_wait(StreamHandle stream, EventHandle event) {
  return runtime_->check("StreamWaitEvent", table_.stream_wait_event(stream, event, kNoFlags));
}

Result<EventHandle> GpuDevice::create_event() {
  EventHandle event = nullptr;
  const int status = table_.event_create(&event, kNoFlags);
  if (status != 0) return runtime_->failed("EventCreateWithFlags", status);
  return event;
}

Status GpuDevice::destroy_event(EventHandle event) {
  if (!process_.here()) return {};
  return runtime_->check("EventDestroy", table_.event_destroy(event));
}

Status GpuDevice::record(EventHandle event, StreamHandle stream) {
  return runtime_->check("EventRecord", table_.event_record(event, stream));
}

Result<bool> GpuDevice::done(EventHandle event) {
  return answer("EventQuery", table_.event_query(event));
}

Result<double> GpuDevice::elapsed_s(EventHandle begin, EventHandle end) {
  float milliseconds = 0;
  const int status = table_.event_elapsed_time(&milliseconds, begin, end);
  if (status != 0) return runtime_->failed("EventElapsedTime", status);
  return static_cast<double>(milliseconds) / 1e3;
}

Status GpuDevice::copy(const CopyPiece& piece, CopyKind kind, StreamHandle stream) {
  if (piece.length == 0) return {};
  return runtime_->check("MemcpyAsync", table_.memcpy_async(piece.to, piece.from, piece.length,
                                                            static_cast<int>(kind), stream));
}

// One by one. HIP's own batch is such a loop (ROCm 7.2), and CUDA's has other parameters in 13 than
// in 12, under the same name.
Status GpuDevice::copy_batch(std::span<const CopyPiece> pieces, CopyKind kind,
                             StreamHandle stream) {
  for (const CopyPiece& piece : pieces) {
    if (Status status = copy(piece, kind, stream); !status.ok()) return status;
  }
  return {};
}

}  // namespace fxload::gpu
