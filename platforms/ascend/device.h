#pragma once

#include <atomic>
#include <memory>

#include "device/device.h"
#include "device/own_process.h"
#include "platforms/ascend/runtime.h"

namespace fxload::ascend {

// An Ascend device.
class AscendDevice : public Device {
 public:
  AscendDevice(std::shared_ptr<const Runtime> runtime, int index, DeviceInfo info);

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
  // What an EventHandle points to. ACL does not say what an event is that was never recorded.
  struct Event {
    abi::Event event = nullptr;
    std::atomic<bool> recorded{false};
  };

  Result<std::byte*> allocated(const char* function, int status, void* memory, size_t size) const;
  Status check_aligned(const CopyPiece& piece, CopyKind kind) const;
  // False where this runtime has no such call for these devices.
  Result<bool> copy_at_once(std::span<const CopyPiece> pieces, CopyKind kind, StreamHandle stream);

  const std::shared_ptr<const Runtime> runtime_;
  const Table& table_;
  const int index_;
  const DeviceInfo info_;
  const DeviceTraits traits_;
  const OwnProcess process_;
  std::atomic<bool> copies_batches_;
};

}  // namespace fxload::ascend
