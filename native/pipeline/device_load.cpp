#include "pipeline/device_load.h"

#include <unistd.h>

#include <algorithm>
#include <deque>
#include <set>
#include <system_error>
#include <thread>

#include "base/align.h"
#include "base/wakeup.h"
#include "pipeline/batches.h"
#include "pipeline/copy_queue.h"
#include "pipeline/digest.h"
#include "pipeline/lanes.h"

namespace fxload {
namespace {

constexpr size_t kStreams = 2;
constexpr size_t kMostHashers = 4;
// Tags of moves, apart from those of batches.
constexpr uint64_t kMoveTag = uint64_t{1} << 63;
// How often events are asked for: a slot takes longer than that on any link there is.
constexpr auto kShortPoll = std::chrono::microseconds(100);
constexpr auto kLongPoll = std::chrono::milliseconds(1);
constexpr auto kFailedPoll = std::chrono::milliseconds(50);
constexpr int kShortPolls = 50;
constexpr size_t kNoSlot = SIZE_MAX;

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

}  // namespace

struct DeviceLoad::State {
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
  std::set<uint64_t> unfinished_moves;
  uint64_t next_ticket = 1;
  size_t reading = 0;
  size_t copying = 0;
  bool calling = true;  // the copier is in a call that is no copy; its first selects the device
  bool copier_done = false;
  bool grower_done = false;
  bool stopping = false;
  Status failure;
  DeviceLoadStats stats;
  TimePoint last_progress = Clock::now();
  TimePoint last_tick = Clock::now();
  std::vector<std::shared_ptr<void>> released;

