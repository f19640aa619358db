#include "pipeline/load.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <system_error>
#include <thread>

#include "base/wakeup.h"
#include "memory/page_choice.h"
#include "memory/touch.h"
#include "pipeline/chunks.h"
#include "pipeline/digest.h"
#include "pipeline/lanes.h"

namespace fxload {
namespace {

// Memory may be touched this far ahead of the reads that wait for it.
constexpr size_t kTouchAheadBytes = size_t{64} << 20;
constexpr size_t kMostWorkers = 4;

// A digest leaf and the chunks that fill it: a contiguous run.
struct Leaf {
  uint32_t file = 0;
  uint32_t index = 0;
  size_t first_chunk = 0;
  size_t chunk_count = 0;
  size_t missing = 0;
};

}  // namespace

struct Load::State {
  std::vector<std::shared_ptr<File>> files;
  std::shared_ptr<Region> region;
  std::shared_ptr<Wakeup> wakeup = std::make_shared<Wakeup>();
  LoadOptions options;
  std::vector<Chunk> chunks;
  std::vector<Leaf> leaves;
  std::vector<size_t> leaf_of_chunk;
  std::vector<FileDigest> file_digests;
  std::unique_ptr<Lanes> lanes;
  PageChoice pages;
  size_t ahead_limit_bytes = 0;
  uint64_t file_bytes = 0;
  TimePoint started = Clock::now();

  // Guarded by wakeup->mutex.
  size_t next = 0;   // first chunk that nobody prepares yet
  size_t front = 0;  // chunks below have landed
  std::vector<bool> landed;
  std::vector<bool> in_flight;     // prepared and not completed
  std::vector<bool> awaits_hash;   // landed, and holding its windows until its leaf is hashed
  std::vector<bool> fresh_window;  // placed, and not known to be touched
  size_t completed = 0;
  uint64_t ahead_bytes = 0;  // prepared and not completed
  uint64_t demanded_end = 0;
  size_t released_windows = 0;
  std::deque<size_t> ready_leaves;
  size_t leaves_done = 0;
  bool stopping = false;
  Status failure;
  LoadStats stats;
  TimePoint last_progress = Clock::now();

