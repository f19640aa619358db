#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "device/device.h"
#include "memory/ring.h"

namespace fxload {

// Host memory that a device copies from, in slots of one size: on the device's NUMA node, touched,
// and registered with the device's runtime.
//
// Our own mapping is registered, because memory of a runtime's own allocator fails direct reads on
// some; that allocator is the second choice, proven by a real read. Where neither works the ring
// stays unregistered: copies are then slow and synchronous, but right. Immutable; whoever shares
// it keeps it alive, copies that outlive their load included.
class PinnedRing {
 public:
  // `probe_path`: a file to read from directly, to prove that the memory takes it; "" for none.
  static Result<std::shared_ptr<PinnedRing>> create(std::shared_ptr<Device> device, size_t size,
                                                    size_t slot_bytes,
                                                    const std::string& probe_path);
  PinnedRing(const PinnedRing&) = delete;
  ~PinnedRing();

  const std::shared_ptr<Device>& device() const { return device_; }
  std::span<std::byte> bytes() const { return bytes_; }
  size_t slots() const { return bytes_.size() / slot_bytes_; }
  size_t slot_bytes() const { return slot_bytes_; }
  std::byte* slot(size_t index) const { return bytes_.data() + index * slot_bytes_; }

  bool pinned() const { return method_ != "none"; }
  const std::string& method() const { return method_; }  // "registered", "runtime" or "none"
  const std::string& reason() const { return reason_; }  // why it is not registered
  int numa_node() const { return numa_node_; }           // where it lies; -1: unknown
  enum class Direct { kNotProbed, kWorks, kRefused };
  Direct direct() const { return direct_; }

 private:
  PinnedRing(std::shared_ptr<Device> device, size_t slot_bytes)
      : device_(std::move(device)), slot_bytes_(slot_bytes) {}

  void pin(const std::string& probe_path);
  Direct probe_direct(const std::string& path, std::span<std::byte> memory) const;

  std::shared_ptr<Device> device_;
  const size_t slot_bytes_;
  RingMemory mapped_;
  std::byte* of_runtime_ = nullptr;
  std::span<std::byte> bytes_;
  std::string method_ = "none";
  std::string reason_;
  int numa_node_ = -1;
  Direct direct_ = Direct::kNotProbed;
  const pid_t owner_pid_ = ::getpid();
};

}  // namespace fxload
