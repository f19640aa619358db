#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "device/device.h"

namespace fxload {

// Copies in flight on a device's streams, each followed by an event. Two streams, because two
// engines is what devices have for one direction; more only share them.
//
// Belongs to one thread, which has selected the device; destroy it there once idle() is true.
class CopyQueue {
 public:
  // Needs the device selected.
  static Result<std::unique_ptr<CopyQueue>> create(std::shared_ptr<Device> device, size_t streams);
  CopyQueue(const CopyQueue&) = delete;
  ~CopyQueue();

  std::span<const StreamHandle> streams() const { return streams_; }
  size_t in_flight() const { return in_flight_.size(); }

  // Queues the pieces, as one copy, on the stream whose turn it is. After a failure some of them
  // may run all the same: idle() tells when nothing does.
  Status submit(uint64_t tag, std::span<const CopyPiece> pieces, CopyKind kind);
  // Lets copies that are submitted from now on wait for what the stream, somebody else's, holds
  // now.
  Status order_after(StreamHandle stream);
  // Appends the tags of copies that have run since. A failed question leaves the rest for the next.
  Status reap(std::vector<uint64_t>* done);
  // Whether no stream has anything left to run.
  Result<bool> idle();

 private:
  struct Copy {
    uint64_t tag = 0;
    EventHandle event = nullptr;
    size_t stream = 0;
    uint64_t number = 0;
  };
  // An event that our streams have been told to wait for. It is used again only once each of them
  // has run a copy that was submitted behind the wait.
  struct Order {
    EventHandle event = nullptr;
    uint64_t number = 0;  // of the first copy behind it
  };
  explicit CopyQueue(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  Result<EventHandle> take_event();
  void retire_orders();

  std::shared_ptr<Device> device_;
  std::vector<StreamHandle> streams_;
  uint64_t next_number_ = 1;
  std::vector<uint64_t> last_run_;  // of each stream: the number of the latest copy that has run
  std::vector<Order> orders_;
  std::vector<Copy> in_flight_;
  std::vector<EventHandle> free_events_;
};

}  // namespace fxload
