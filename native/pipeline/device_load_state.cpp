#include "pipeline/device_load_state.h"

#include <algorithm>
#include <utility>

namespace fxload {

uint64_t DeviceLoad::State::watermark() const {
  if (front == batches.size()) return space_bytes;
  return std::max(batches[front].begin, journeys[front].copied.to);
}

bool DeviceLoad::State::moved(uint64_t ticket) const {
  const auto is_it = [ticket](const Move& move) { return move.ticket == ticket; };
  return std::none_of(moves.begin(), moves.end(), is_it) &&
         std::none_of(moving.begin(), moving.end(), is_it);
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
  stats.count(chunk, started, last_tick);
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
  --device_threads;
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

}  // namespace fxload
