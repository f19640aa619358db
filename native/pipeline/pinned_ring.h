#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/device.h"
#include "memory/ring.h"

namespace fxload {

// Host memory that a device copies from, in slots of one size: on the device's NUMA node, touched,
// and registered with the device's runtime.
//
// Our own mapping is registered, because memory of a runtime's own allocator fails direct reads on
// some; that allocator is the second choice, proven by a real read. Where neither works the ring
// stays unregistered: copies are then slow and synchronous, but right.
//
// It opens segment by segment, up to its size: touching and registering a gibibyte takes as long as
// reading one, and a load should neither wait for that nor pay for slots that it never needs.
// Whoever shares it keeps it alive, copies that outlive their load included. Thread-safe.
class PinnedRing {
 public:
  // Opens the first segment; selects the device for the calling thread. `probe_path`: a file to
  // read from directly, to prove that the memory takes it; "" for none.
  static Result<std::shared_ptr<PinnedRing>> create(std::shared_ptr<Device> device, size_t size,
                                                    size_t slot_bytes,
                                                    const std::string& probe_path);
  PinnedRing(const PinnedRing&) = delete;
  ~PinnedRing();

  // Opens another segment; false when the ring is complete, or when the host or the device has no
  // more to give, which is no error. Needs the device selected.
  bool grow();

  const std::shared_ptr<Device>& device() const { return device_; }
  size_t size() const { return slots_ * slot_bytes_; }
  size_t slot_bytes() const { return slot_bytes_; }
  // Slots that are open: those of lower numbers stay so.
  size_t open_slots() const;
  size_t open_bytes() const { return open_slots() * slot_bytes_; }
  std::byte* slot(size_t index) const;
  // Memory that is there from the start: what an I/O engine may register with the kernel.
  std::span<std::byte> first_segment() const { return segments_.front().bytes; }

  bool pinned() const { return method_ != "none"; }
  const std::string& method() const { return method_; }  // "registered", "runtime" or "none"
  const std::string& reason() const { return reason_; }  // why it is not registered
  int numa_node() const { return numa_node_; }           // where it lies; -1: unknown
  enum class Direct { kNotProbed, kWorks, kRefused };
  Direct direct() const { return direct_; }

 private:
  struct Segment {
    RingMemory mapped;
    std::span<std::byte> bytes;
  };

  PinnedRing(std::shared_ptr<Device> device, size_t slots, size_t slot_bytes);

  Status open_first(const std::string& probe_path);
  Result<Segment> map_segment() const;
  Result<Segment> open_segment() const;
  void close_segment(const Segment& segment) const;
  Direct probe_direct(const std::string& path, std::span<std::byte> memory) const;

  const std::shared_ptr<Device> device_;
  const size_t slots_;
  const size_t slot_bytes_;
  const size_t slots_of_segment_;
  std::string method_ = "none";  // as all below, fixed by the first segment
  std::string reason_;
  int numa_node_ = -1;
  Direct direct_ = Direct::kNotProbed;
  const pid_t owner_pid_ = ::getpid();

  mutable std::mutex mutex_;
  bool complete_ = false;
  // Reserved for all, so that the first does not move. Guarded by mutex_.
  std::vector<Segment> segments_;
};

}  // namespace fxload