  bool ended() const { return stopping || !failure.ok(); }
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
  bool copy_next(std::unique_lock<std::mutex>& lock);
  bool move_next(std::unique_lock<std::mutex>& lock);
  void collect(std::unique_lock<std::mutex>& lock, bool* progress);
  bool drained(std::unique_lock<std::mutex>& lock);
  void copy_thread();
  bool wants_slots() const;
  void grow_ring();
  Status stall_status() const;
};

uint64_t DeviceLoad::State::watermark() const {
  if (front == batches.size()) return space_bytes;
  return std::max(batches[front].begin, journeys[front].copied.to);
}

// The windows, by number, that a batch may have bytes for end here. A block that two windows share
// is copied to each when it gets its memory, so that neither waits for the other's.
size_t DeviceLoad::State::windows_for(size_t batch) const {
  size_t end = std::max(journeys[batch].next_window, filled_windows);
  while (end - filled_windows < windows.size() &&
         windows[end - filled_windows].begin < batches[batch].end) {
    ++end;
  }
  return end;
}

// Accounts for the time since the last change of what is in flight.
void DeviceLoad::State::tick() {
  const TimePoint now = Clock::now();
  const double span_s = seconds_between(last_tick, now);
  last_tick = now;
  if (reading > 0) stats.read_s += span_s;
  if (copying > 0) stats.copy_s += span_s;
  if (reading > 0 && copying > 0) stats.overlap_s += span_s;
  if (copying == 0 && !arrived.empty()) stats.waits_for_window_s += span_s;
  if (reading == 0 && next < batches.size() && free_slots.empty()) stats.waits_for_slot_s += span_s;
}

void DeviceLoad::State::fail(Status status) {
  if (failure.ok() && !stopping) failure = std::move(status);
  wakeup.changed.notify_all();
}

void DeviceLoad::State::feed() {
  while (next < batches.size() && !free_slots.empty() && !ended()) {
    const size_t index = next++;
    const Batch& batch = batches[index];
    Journey& journey = journeys[index];
    journey.slot = free_slots.back();
    free_slots.pop_back();
    journey.reads_left = batch.chunk_count;
    journey.hashes_left = options.digest ? batch.chunk_count : 0;
    for (size_t i = batch.first_chunk; i < batch.first_chunk + batch.chunk_count; ++i) {
      ++reading;
      lanes->push(*files[chunks[i].file], chunks[i],
                  ring->slot(journey.slot) + (chunks[i].destination - batch.base), i);
    }
  }
}

void DeviceLoad::State::read_done(size_t index, Status status) {
  const Chunk& chunk = chunks[index];
  const std::lock_guard lock(wakeup.mutex);
  tick();
  --reading;
  last_progress = last_tick;
  if (!status.ok()) {
    fail(std::move(status));
    return;
  }
  ++stats.requests;
  stats.landed_bytes += chunk.length;
  (chunk.route == Route::kDirect   ? stats.direct_bytes
   : chunk.route == Route::kCached ? stats.cached_bytes
                                   : stats.buffered_bytes) += chunk.length;
  if (stats.first_byte_s == 0) stats.first_byte_s = seconds_between(started, last_tick);
  if (options.digest) to_hash.push_back(index);
  const size_t batch = batch_of_chunk[index];
  if (--journeys[batch].reads_left == 0) arrived.push_back(batch);
  wakeup.changed.notify_all();
}

void DeviceLoad::State::leave_slot(size_t index) {
  Journey& journey = journeys[index];
  if (journey.slot == kNoSlot || journey.hashes_left > 0 || journey.reads_left > 0 ||
      !journey.copied.all) {
    return;
  }
  free_slots.push_back(std::exchange(journey.slot, kNoSlot));
  feed();
}

void DeviceLoad::State::advance() {
  while (front < batches.size() && journeys[front].copied.all) ++front;
  const uint64_t landed = watermark();
  while (!windows.empty() && windows.front().end <= landed) {
    released.push_back(std::move(windows.front().owner));
    windows.pop_front();
    ++filled_windows;
  }
}

void DeviceLoad::State::hash(std::unique_lock<std::mutex>& lock) {
  const size_t index = to_hash.front();
  to_hash.pop_front();
  ++hashing;
  const Chunk& chunk = chunks[index];
  const size_t batch = batch_of_chunk[index];
  const std::byte* at =
      ring->slot(journeys[batch].slot) + (chunk.destination - batches[batch].base);
  lock.unlock();
  file_digests[chunk.file].set_leaf(chunk.offset / kDigestLeafBytes, {at, chunk.length});
  lock.lock();
  --hashing;
  ++hashed;
  --journeys[batch].hashes_left;
  tick();
  leave_slot(batch);
  wakeup.changed.notify_all();
}

void DeviceLoad::State::work() {
  std::unique_lock lock(wakeup.mutex);
  while (!ended() && hashed + hashing < chunks.size()) {
    if (to_hash.empty()) {
      wakeup.changed.wait(lock);
    } else {
      hash(lock);
    }
  }
}

std::vector<CopyPiece> DeviceLoad::State::pieces_of(size_t index, size_t windows_end) const {
  const Batch& batch = batches[index];
  const Journey& journey = journeys[index];
  std::vector<CopyPiece> pieces;
  for (size_t w = std::max(journey.next_window, filled_windows); w < windows_end; ++w) {
    const Window& window = windows[w - filled_windows];
    const uint64_t begin = std::max(window.begin, batch.begin);
    const uint64_t end = std::min(window.end, batch.end);
    if (begin >= end) continue;
    pieces.push_back({window.address + (begin - window.begin),
                      ring->slot(journey.slot) + (begin - batch.base), end - begin});
  }
  return pieces;
}

// Whatever has been placed since is ordered at once, for each stream once.
Status DeviceLoad::State::order_windows(std::unique_lock<std::mutex>& lock) {
  const std::vector<StreamHandle> after = std::exchange(unordered, {});
  if (after.empty()) return {};
  Status status;
  calling = true;
  lock.unlock();
  for (const StreamHandle stream : after) {
    if (status.ok()) status = copies->order_after(stream);
  }
  lock.lock();
  calling = false;
  return status;
}

// Queues the first batch that can be copied; false if there is none.
bool DeviceLoad::State::copy_next(std::unique_lock<std::mutex>& lock) {
  while (!unordered.empty()) {
    if (Status status = order_windows(lock); !status.ok()) {
      fail(std::move(status));
      return true;
    }
  }
  const auto it = std::find_if(arrived.begin(), arrived.end(), [&](size_t batch) {
    const Journey& journey = journeys[batch];
    return !journey.copying && (known_to >= batches[batch].end ||
                                windows_for(batch) > std::max(journey.next_window, filled_windows));
  });
  if (it == arrived.end()) return false;
  const size_t index = *it;
  Journey& journey = journeys[index];
  const size_t windows_end = windows_for(index);
  const std::vector<CopyPiece> pieces = pieces_of(index, windows_end);
  tick();
  journey.next_window = windows_end;
  journey.after.all = known_to >= batches[index].end;
  journey.after.to = batches[index].end;
  if (!journey.after.all) {
    const uint64_t placed = windows[windows_end - 1 - filled_windows].end;
    journey.after.to = std::max(journey.copied.to, std::min(placed, journey.after.to));
  }
  if (journey.after.all) arrived.erase(it);
  if (pieces.empty()) {  // between windows: headers, and what nobody wants
    journey.copied = journey.after;
    advance();
    leave_slot(index);
    wakeup.changed.notify_all();
    return true;
  }
  journey.copying = true;
  ++copying;
  lock.unlock();
  Status status = copies->submit(index, pieces, CopyKind::kHostToDevice);
  lock.lock();
  if (status.ok()) {
    ++stats.copies;
    for (const CopyPiece& piece : pieces) stats.copied_bytes += piece.length;
  } else {
    tick();
    --copying;
    fail(std::move(status));
  }
  return true;
}

bool DeviceLoad::State::move_next(std::unique_lock<std::mutex>& lock) {
  if (moves.empty()) return false;
  tick();
  moving.push_back(std::move(moves.front()));
  moves.pop_front();
  ++copying;
  const uint64_t ticket = moving.back().ticket;
  const std::vector<CopyPiece> pieces = moving.back().pieces;
  const std::optional<StreamHandle> after = moving.back().after;
  lock.unlock();
  Status status;
  if (after) status = copies->order_after(*after);
  if (status.ok()) status = copies->submit(kMoveTag | ticket, pieces, CopyKind::kDeviceToDevice);
  lock.lock();
  if (status.ok()) {
    stats.moves += pieces.size();
    for (const CopyPiece& piece : pieces) stats.moved_bytes += piece.length;
  } else {
    tick();
    --copying;
    fail(std::move(status));
  }
  return true;
}

void DeviceLoad::State::collect(std::unique_lock<std::mutex>& lock, bool* progress) {
  if (copies->in_flight() == 0) return;
  std::vector<uint64_t> done;
  lock.unlock();
  Status status = copies->reap(&done);
  lock.lock();
  if (!done.empty()) {
    tick();
    *progress = true;
    last_progress = last_tick;
    stats.elapsed_s = seconds_between(started, last_tick);
  }
  for (const uint64_t tag : done) {
    --copying;
    if ((tag & kMoveTag) != 0) {
      const uint64_t ticket = tag & ~kMoveTag;
      unfinished_moves.erase(ticket);
      const auto it = std::find_if(moving.begin(), moving.end(),
                                   [&](const Move& move) { return move.ticket == ticket; });
      released.push_back(std::move(it->owner));
      moving.erase(it);
    } else {
      journeys[tag].copying = false;
      journeys[tag].copied = journeys[tag].after;
      leave_slot(tag);
    }
  }
  if (!done.empty()) {
    advance();
    wakeup.changed.notify_all();
  }
  if (!status.ok()) fail(std::move(status));
}

// Whether nothing that was queued can still touch the ring or a window.
bool DeviceLoad::State::drained(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  Result<bool> idle = copies->idle();
  lock.lock();
  return idle.ok() && *idle;
}

void DeviceLoad::State::copy_thread() {
  Status selected = ring->device()->select();
  std::unique_lock lock(wakeup.mutex);
  calling = false;
  if (!selected.ok()) fail(std::move(selected));
  int empty_polls = 0;
  for (;;) {
    bool progress = false;
    collect(lock, &progress);
    if (ended()) {
      if (stopping && drained(lock)) break;
      if (failure.ok() || stopping) {
        wakeup.changed.wait_for(lock, progress ? kShortPoll : kLongPoll);
      } else if (copies->in_flight() > 0) {
        wakeup.changed.wait_for(lock, kFailedPoll);
      } else {
        wakeup.changed.wait(lock, [this] { return stopping; });
      }
      continue;
    }
    while (!ended() && (copy_next(lock) || move_next(lock))) progress = true;
    if (ended()) continue;
    if (copies->in_flight() == 0) {
      if (!progress) wakeup.changed.wait(lock);
      continue;
    }
    empty_polls = progress ? 0 : empty_polls + 1;
    wakeup.changed.wait_for(lock, empty_polls < kShortPolls ? std::chrono::microseconds(kShortPoll)
                                                            : std::chrono::microseconds(kLongPoll));
  }
  // On the thread that has the device selected, and while the device is known to be idle.
  std::unique_ptr<CopyQueue> finished = std::move(copies);
  lock.unlock();
  finished.reset();
  lock.lock();
  copier_done = true;
  wakeup.changed.notify_all();
}

// Whether more slots would keep more reads in flight; not where the copies are what takes the time.
bool DeviceLoad::State::wants_slots() const {
  return next < batches.size() && free_slots.empty() && arrived.empty() && reading < stats.depth;
}

void DeviceLoad::State::grow_ring() {
  const bool selected = ring->device()->select().ok();
  std::unique_lock lock(wakeup.mutex);
  bool growing = selected;
  while (growing && !ended() && next < batches.size()) {
    if (!wants_slots()) {
      wakeup.changed.wait(lock);
      continue;
    }
    lock.unlock();
    growing = ring->grow();
    const size_t open = ring->open_slots();
    lock.lock();
    tick();
    for (; slots < open; ++slots) free_slots.push_back(slots);
    feed();
  }
  grower_done = true;
  wakeup.changed.notify_all();
}

Status DeviceLoad::State::stall_status() const {
  const std::string after = seconds_text(options.stall_timeout_s);
  if (copying > 0 || calling) {
    const Device& device = *ring->device();
    return Status::error(
        Code::kDeadline,
        device.traits().platform + " device " + std::to_string(device.index()) +
            (copying > 0 ? " has not finished a copy for " : " has not answered for ") + after);
  }
  for (size_t i = front; i < next; ++i) {
    if (journeys[i].reads_left == 0) continue;
    const Chunk& chunk = chunks[batches[i].first_chunk];
    return Status::error(Code::kDeadline, "the storage has returned nothing for " + after)
        .at(files[chunk.file]->path(), chunk.offset, chunk.length);
  }
  return {};
}

Result<std::unique_ptr<DeviceLoad>> DeviceLoad::start(std::vector<std::shared_ptr<File>> files,
                                                      std::span<const Extent> extents,
                                                      uint64_t space_bytes,
                                                      std::shared_ptr<PinnedRing> ring,
                                                      std::shared_ptr<Quarantine> quarantine,
                                                      const DeviceLoadOptions& options) {
  auto state = std::make_shared<State>();
  state->files = std::move(files);
  state->ring = std::move(ring);
  state->options = options;
  state->space_bytes = space_bytes;
  bool any_direct = false;
  uint64_t memory_align = 4096;
  std::vector<uint64_t> read_units;
  for (const auto& file : state->files) {
    state->file_bytes += file->size();
    any_direct = any_direct || file->direct().works;
    memory_align = std::max<uint64_t>(memory_align, file->direct().memory_align);
    read_units.push_back(std::max<uint64_t>(1, file->direct().offset_align));
  }
  const size_t request = std::min<size_t>(state->ring->slot_bytes(), kDigestLeafBytes);
  if (options.digest && request != kDigestLeafBytes) {
    return Status::error(Code::kUsage, "a digest needs slots of at least 8 MiB");
  }
  Result<std::vector<Chunk>> chunks =
      cut_chunks(state->files, extents, space_bytes, options.use_page_cache, request, request);
  if (!chunks.ok()) return chunks.status();
  state->chunks = std::move(*chunks);
  Result<std::vector<Batch>> batches = cut_batches(state->chunks, read_units, options.block_bytes,
                                                   memory_align, state->ring->slot_bytes());
  if (!batches.ok()) return batches.status();
  state->batches = std::move(*batches);
  state->journeys.resize(state->batches.size());
  for (size_t b = 0; b < state->batches.size(); ++b) {
    state->batch_of_chunk.insert(state->batch_of_chunk.end(), state->batches[b].chunk_count, b);
  }
  state->slots = state->ring->open_slots();
  for (size_t i = state->slots; i > 0; --i) state->free_slots.push_back(i - 1);
  if (options.digest) {
    for (const auto& file : state->files) state->file_digests.emplace_back(file->size());
  }
  for (const Chunk& chunk : state->chunks) state->stats.planned_bytes += chunk.length;

  Tuning storage = tune_storage(any_direct);
  Tuning memory = tune_memory();
  storage.request_bytes = memory.request_bytes = request;
  if (options.depth != 0) storage.depth = options.depth;
  Result<std::unique_ptr<Lanes>> lanes = Lanes::create(
      state->files, state->chunks, options.engine, storage, memory, state->ring->first_segment());
  if (!lanes.ok()) return lanes.status();
  state->lanes = std::move(*lanes);
  const ReadPath& path = state->lanes->path();
  state->stats.engine = path.engine;
  state->stats.engine_reason = path.engine_reason;
  state->stats.tuning_reason = path.tuning_reason;
  state->stats.request_bytes = path.request_bytes;
  state->stats.depth = path.depth;
  {
    if (Status status = state->ring->device()->select(); !status.ok()) return status;
    Result<std::unique_ptr<CopyQueue>> copies = CopyQueue::create(state->ring->device(), kStreams);
    if (!copies.ok()) return copies.status();
    state->copies = std::move(*copies);
  }
  state->streams.assign(state->copies->streams().begin(), state->copies->streams().end());

  auto load = std::unique_ptr<DeviceLoad>(new DeviceLoad(state, std::move(quarantine)));
  try {
    load->threads_.emplace_back("fxload-copy", [state] { state->copy_thread(); });
    load->threads_.emplace_back("fxload-ring", [state] { state->grow_ring(); });
    const size_t hashers =
        options.digest ? std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMostHashers)
                       : 0;
    for (size_t i = 0; i < hashers; ++i) {
      load->hashers_.emplace_back("fxload-hash", [state] { state->work(); });
    }
  } catch (const std::system_error& error) {
    return Status::error(Code::kMemory, std::string("the host refuses a thread: ") + error.what());
  }
  const auto on_done = [raw = state.get()](uint64_t tag, Status status) {
    raw->read_done(tag, std::move(status));
  };
  if (Status status = state->lanes->start(state, on_done, &load->threads_); !status.ok()) {
    return status;
  }
  const std::lock_guard lock(state->wakeup.mutex);
  state->feed();
  state->wakeup.changed.notify_all();
  return load;
}

