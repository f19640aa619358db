#pragma once

#include "platforms/gpu/platform.h"

namespace fxload::gpu {

// A device of ROCm or CUDA.
class GpuDevice : public Device {
 public:
  GpuDevice(std::shared_ptr<const Runtime> runtime, int index, DeviceInfo info);

  const DeviceTraits& traits() const override { return traits_; }
  int index() const override { return index_; }
  const DeviceInfo& info() const override { return info_; }

  Status select() override;

  Result<MemoryInfo> memory() override;
  Result<std::byte*> allocate(size_t size) override;
  Status release(std::byte* memory) override;

  Status pin(std::span<std::byte> memory) override;
  Status unpin(std::byte* memory) override;
  Result<std::byte*> allocate_pinned(size_t size) override;
  Status release_pinned(std::byte* memory) override;

  Result<StreamHandle> create_stream() override;
  Status destroy_stream(StreamHandle stream) override;
  Result<bool> stream_idle(StreamHandle stream) override;
  Status stream_wait(StreamHandle stream, EventHandle event) override;

  Result<EventHandle> create_event() override;
  Status destroy_event(EventHandle event) override;
  Status record(EventHandle event, StreamHandle stream) override;
  Result<bool> done(EventHandle event) override;
  Result<double> elapsed_s(EventHandle begin, EventHandle end) override;

  Status copy(const CopyPiece& piece, CopyKind kind, StreamHandle stream) override;
  Status copy_batch(std::span<const CopyPiece> pieces, CopyKind kind, StreamHandle stream) override;

 private:
  // 0 is true, "not ready" false.
  Result<bool> answer(const char* function, int status) const;
  Result<std::byte*> allocated(const std::string& function, int status, void* memory,
                               size_t size) const;

  const std::shared_ptr<const Runtime> runtime_;
  const Table& table_;
  const int index_;
  const DeviceInfo info_;
  const DeviceTraits traits_;
  const OwnProcess process_;
};

}  // namespace fxload::gpu
