#pragma once

#include <map>
#include <mutex>

#include "device/device.h"
#include "device/own_process.h"
#include "platforms/host/stream.h"

namespace fxload::host {

// The device that is the host itself. Owns its streams, events and memory: what is left when it
// goes away is released then.
class HostDevice : public Device {
 public:
  HostDevice();
  ~HostDevice() override;

  const DeviceTraits& traits() const override { return traits_; }
  int index() const override { return 0; }
  const DeviceInfo& info() const override { return info_; }

  Status select() override { return process_.check("host"); }

  Result<MemoryInfo> memory() override;
  Result<std::byte*> allocate(size_t size) override;
  Status release(std::byte* memory) override;

  Status pin(std::span<std::byte> memory) override;
  Status unpin(std::byte* memory) override;
  Result<std::byte*> allocate_pinned(size_t size) override { return allocate(size); }
  Status release_pinned(std::byte* memory) override { return release(memory); }

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
  Result<std::shared_ptr<Stream>> find_stream(StreamHandle stream);
  Result<std::shared_ptr<Event>> find_event(EventHandle event);

  const DeviceTraits traits_;
  const DeviceInfo info_;
  const OwnProcess process_;
  std::mutex mutex_;
  std::map<StreamHandle, std::shared_ptr<Stream>> streams_;  // guarded by mutex_, as all below
  std::map<EventHandle, std::shared_ptr<Event>> events_;
  std::map<std::byte*, size_t> allocations_;
  std::map<std::byte*, size_t> pinned_;
};

}  // namespace fxload::host