DeviceLoad::DeviceLoad(std::shared_ptr<State> state, std::shared_ptr<Quarantine> quarantine)
    : state_(std::move(state)), quarantine_(std::move(quarantine)), owner_pid_(::getpid()) {}

DeviceLoad::~DeviceLoad() { close(after_seconds(0.2)); }

std::vector<StreamHandle> DeviceLoad::streams() const { return state_->streams; }

Status DeviceLoad::place(Window window, uint64_t next_begin) {
  State& state = *state_;
  const uint64_t block = state.options.block_bytes;
  const size_t align = state.ring->device()->traits().copy_align;
  const std::lock_guard lock(state.wakeup.mutex);
  if (!state.failure.ok()) return state.failure;
  if (state.stopping) return Status::error(Code::kUsage, "the load is closed");
  if (window.end < window.begin || !is_aligned(window.begin, block) ||
      !is_aligned(window.end, block) || reinterpret_cast<uintptr_t>(window.address) % align != 0) {
    return Status::error(Code::kUsage, "a window is whole blocks, at an address that copies take");
  }
  if (window.begin < state.known_to ||
      (window.end > next_begin && window.end - next_begin > block)) {
    return Status::error(Code::kUsage, "windows come in order and share no more than a block");
  }
  state.tick();
  state.known_to = next_begin;
  if (window.after && std::find(state.unordered.begin(), state.unordered.end(), *window.after) ==
                          state.unordered.end()) {
    state.unordered.push_back(*window.after);
  }
  if (window.begin < window.end) state.windows.push_back(std::move(window));
  // Time in which the load had nowhere to write is no stall of the device.
  state.last_progress = state.last_tick;
  state.wakeup.changed.notify_all();
  return {};
}