  void plan_leaves();
  bool over_budget(size_t index) const;
  bool may_prepare() const;
  Status place_windows(size_t index);
  void prepare(size_t index, std::unique_lock<std::mutex>& lock);
  Status touch_chunk(const Chunk& chunk);
  void hash_leaf(size_t index, std::unique_lock<std::mutex>& lock);
  void work();
  void complete(size_t index, Status status);
  void fail(Status status);  // mutex held
  void drop_chunk_windows(const Chunk& chunk);
  uint64_t watermark() const;  // mutex held
  Status stall_status() const;
};

void Load::State::plan_leaves() {
  for (const auto& file : files) file_digests.emplace_back(file->size());
  leaf_of_chunk.resize(chunks.size());
  for (size_t i = 0; i < chunks.size(); ++i) {
    const Chunk& chunk = chunks[i];
    const auto index = static_cast<uint32_t>(chunk.offset / kDigestLeafBytes);
    if (leaves.empty() || leaves.back().file != chunk.file || leaves.back().index != index) {
      leaves.push_back({chunk.file, index, i, 0, 0});
    }
    ++leaves.back().chunk_count;
    ++leaves.back().missing;
    leaf_of_chunk[i] = leaves.size() - 1;
  }
}

bool Load::State::over_budget(size_t index) const {
  if (options.budget_bytes == 0) return false;
  const Chunk& chunk = chunks[index];
  size_t wanted = 0;
  for (size_t w = region->window_of(chunk.destination);
       w <= region->window_of(chunk.destination + chunk.length - 1); ++w) {
    if (!region->placed(w)) ++wanted;
  }
  return wanted > 0 &&
         (region->live_windows() + wanted) * region->window_bytes() > options.budget_bytes;
}

bool Load::State::may_prepare() const {
  if (next >= chunks.size() || stopping || !failure.ok()) return false;
  if (ahead_bytes > 0 && ahead_bytes + chunks[next].length > ahead_limit_bytes) return false;
  // A reader that waits for it is served even past the budget: it may be what frees memory.
  return chunks[next].destination < demanded_end || !over_budget(next);
}

Status Load::State::place_windows(size_t index) {
  const Chunk& chunk = chunks[index];
  const size_t first = region->window_of(chunk.destination);
  const size_t last = region->window_of(chunk.destination + chunk.length - 1);
  if (over_budget(index)) stats.over_budget_bytes += region->window_bytes();
  for (size_t w = first; w <= last; ++w) {
    if (region->placed(w)) continue;
    bool touched = false;
    if (Status status = region->acquire(w, &touched); !status.ok()) return status;
    fresh_window[w] = !touched;
  }
  region->hold(first, last);
  stats.peak_bytes =
      std::max<uint64_t>(stats.peak_bytes, region->live_windows() * region->window_bytes());
  return {};
}

void Load::State::prepare(size_t index, std::unique_lock<std::mutex>& lock) {
  const Chunk& chunk = chunks[index];
  if (Status status = place_windows(index); !status.ok()) {
    fail(std::move(status).at(files[chunk.file]->path(), chunk.offset, chunk.length));
    return;
  }
  in_flight[index] = true;
  ahead_bytes += chunk.length;
  bool fresh = false;
  for (size_t w = region->window_of(chunk.destination);
       w <= region->window_of(chunk.destination + chunk.length - 1); ++w) {
    fresh = fresh || fresh_window[w];
  }
  lock.unlock();
  Status status;
  if (fresh) status = touch_chunk(chunk);
  if (status.ok()) {
    lanes->push(*files[chunk.file], chunk, region->data() + chunk.destination, index);
  } else {
    complete(index, std::move(status).at(files[chunk.file]->path(), chunk.offset, chunk.length));
  }
  lock.lock();
}

Status Load::State::touch_chunk(const Chunk& chunk) {
  const double before_s = thread_cpu_s();
  Status status = touch(region->data() + chunk.destination, chunk.length);
  if (status.ok() && pages.record(chunk.length, thread_cpu_s() - before_s)) {
    const std::lock_guard lock(wakeup->mutex);
    stats.small_pages = true;
    size_t first = fresh_window.size();
    while (first > 0 && !region->placed(first - 1) && first > released_windows) --first;
    region->use_small_pages(first);
  }
  return status;
}

void Load::State::hash_leaf(size_t index, std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  const Leaf& leaf = leaves[index];
  const Chunk& first = chunks[leaf.first_chunk];
  const Chunk& last = chunks[leaf.first_chunk + leaf.chunk_count - 1];
  file_digests[leaf.file].set_leaf(
      leaf.index, {region->data() + first.destination,
                   static_cast<size_t>(last.destination + last.length - first.destination)});
  lock.lock();
  for (size_t i = 0; i < leaf.chunk_count; ++i) awaits_hash[leaf.first_chunk + i] = false;
  ++leaves_done;
  lock.unlock();
  for (size_t i = 0; i < leaf.chunk_count; ++i) drop_chunk_windows(chunks[leaf.first_chunk + i]);
  lock.lock();
  wakeup->changed.notify_all();
}

void Load::State::work() {
  std::unique_lock lock(wakeup->mutex);
  for (;;) {
    if (!ready_leaves.empty()) {
      const size_t leaf = ready_leaves.front();
      ready_leaves.pop_front();
      hash_leaf(leaf, lock);
    } else if (may_prepare()) {
      prepare(next++, lock);
    } else if (stopping || !failure.ok() ||
               (completed == chunks.size() && leaves_done == leaves.size())) {
      return;
    } else {
      wakeup->changed.wait(lock);
    }
  }
}

void Load::State::complete(size_t index, Status status) {
  const Chunk& chunk = chunks[index];
  bool drop_now = true;
  {
    const std::lock_guard lock(wakeup->mutex);
    const TimePoint now = Clock::now();
    in_flight[index] = false;
    ahead_bytes -= chunk.length;
    ++completed;
    last_progress = now;
    if (status.ok()) {
      landed[index] = true;
      stats.count(chunk, started, now);
      stats.elapsed_s = seconds_between(started, now);
      while (front < chunks.size() && landed[front]) ++front;
      if (options.digest && !stopping) {
        const size_t leaf = leaf_of_chunk[index];
        drop_now = false;
        awaits_hash[index] = true;
        if (--leaves[leaf].missing == 0) ready_leaves.push_back(leaf);
      }
    } else if (!stopping) {
      fail(std::move(status));
    }
  }
  wakeup->changed.notify_all();
  if (drop_now) drop_chunk_windows(chunk);
}

void Load::State::fail(Status status) {
  if (failure.ok()) failure = std::move(status);
  wakeup->changed.notify_all();
}

void Load::State::drop_chunk_windows(const Chunk& chunk) {
  region->drop(region->window_of(chunk.destination),
               region->window_of(chunk.destination + chunk.length - 1));
}

uint64_t Load::State::watermark() const {
  return front == chunks.size() ? region->size() : chunks[front].destination;
}

Status Load::State::stall_status() const {
  for (size_t i = front; i < next; ++i) {
    if (!in_flight[i]) continue;
    return Status::error(Code::kDeadline, "the storage has returned nothing for " +
                                              seconds_text(options.stall_timeout_s))
        .at(files[chunks[i].file]->path(), chunks[i].offset, chunks[i].length);
  }
  return {};
}

Result<std::unique_ptr<Load>> Load::start(std::vector<std::shared_ptr<File>> files,
                                          std::span<const Extent> extents, uint64_t space_bytes,
                                          std::shared_ptr<MemoryPool> pool,
                                          std::shared_ptr<Quarantine> quarantine,
                                          const LoadOptions& options) {
  auto state = std::make_shared<State>();
  state->files = std::move(files);
  for (const auto& file : state->files) state->file_bytes += file->size();
  state->options = options;
  const bool any_direct = std::any_of(state->files.begin(), state->files.end(),
                                      [](const auto& file) { return file->direct().works; });
  Tuning storage = tune_storage(any_direct);
  Tuning memory = tune_memory();
  if (options.request_bytes != 0) storage.request_bytes = options.request_bytes;
  if (options.depth != 0) storage.depth = options.depth;
  if (options.digest && storage.request_bytes > kDigestLeafBytes) {
    return Status::error(Code::kUsage, "with a digest, requests are at most 8 MiB");
  }
  Result<std::vector<Chunk>> chunks =
      cut_chunks(state->files, extents, space_bytes, options.use_page_cache, storage.request_bytes,
                 memory.request_bytes);
  if (!chunks.ok()) return chunks.status();
  state->chunks = std::move(*chunks);
  Result<std::shared_ptr<Region>> region =
      Region::create(std::move(pool), space_bytes, state->wakeup);
  if (!region.ok()) return region.status();
  state->region = std::move(*region);

  for (const Chunk& chunk : state->chunks) state->stats.planned_bytes += chunk.length;
  Result<std::unique_ptr<Lanes>> lanes =
      Lanes::create(state->files, state->chunks, options.engine, storage, memory, FixedMemory{});
  if (!lanes.ok()) return lanes.status();
  state->lanes = std::move(*lanes);
  static_cast<ReadPath&>(state->stats) = state->lanes->path();
  state->ahead_limit_bytes = storage.depth * storage.request_bytes + kTouchAheadBytes;
  state->landed.resize(state->chunks.size());
  state->in_flight.resize(state->chunks.size());
  state->awaits_hash.resize(state->chunks.size());
  state->fresh_window.resize(state->region->size() / state->region->window_bytes());
  if (options.digest) state->plan_leaves();

  auto load = std::unique_ptr<Load>(new Load(state, std::move(quarantine)));
  const auto on_done = [raw = state.get()](uint64_t tag, Status status) {
    raw->complete(tag, std::move(status));
  };
  if (Status status = state->lanes->start(state, on_done, &load->lanes_); !status.ok()) {
    return status;
  }
  try {
    const size_t workers = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMostWorkers);
    for (size_t i = 0; i < workers && !state->chunks.empty(); ++i) {
      load->workers_.emplace_back("fxload-prepare", [state] { state->work(); });
    }
  } catch (const std::system_error& error) {
    return Status::error(Code::kMemory, std::string("the host refuses a thread: ") + error.what());
  }
  return load;
}

