#include "pipeline/transfer.h"

#include <unistd.h>

#include <algorithm>
#include <deque>
#include <system_error>
#include <thread>

#include "base/align.h"
#include "base/wakeup.h"
#include "io/sink.h"
#include "memory/ring.h"
#include "pipeline/chunks.h"
#include "pipeline/digest.h"
#include "pipeline/lanes.h"
#include "pipeline/load.h"

namespace fxload {
namespace {

constexpr size_t kMostWorkers = 4;

}  // namespace

struct Transfer::State {
  std::vector<std::shared_ptr<File>> files;
  TransferOptions options;
  RingMemory ring;
  size_t slot_bytes = 0;
  std::vector<Chunk> chunks;
  std::vector<FileDigest> file_digests;
  std::vector<Sink> sinks;
  std::unique_ptr<Lanes> lanes;
  TimePoint started;

  Wakeup wakeup;
  // Guarded by wakeup.mutex.
  size_t next = 0;
  size_t finished = 0;
  std::vector<size_t> slot_of_chunk;
  std::vector<bool> being_read;
  std::vector<size_t> free_slots;
  std::deque<size_t> arrived;
  std::vector<size_t> unopened;         // files whose sink is yet to be created
  std::vector<size_t> chunks_to_write;  // per file; at 0 its sink is finished
  size_t opening = 0;
  size_t sinks_open = 0;
  size_t reading = 0;
  uint64_t issued_bytes = 0;
  bool stopping = false;
  size_t workers_alive = 0;
  Status failure;
  TransferStats stats;
  TimePoint last_progress;

  bool has_work_after_reading() const { return options.digest || !sinks.empty(); }
  std::byte* slot(size_t index) const { return ring.bytes().data() + index * slot_bytes; }
  TimePoint earliest_next() const;
  bool all_done() const { return finished == chunks.size() && sinks_open == 0; }
  bool may_read() const;
  void fail(Status status) {
    if (failure.ok()) failure = std::move(status);
    wakeup.changed.notify_all();
  }
  void read_next();
  void complete(size_t index, Status status);
  void open_sink(std::unique_lock<std::mutex>& lock);
  void process(size_t index, std::unique_lock<std::mutex>& lock);
  void work();
};

TimePoint Transfer::State::earliest_next() const {
  if (options.limit_bytes_per_s == 0) return started;
  return started +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
             static_cast<double>(issued_bytes) / static_cast<double>(options.limit_bytes_per_s)));
}

// Sinks come first: their space is reserved before anything is copied.
bool Transfer::State::may_read() const {
  return next < chunks.size() && !free_slots.empty() && !stopping && failure.ok() &&
         unopened.empty() && opening == 0;
}

// Mutex held.
void Transfer::State::read_next() {
  const size_t index = next++;
  const Chunk& chunk = chunks[index];
  const size_t slot_index = free_slots.back();
  free_slots.pop_back();
  slot_of_chunk[index] = slot_index;
  issued_bytes += chunk.length;
  ++reading;
  being_read[index] = true;
  lanes->push(*files[chunk.file], chunk, slot(slot_index), index);
}

void Transfer::State::complete(size_t index, Status status) {
  const Chunk& chunk = chunks[index];
  const std::lock_guard lock(wakeup.mutex);
  const TimePoint now = Clock::now();
  --reading;
  being_read[index] = false;
  last_progress = now;
  if (!status.ok()) {
    if (!stopping) fail(std::move(status));
    wakeup.changed.notify_all();
    return;
  }
  stats.count(chunk, started, now);
  if (has_work_after_reading()) {
    arrived.push_back(index);
    wakeup.changed.notify_all();
    return;
  }
  stats.done_bytes += chunk.length;
  stats.elapsed_s = seconds_between(started, now);
  free_slots.push_back(slot_of_chunk[index]);
  ++finished;
  if (may_read() && earliest_next() <= now) read_next();
  if (finished == chunks.size() || options.limit_bytes_per_s != 0 || stopping) {
    wakeup.changed.notify_all();
  }
}

void Transfer::State::open_sink(std::unique_lock<std::mutex>& lock) {
  const size_t file = unopened.back();
  unopened.pop_back();
  ++opening;
  lock.unlock();
  Status status = sinks[file].open();
  if (status.ok() && chunks_to_write[file] == 0) status = sinks[file].finish();
  lock.lock();
  --opening;
  last_progress = Clock::now();
  if (!status.ok()) {
    fail(std::move(status));
  } else if (chunks_to_write[file] == 0) {
    --sinks_open;
  }
  wakeup.changed.notify_all();
}