Load::Wait DeviceLoad::wait_past(uint64_t end, TimePoint deadline) {
  State& state = *state_;
  std::unique_lock lock(state.wakeup.mutex);
  state.wakeup.changed.wait_until(lock, deadline, [&] {
    return state.watermark() >= end || !state.failure.ok() || state.stopping;
  });
  Load::Wait wait;
  wait.landed = state.watermark();
  wait.done = wait.landed >= end;
  if (!state.failure.ok()) {
    wait.done = false;  // what a failed device holds is not to be trusted
    wait.status = state.failure;
  } else if (wait.done) {
    return wait;
  } else if (state.stopping) {
    wait.status = Status::error(Code::kUsage, "the load is closed");
  } else if (seconds_between(state.last_progress, Clock::now()) > state.options.stall_timeout_s) {
    wait.status = state.stall_status();
    if (!wait.status.ok()) state.fail(wait.status);
  }
  return wait;
}

Result<uint64_t> DeviceLoad::move(std::vector<CopyPiece> pieces, std::shared_ptr<void> owner,
                                  std::optional<StreamHandle> after) {
  State& state = *state_;
  const std::lock_guard lock(state.wakeup.mutex);
  if (!state.failure.ok()) return state.failure;
  if (state.stopping) return Status::error(Code::kUsage, "the load is closed");
  const uint64_t ticket = state.next_ticket++;
  if (pieces.empty()) return ticket;
  state.unfinished_moves.insert(ticket);
  state.moves.push_back({ticket, std::move(pieces), std::move(owner), after});
  state.last_progress = Clock::now();
  state.wakeup.changed.notify_all();
  return ticket;
}