Load::Load(std::shared_ptr<State> state, std::shared_ptr<Quarantine> quarantine)
    : state_(std::move(state)), quarantine_(std::move(quarantine)), owner_pid_(::getpid()) {}

// Python may destroy it with its lock held: no time to wait for the storage.
Load::~Load() { close(after_seconds(0.2)); }

Load::Wait Load::wait_past(uint64_t end, TimePoint deadline) {
  State& state = *state_;
  std::unique_lock lock(state.wakeup->mutex);
  if (end > state.demanded_end) {
    state.demanded_end = end;
    state.wakeup->changed.notify_all();
    // Time that the consumer spent elsewhere is no stall of the storage.
    state.last_progress = std::max(state.last_progress, Clock::now());
  }
  const auto settled = [&] {
    return state.watermark() >= end || !state.failure.ok() || state.stopping;
  };
  state.wakeup->changed.wait_until(lock, deadline, settled);
  Wait wait;
  wait.landed = state.watermark();
  wait.done = wait.landed >= end;
  if (wait.done) return wait;
  if (!state.failure.ok()) {
    wait.status = state.failure;
  } else if (state.stopping) {
    wait.status = Status::error(Code::kUsage, "the load is closed");
  } else if (seconds_between(state.last_progress, Clock::now()) > state.options.stall_timeout_s) {
    wait.status = state.stall_status();
    if (!wait.status.ok()) state.fail(wait.status);
  }
  return wait;
}

