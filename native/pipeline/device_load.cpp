#include "pipeline/device_load.h"

#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

#include "base/align.h"
#include "pipeline/device_load_state.h"

namespace fxload {
namespace {

constexpr size_t kStreams = 2;
constexpr size_t kMostHashers = 4;

}  // namespace

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
  static_cast<ReadPath&>(state->stats) = state->lanes->path();
  if (Status status = state->ring->device()->select(); !status.ok()) return status;
  Result<std::unique_ptr<CopyQueue>> copies = CopyQueue::create(state->ring->device(), kStreams);
  if (!copies.ok()) return copies.status();
  state->copies = std::move(*copies);
  state->streams.assign(state->copies->streams().begin(), state->copies->streams().end());

  auto load = std::unique_ptr<DeviceLoad>(new DeviceLoad(state, std::move(quarantine)));
  try {
    load->start_device_thread("fxload-copy", &State::copy_thread);
    load->start_device_thread("fxload-ring", &State::grow_ring);
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

void DeviceLoad::start_device_thread(const char* name, void (State::*body)()) {
  threads_.emplace_back(name, [state = state_, body] { ((*state).*body)(); });
  const std::lock_guard lock(state_->wakeup.mutex);
  ++state_->device_threads;
}

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
  state.moves.push_back({ticket, std::move(pieces), std::move(owner), after});
  state.last_progress = Clock::now();
  state.wakeup.changed.notify_all();
  return ticket;
}

Result<bool> DeviceLoad::wait_moved(uint64_t ticket, TimePoint deadline) {
  State& state = *state_;
  std::unique_lock lock(state.wakeup.mutex);
  state.wakeup.changed.wait_until(
      lock, deadline, [&] { return state.moved(ticket) || !state.failure.ok() || state.stopping; });
  if (!state.failure.ok()) return state.failure;
  if (state.moved(ticket)) return true;
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
    Worker::forget(hashers_);
    Worker::forget(threads_);
    new std::shared_ptr<State>(state_);
    return 0;
  }
  {
    const std::lock_guard lock(state.wakeup.mutex);
    if (std::exchange(state.stopping, true)) return state.stats.quarantined_bytes;
  }
  state.wakeup.changed.notify_all();
  quarantine_->settle(hashers_, true);
  state.lanes->stop();
  bool drained;
  {
    std::unique_lock lock(state.wakeup.mutex);
    const auto quiet = [&] { return state.reading == 0 && state.device_threads == 0; };
    state.wakeup.changed.wait_until(lock, deadline, quiet);
    drained = quiet();
    if (drained) {
      for (Window& window : state.windows) state.released.push_back(std::move(window.owner));
      for (State::Move& move : state.moves) state.released.push_back(std::move(move.owner));
      for (State::Move& move : state.moving) state.released.push_back(std::move(move.owner));
      state.windows.clear();
      state.moves.clear();
      state.moving.clear();
    } else {
      state.stats.quarantined_bytes = state.ring->open_bytes();
    }
  }
  quarantine_->settle(threads_, drained);
  if (drained) {
    const std::lock_guard lock(state.wakeup.mutex);
    state.lanes.reset();
    state.files.clear();
  }
  quarantine_->reap();
  return state.stats.quarantined_bytes;
}

}  // namespace fxload