Result<bool> DeviceLoad::wait_moved(uint64_t ticket, TimePoint deadline) {
  State& state = *state_;
  std::unique_lock lock(state.wakeup.mutex);
  state.wakeup.changed.wait_until(lock, deadline, [&] {
    return !state.unfinished_moves.contains(ticket) || !state.failure.ok() || state.stopping;
  });
  if (!state.failure.ok()) return state.failure;
  if (!state.unfinished_moves.contains(ticket)) return true;
  if (state.stopping) return Status::error(Code::kUsage, "the load is closed");
  if (seconds_between(state.last_progress, Clock::now()) > state.options.stall_timeout_s) {
    Status status = state.stall_status();
    if (!status.ok()) {
      state.fail(status);
      return status;
    }
  }
  return false;
}

Result<std::vector<std::string>> DeviceLoad::digests(TimePoint deadline) const {
  State& state = *state_;
  std::unique_lock lock(state.wakeup.mutex);
  if (!state.options.digest) return Status::error(Code::kUsage, "no digest was asked for");
  state.wakeup.changed.wait_until(
      lock, deadline, [&] { return state.hashed == state.chunks.size() || state.ended(); });
  if (!state.failure.ok()) return state.failure;
  if (state.stats.landed_bytes != state.file_bytes || state.hashed != state.chunks.size()) {
    return Status::error(Code::kUsage, "a digest needs every byte of every file");
  }
  std::vector<std::string> result;
  for (const FileDigest& digest : state.file_digests) result.push_back(digest.hex());
  return result;
}