Result<RegionLease> Load::lease(uint64_t offset, size_t length) const {
  const std::lock_guard lock(state_->wakeup->mutex);
  if (length == 0 || offset + length < offset || offset + length > state_->watermark()) {
    return Status::error(Code::kUsage, "a lease needs bytes that have landed");
  }
  if (offset < state_->released_windows * state_->region->window_bytes() || state_->stopping) {
    return Status::error(Code::kUsage, "a lease needs bytes that have not been released");
  }
  return RegionLease(state_->region, offset, length);
}

void Load::release_before(uint64_t offset) {
  State& state = *state_;
  std::vector<size_t> windows;
  {
    const std::lock_guard lock(state.wakeup->mutex);
    const size_t end = std::min<size_t>(std::min(offset, state.watermark()), state.region->size()) /
                       state.region->window_bytes();
    for (; state.released_windows < end; ++state.released_windows) {
      if (state.region->placed(state.released_windows)) windows.push_back(state.released_windows);
    }
  }
  for (const size_t window : windows) state.region->drop(window, window);
}

Result<std::vector<std::string>> Load::digests(TimePoint deadline) const {
  State& state = *state_;
  std::unique_lock lock(state.wakeup->mutex);
  if (!state.options.digest) return Status::error(Code::kUsage, "no digest was asked for");
  state.wakeup->changed.wait_until(lock, deadline, [&] {
    return state.leaves_done == state.leaves.size() || !state.failure.ok() || state.stopping;
  });
  if (!state.failure.ok()) return state.failure;
  if (state.stats.landed_bytes != state.file_bytes || state.leaves_done != state.leaves.size()) {
    return Status::error(Code::kUsage, "a digest needs every byte of every file");
  }
  std::vector<std::string> result;
  for (const FileDigest& digest : state.file_digests) result.push_back(digest.hex());
  return result;
}

LoadStats Load::stats() const {
  const std::lock_guard lock(state_->wakeup->mutex);
  return state_->stats;
}

uint64_t Load::close(TimePoint deadline) {
  State& state = *state_;
  if (::getpid() != owner_pid_) {
    // A forked child: the threads exist in the parent alone, and so does what they hold.
    Worker::forget(workers_);
    Worker::forget(lanes_);
    return 0;
  }
  {
    const std::lock_guard lock(state.wakeup->mutex);
    if (std::exchange(state.stopping, true)) return state.stats.quarantined_bytes;
  }
  state.wakeup->changed.notify_all();
  // They only touch memory and hash: done in a moment. After them nobody pushes to a lane.
  quarantine_->settle(workers_, true);
  state.lanes->stop();
  std::vector<size_t> windows;
  std::vector<size_t> unhashed;
  uint64_t quarantined;
  {
    std::unique_lock lock(state.wakeup->mutex);
    state.wakeup->changed.wait_until(lock, deadline, [&] { return state.ahead_bytes == 0; });
    quarantined = state.stats.quarantined_bytes = state.ahead_bytes;
    for (; state.released_windows < state.fresh_window.size(); ++state.released_windows) {
      if (state.region->placed(state.released_windows)) windows.push_back(state.released_windows);
    }
    for (size_t i = 0; i < state.awaits_hash.size(); ++i) {
      if (state.awaits_hash[i]) unhashed.push_back(i);
    }
  }
  for (const size_t window : windows) state.region->drop(window, window);
  for (const size_t index : unhashed) state.drop_chunk_windows(state.chunks[index]);
  quarantine_->settle(lanes_, quarantined == 0);
  if (quarantined == 0) {
    // The counters outlive the load; its threads, rings and open files do not.
    state.lanes.reset();
    state.files.clear();
  }
  quarantine_->reap();
  return quarantined;
}

}  // namespace fxload
