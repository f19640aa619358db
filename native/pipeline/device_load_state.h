#pragma once

#include <deque>

#include "base/wakeup.h"
#include "pipeline/batches.h"
#include "pipeline/copy_queue.h"
#include "pipeline/device_load.h"
#include "pipeline/digest.h"
#include "pipeline/lanes.h"

namespace fxload {

// What the threads of a device load share, and what they do: fill slots (device_load_state.cpp) and
// empty them (device_load_copier.cpp). Owned by all of them, so that it outlives a load whose
// deadline has passed.
struct DeviceLoad::State {
  static constexpr size_t kNoSlot = SIZE_MAX;

  struct Journey {  // of one batch
    size_t slot = kNoSlot;
    size_t reads_left = 0;
    size_t hashes_left = 0;
    size_t next_window = 0;  // the first window, by number, that it was not copied to
    bool copying = false;

    // What has been copied; and what will have been once the copy in flight is done. `to` is a
    // destination: all of the batch below it is where it belongs. `all`: no window is to come.
    struct Copied {
      uint64_t to = 0;
      bool all = false;
    };
    Copied copied;
    Copied after;
  };

  struct Move {
    uint64_t ticket = 0;
    std::vector<CopyPiece> pieces;
    std::shared_ptr<void> owner;
    std::optional<StreamHandle> after;
  };

  std::vector<std::shared_ptr<File>> files;
  std::shared_ptr<PinnedRing> ring;
  DeviceLoadOptions options;
  uint64_t space_bytes = 0;
  uint64_t file_bytes = 0;
  std::vector<Chunk> chunks;
  std::vector<Batch> batches;
  std::vector<size_t> batch_of_chunk;
  std::vector<FileDigest> file_digests;
  std::unique_ptr<Lanes> lanes;
  std::unique_ptr<CopyQueue> copies;  // the copier's, from its start to its end
  std::vector<StreamHandle> streams;
  TimePoint started = Clock::now();

  Wakeup wakeup;
  // Guarded by wakeup.mutex.
  size_t next = 0;   // first batch that is not being read
  size_t front = 0;  // batches below are on the device
  std::vector<Journey> journeys;
  std::vector<size_t> free_slots;
  size_t slots = 0;                     // of the ring that are in use here
  std::vector<size_t> arrived;          // batches in the ring, with bytes that are not yet copied
  std::deque<Window> windows;           // placed, and not yet filled
  size_t filled_windows = 0;            // the number of the first of them
  std::vector<StreamHandle> unordered;  // what copies into them have to wait for, and do not yet
  uint64_t known_to = 0;                // every window that begins below is placed
  std::deque<size_t> to_hash;
  size_t hashing = 0;
  size_t hashed = 0;
  std::deque<Move> moves;
  std::vector<Move> moving;
  uint64_t next_ticket = 1;
  size_t reading = 0;
  size_t copying = 0;
  bool calling = true;     // the copier is in a call that is no copy; its first selects the device
  int device_threads = 0;  // that have the device selected and are not through; one that ends
                           // before it has been counted takes it below 0 until then
  bool stopping = false;
  Status failure;
  DeviceLoadStats stats;
  TimePoint last_progress = Clock::now();
  TimePoint last_tick = Clock::now();
  std::vector<std::shared_ptr<void>> released;

  bool ended() const { return stopping || !failure.ok(); }
  bool moved(uint64_t ticket) const;
  uint64_t watermark() const;
  size_t windows_for(size_t batch) const;
  void tick();
  void fail(Status status);
  void feed();
  void read_done(size_t chunk, Status status);
  void leave_slot(size_t batch);
  void advance();
  void hash(std::unique_lock<std::mutex>& lock);
  void work();

  std::vector<CopyPiece> pieces_of(size_t batch, size_t windows_end) const;
  Status order_windows(std::unique_lock<std::mutex>& lock);
  bool copyable(size_t batch) const;
  bool copy_next(std::unique_lock<std::mutex>& lock);
  bool move_next(std::unique_lock<std::mutex>& lock);
  void collect(std::unique_lock<std::mutex>& lock, bool* progress);
  bool drained(std::unique_lock<std::mutex>& lock);
  void copy_thread();
  bool wants_slots() const;
  void grow_ring();
  Status stall_status() const;
};

}  // namespace fxload