DeviceLoadStats DeviceLoad::stats() const {
  // In a forked child the mutex may be locked for ever; nor are owners of the parent's let go of.
  if (::getpid() != owner_pid_) return {};
  const std::lock_guard lock(state_->wakeup.mutex);
  return state_->stats;
}

std::vector<std::shared_ptr<void>> DeviceLoad::take_released() {
  if (::getpid() != owner_pid_) return {};
  const std::lock_guard lock(state_->wakeup.mutex);
  return std::exchange(state_->released, {});
}

uint64_t DeviceLoad::close(TimePoint deadline) {
  State& state = *state_;
  if (::getpid() != owner_pid_) {
    // A forked child: threads and device exist in the parent alone. Nothing of it is touched.
    for (Worker& worker : hashers_) Worker::forget(std::move(worker));
    for (Worker& thread : threads_) Worker::forget(std::move(thread));
    hashers_.clear();
    threads_.clear();
    new std::shared_ptr<State>(state_);
    return 0;
  }
  {
    const std::lock_guard lock(state.wakeup.mutex);
    if (std::exchange(state.stopping, true)) return state.stats.quarantined_bytes;
  }
  state.wakeup.changed.notify_all();
  for (Worker& worker : hashers_) worker.join();
  hashers_.clear();
  state.lanes->stop();
  bool drained;
  {
    std::unique_lock lock(state.wakeup.mutex);
    const auto quiet = [&] {
      return state.reading == 0 && (state.copier_done || threads_.empty()) &&
             (state.grower_done || threads_.size() < 2);
    };
    state.wakeup.changed.wait_until(lock, deadline, quiet);
    drained = quiet();
    if (drained) {
      for (Window& window : state.windows) state.released.push_back(std::move(window.owner));
      for (Move& move : state.moves) state.released.push_back(std::move(move.owner));
      for (Move& move : state.moving) state.released.push_back(std::move(move.owner));
      state.windows.clear();
      state.moves.clear();
      state.moving.clear();
    } else {
      state.stats.quarantined_bytes = state.ring->open_bytes();
    }
  }
  for (Worker& thread : threads_) {
    if (drained) {
      thread.join();
    } else {
      quarantine_->adopt(std::move(thread));
    }
  }
  threads_.clear();
  if (drained) {
    const std::lock_guard lock(state.wakeup.mutex);
    state.lanes.reset();
    state.files.clear();
  }
  quarantine_->reap();
  return state.stats.quarantined_bytes;
}

}  // namespace fxload
