#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace fxload {

// Opaque to everybody but the platform that made them.
using StreamHandle = void*;
using EventHandle = void*;

// The values are those of every runtime.
enum class CopyKind : int {
  kHostToHost = 0,
  kHostToDevice = 1,
  kDeviceToHost = 2,
  kDeviceToDevice = 3,
};

struct CopyPiece {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  size_t length = 0;
};

// What is fixed about a kind of device.
struct DeviceTraits {
  std::string platform;          // "host", "rocm", "cuda" or "ascend"
  std::string torch_type;        // what torch calls it: "cpu", "cuda" or "npu"
  size_t tensor_align = 1;       // bytes; where kernels want a tensor to start
  size_t copy_align = 1;         // bytes; where both ends of an asynchronous copy have to start
  bool pins_allocations = true;  // memory of allocate_pinned() takes direct reads on every version
};

struct MemoryInfo {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
};

struct DeviceInfo {
  std::string name;     // "" where the runtime does not tell
  std::string pci_bus;  // "0000:c1:00.0", or ""
  int numa_node = -1;   // -1: unknown
};

// One accelerator, and all that the core ever asks of it.
//
// Thread-safe. A runtime keeps the current device per thread: every thread calls select() before
// anything else here, and only a thread of the core's own may, since there is no way back that is
// right on every runtime (on CUDA, to select a device that was never used opens it). Failures are
// Code::kDevice with the runtime's own words; out of device memory is Code::kMemory. Never waits,
// except in what the runtime itself makes synchronous.
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  virtual ~Device() = default;

  virtual const DeviceTraits& traits() const = 0;
  virtual int index() const = 0;
  virtual const DeviceInfo& info() const = 0;

  virtual Status select() = 0;

  virtual Result<MemoryInfo> memory() = 0;
  virtual Result<std::byte*> allocate(size_t size) = 0;
  virtual Status release(std::byte* memory) = 0;

  // Memory of the caller's own, page aligned, that copies can then run from asynchronously.
  virtual Status pin(std::span<std::byte> memory) = 0;
  virtual Status unpin(std::byte* memory) = 0;
  virtual Result<std::byte*> allocate_pinned(size_t size) = 0;
  virtual Status release_pinned(std::byte* memory) = 0;

  virtual Result<StreamHandle> create_stream() = 0;
  virtual Status destroy_stream(StreamHandle stream) = 0;
  virtual Result<bool> stream_idle(StreamHandle stream) = 0;
  virtual Status stream_wait(StreamHandle stream, EventHandle event) = 0;

  virtual Result<EventHandle> create_event() = 0;
  virtual Status destroy_event(EventHandle event) = 0;
  virtual Status record(EventHandle event, StreamHandle stream) = 0;
  // Whether all that the stream held when the event was recorded has run. An event that was never
  // recorded is done.
  virtual Result<bool> done(EventHandle event) = 0;
  // Between two events that are done.
  virtual Result<double> elapsed_s(EventHandle begin, EventHandle end) = 0;

  // Queues the copy. Both ends must stay as they are until an event recorded after it is done.
  virtual Status copy(const CopyPiece& piece, CopyKind kind, StreamHandle stream) = 0;
  // Queues them all, in one call where the runtime has one that is worth it.
  virtual Status copy_batch(std::span<const CopyPiece> pieces, CopyKind kind,
                            StreamHandle stream) = 0;
};

// A device runtime in this process.
class Platform {
 public:
  Platform() = default;
  Platform(const Platform&) = delete;
  virtual ~Platform() = default;

  virtual std::string_view name() const = 0;
  // The shared library that serves it, and how it was found: "already loaded", "torch's folder",
  // "toolkit" or "system". Empty for the host.
  virtual const std::string& library() const = 0;
  virtual const std::string& found_by() const = 0;
  virtual std::string version() const = 0;  // "" where the runtime does not tell
  // Touches no device.
  virtual Result<int> device_count() = 0;
  // Fails with kUsage for an index that does not exist, naming those that do.
  virtual Result<std::shared_ptr<Device>> open(int index) = 0;
};

}  // namespace fxload
