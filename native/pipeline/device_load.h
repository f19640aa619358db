#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/quarantine.h"
#include "base/status.h"
#include "io/file.h"
#include "pipeline/load.h"
#include "pipeline/pinned_ring.h"

namespace fxload {

struct DeviceLoadOptions {
  uint64_t block_bytes = 512;  // both ends of every copy from the host are multiples of it
  std::string engine = "auto";
  size_t depth = 0;  // 0: chosen
  bool digest = false;
  bool use_page_cache = true;
  double stall_timeout_s = 120;
};

struct DeviceLoadStats : ReadStats {
  uint64_t copied_bytes = 0;
  uint64_t copies = 0;
  uint64_t moved_bytes = 0;
  uint64_t moves = 0;
  double read_s = 0;              // with a read in flight
  double copy_s = 0;              // with a copy in flight
  double overlap_s = 0;           // with both
  double waits_for_window_s = 0;  // what has arrived has nowhere to go, and nothing is copied
  double waits_for_slot_s = 0;    // every slot is taken, and nothing is read
};

// Reads extents of files into a ring of pinned slots, out of order, and copies them to windows of
// device memory as whole blocks, overlapped with the reads.
//
//   read    lanes fill slots, in order of destination, as far ahead as the ring is large; the ring
//           grows while it is what the reads wait for
//   copy    one thread queues each batch that has arrived and whose window is placed, on two
//           streams; a slot is read into again only once the event behind its copy is done
//   land    completed copies advance a watermark; slots are digested beside their copy
//
// wait_past() may be called by one thread at a time; everything else by any. A deadline abandons
// the wait, never the memory: what a read or a copy may still touch (the ring, the windows'
// owners) stays with the threads, and they with the quarantine.
class DeviceLoad {
 public:
  // Selects the device for the calling thread.
  static Result<std::unique_ptr<DeviceLoad>> start(std::vector<std::shared_ptr<File>> files,
                                                   std::span<const Extent> extents,
                                                   uint64_t space_bytes,
                                                   std::shared_ptr<PinnedRing> ring,
                                                   std::shared_ptr<Quarantine> quarantine,
                                                   const DeviceLoadOptions& options);
  DeviceLoad(const DeviceLoad&) = delete;
  ~DeviceLoad();

  // The runtime's handles of the streams that copy.
  std::vector<StreamHandle> streams() const;

  // A range of the destination, in whole blocks, that has got memory. Windows come in order; two
  // neighbours may share one block, which both then hold. It counts as landed with the first of
  // them: nothing that is wanted may lie wholly in it for the second. Copies into it wait for what
  // `after`, a stream of somebody who may still use that memory, holds when the first of them is
  // queued.
  struct Window {
    uint64_t begin = 0;
    uint64_t end = 0;
    std::byte* address = nullptr;
    std::shared_ptr<void> owner;  // kept until nothing writes to the window any more
    std::optional<StreamHandle> after;
  };
  // No later window begins before `next_begin`, which the last one puts behind everything.
  Status place(Window window, uint64_t next_begin);

  // As Load::wait_past: everything planned below the watermark is on the device, as the host has
  // seen, or belongs to no window.
  Load::Wait wait_past(uint64_t end, TimePoint deadline);

  // Queues copies within the device; `owner` keeps both ends, `after` as above. Returns a ticket.
  Result<uint64_t> move(std::vector<CopyPiece> pieces, std::shared_ptr<void> owner,
                        std::optional<StreamHandle> after = {});
  // Whether those copies have run; false at the deadline.
  Result<bool> wait_moved(uint64_t ticket, TimePoint deadline);

  Result<std::vector<std::string>> digests(TimePoint deadline) const;
  DeviceLoadStats stats() const;
  // Owners that are needed no more: for the caller to let go of on a thread of its choice.
  std::vector<std::shared_ptr<void>> take_released();
  // Returns the bytes of the ring that are quarantined.
  uint64_t close(TimePoint deadline);

 private:
  struct State;
  DeviceLoad(std::shared_ptr<State> state, std::shared_ptr<Quarantine> quarantine);
  // Throws std::system_error where the host refuses a thread.
  void start_device_thread(const char* name, void (State::*body)());

  std::shared_ptr<State> state_;
  std::shared_ptr<Quarantine> quarantine_;
  std::vector<Worker> hashers_;
  std::vector<Worker>
      threads_;  // the lanes' and the copier's: the kernel or the device may hold them
  pid_t owner_pid_;
};

}  // namespace fxload
