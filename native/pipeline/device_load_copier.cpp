#include <algorithm>
#include <utility>

#include "pipeline/device_load_state.h"

namespace fxload {
namespace {

// Tags of moves, apart from those of batches.
constexpr uint64_t kMoveTag = uint64_t{1} << 63;
// How often events are asked for: a slot takes longer than that on any link there is.
constexpr auto kShortPoll = std::chrono::microseconds(100);
constexpr auto kLongPoll = std::chrono::milliseconds(1);
constexpr auto kFailedPoll = std::chrono::milliseconds(50);
constexpr int kShortPolls = 50;

}  // namespace

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

bool DeviceLoad::State::copyable(size_t batch) const {
  const Journey& journey = journeys[batch];
  return !journey.copying && (known_to >= batches[batch].end ||
                              windows_for(batch) > std::max(journey.next_window, filled_windows));
}

// Queues the first batch that can be copied; false if there is none.
bool DeviceLoad::State::copy_next(std::unique_lock<std::mutex>& lock) {
  while (!unordered.empty()) {
    if (Status status = order_windows(lock); !status.ok()) {
      fail(std::move(status));
      return true;
    }
  }
  const auto it = std::find_if(arrived.begin(), arrived.end(),
                               [this](size_t batch) { return copyable(batch); });
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
  --device_threads;
  wakeup.changed.notify_all();
}

}  // namespace fxload