void Transfer::State::process(size_t index, std::unique_lock<std::mutex>& lock) {
  const Chunk& chunk = chunks[index];
  const std::span<std::byte> data(slot(slot_of_chunk[index]), chunk.length);
  lock.unlock();
  Status status;
  if (options.digest) file_digests[chunk.file].set_leaf(chunk.offset / kDigestLeafBytes, data);
  if (!sinks.empty()) status = sinks[chunk.file].write(chunk.offset, data);
  lock.lock();
  bool last_of_file = false;
  if (status.ok() && !sinks.empty() && --chunks_to_write[chunk.file] == 0) {
    lock.unlock();
    status = sinks[chunk.file].finish();
    lock.lock();
    last_of_file = true;
  }
  const TimePoint now = Clock::now();
  last_progress = now;
  if (!status.ok()) {
    fail(std::move(status));
    return;
  }
  if (last_of_file) --sinks_open;
  free_slots.push_back(slot_of_chunk[index]);
  ++finished;
  stats.done_bytes += chunk.length;
  stats.elapsed_s = seconds_between(started, now);
  wakeup.changed.notify_all();
}

void Transfer::State::work() {
  std::unique_lock lock(wakeup.mutex);
  ++workers_alive;
  for (;;) {
    if (stopping || !failure.ok() || all_done()) break;
    if (!unopened.empty()) {
      open_sink(lock);
    } else if (!arrived.empty()) {
      const size_t index = arrived.front();
      arrived.pop_front();
      process(index, lock);
    } else if (may_read()) {
      const TimePoint when = earliest_next();
      if (when <= Clock::now()) {
        read_next();
      } else {
        wakeup.changed.wait_until(lock, when);
      }
    } else {
      wakeup.changed.wait(lock);
    }
  }
  --workers_alive;
  wakeup.changed.notify_all();
}

Result<std::unique_ptr<Transfer>> Transfer::start(std::vector<std::shared_ptr<File>> files,
                                                  std::shared_ptr<Quarantine> quarantine,
                                                  const TransferOptions& options) {
  auto state = std::make_shared<State>();
  state->files = std::move(files);
  state->options = options;
  if (!options.sinks.empty() && options.sinks.size() != state->files.size()) {
    return Status::error(Code::kUsage, "there must be a sink for each file");
  }
  const bool any_direct = std::any_of(state->files.begin(), state->files.end(),
                                      [](const auto& file) { return file->direct().works; });
  const Tuning tuning = tune_storage(any_direct);
  const bool fixed_leaf = options.digest || !options.sinks.empty();
  state->slot_bytes = fixed_leaf                   ? kDigestLeafBytes
                      : options.request_bytes != 0 ? options.request_bytes
                                                   : tuning.request_bytes;
  std::vector<Extent> extents;
  uint64_t space = 0;
  for (size_t i = 0; i < state->files.size(); ++i) {
    const uint64_t size = state->files[i]->size();
    if (size > 0) extents.push_back({i, 0, size, space});
    space += align_up(size, kDigestLeafBytes);
  }
  Result<std::vector<Chunk>> chunks = cut_chunks(
      state->files, extents, space, options.use_page_cache, state->slot_bytes, state->slot_bytes);
  if (!chunks.ok()) return chunks.status();
  state->chunks = std::move(*chunks);
  state->slot_of_chunk.resize(state->chunks.size());
  state->being_read.resize(state->chunks.size());
  state->chunks_to_write.resize(state->files.size());
  for (const Chunk& chunk : state->chunks) {
    ++state->chunks_to_write[chunk.file];
    state->stats.planned_bytes += chunk.length;
  }
  for (size_t i = 0; i < options.sinks.size(); ++i) {
    state->sinks.emplace_back(options.sinks[i], state->files[i]->size());
    state->unopened.push_back(i);
  }
  state->sinks_open = state->sinks.size();
  if (options.digest) {
    for (const auto& file : state->files) state->file_digests.emplace_back(file->size());
  }

  const size_t workers = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMostWorkers);
  size_t depth = options.depth != 0 ? options.depth : tuning.depth;
  depth = std::clamp<size_t>(depth, 1, std::max<size_t>(1, state->chunks.size()));
  size_t slots = depth + (state->has_work_after_reading() ? workers : 0);
  if (options.ring_bytes != 0) {
    slots = std::max<size_t>(1, options.ring_bytes / state->slot_bytes);
    depth = std::min(depth, slots);
  }
  slots = std::min(slots, std::max<size_t>(1, state->chunks.size()));
  Result<RingMemory> ring = RingMemory::create(slots * state->slot_bytes);
  if (!ring.ok()) return ring.status();
  state->ring = std::move(*ring);
  for (size_t i = slots; i > 0; --i) state->free_slots.push_back(i - 1);

  state->stats.ring_bytes = slots * state->slot_bytes;
  const Tuning shape{state->slot_bytes, depth, tuning.reason};
  Result<std::unique_ptr<Lanes>> lanes =
      Lanes::create(state->files, state->chunks, options.engine, shape, shape, state->ring.bytes());
  if (!lanes.ok()) return lanes.status();
  state->lanes = std::move(*lanes);
  static_cast<ReadPath&>(state->stats) = state->lanes->path();
  state->stats.request_bytes = state->slot_bytes;
  state->stats.depth = depth;

  auto transfer = std::unique_ptr<Transfer>(new Transfer(state, std::move(quarantine)));
  state->started = state->last_progress = Clock::now();
  const auto on_done = [raw = state.get()](uint64_t tag, Status status) {
    raw->complete(tag, std::move(status));
  };
  if (Status status = state->lanes->start(state, on_done, &transfer->lanes_); !status.ok()) {
    return status;
  }
  try {
    for (size_t i = 0; i < workers; ++i) {
      transfer->workers_.emplace_back("fxload-transfer", [state] { state->work(); });
    }
  } catch (const std::system_error& error) {
    return Status::error(Code::kMemory, std::string("the host refuses a thread: ") + error.what());
  }
  return transfer;
}

Transfer::Transfer(std::shared_ptr<State> state, std::shared_ptr<Quarantine> quarantine)
    : state_(std::move(state)), quarantine_(std::move(quarantine)), owner_pid_(::getpid()) {}

// Python may destroy it with its lock held: no time to wait for the storage.
Transfer::~Transfer() { close(after_seconds(0.2)); }

Result<bool> Transfer::wait(TimePoint deadline) {
  State& state = *state_;
  std::unique_lock lock(state.wakeup.mutex);
  state.wakeup.changed.wait_until(
      lock, deadline, [&] { return state.all_done() || !state.failure.ok() || state.stopping; });
  if (!state.failure.ok()) return state.failure;
  if (state.all_done()) return true;
  if (state.stopping) return Status::error(Code::kUsage, "the transfer is closed");
  const bool waits_for_others = state.reading > 0 || !state.arrived.empty() || state.sinks_open > 0;
  if (waits_for_others &&
      seconds_between(state.last_progress, Clock::now()) > state.options.stall_timeout_s) {
    Status stalled = Status::error(
        Code::kDeadline, "nothing has moved for " + seconds_text(state.options.stall_timeout_s));
    const auto oldest = std::find(state.being_read.begin(), state.being_read.end(), true);
    if (oldest != state.being_read.end()) {
      const Chunk& chunk = state.chunks[static_cast<size_t>(oldest - state.being_read.begin())];
      stalled = std::move(stalled).at(state.files[chunk.file]->path(), chunk.offset, chunk.length);
    }
    state.fail(std::move(stalled));
    return state.failure;
  }
  return false;
}

Result<std::vector<std::string>> Transfer::digests() const {
  State& state = *state_;
  const std::lock_guard lock(state.wakeup.mutex);
  if (!state.options.digest) return Status::error(Code::kUsage, "no digest was asked for");
  if (!state.all_done() || !state.failure.ok()) {
    return Status::error(Code::kUsage, "a digest needs every byte of every file");
  }
  std::vector<std::string> result;
  for (const FileDigest& digest : state.file_digests) result.push_back(digest.hex());
  return result;
}

TransferStats Transfer::stats() const {
  const std::lock_guard lock(state_->wakeup.mutex);
  return state_->stats;
}

uint64_t Transfer::close(TimePoint deadline) {
  State& state = *state_;
  if (::getpid() != owner_pid_) {
    Worker::forget(workers_);
    Worker::forget(lanes_);
    return 0;
  }
  bool drained;
  uint64_t quarantined;
  {
    std::unique_lock lock(state.wakeup.mutex);
    if (std::exchange(state.stopping, true)) return state.stats.quarantined_bytes;
    state.wakeup.changed.notify_all();
    // A worker may be inside a write that the destination holds; after them nobody reads.
    state.wakeup.changed.wait_until(lock, deadline, [&] { return state.workers_alive == 0; });
    drained = state.workers_alive == 0;
  }
  state.lanes->stop();
  {
    std::unique_lock lock(state.wakeup.mutex);
    state.wakeup.changed.wait_until(lock, deadline, [&] { return state.reading == 0; });
    const bool lanes_drained = state.reading == 0;
    quarantined = drained && lanes_drained ? 0 : state.stats.ring_bytes;
    state.stats.quarantined_bytes = quarantined;
  }
  quarantine_->settle(workers_, quarantined == 0);
  quarantine_->settle(lanes_, quarantined == 0);
  if (quarantined == 0) {
    state.lanes.reset();
    state.files.clear();
    state.sinks.clear();
    state.ring = RingMemory();
  }
  quarantine_->reap();
  return quarantined;
}

}  // namespace fxload
