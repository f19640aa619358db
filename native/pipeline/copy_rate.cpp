#include "pipeline/copy_rate.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "pipeline/copy_queue.h"

namespace fxload {
namespace {

constexpr size_t kStreams = 2;
constexpr size_t kInFlight = 8;

// All that the copies touch.
struct Bench {
  std::shared_ptr<PinnedRing> ring;
  std::byte* memory = nullptr;
  std::unique_ptr<CopyQueue> copies;

  ~Bench() {
    copies.reset();
    // Nobody can be told: what a broken device does not take back ends with the process.
    if (memory != nullptr) (void)ring->device()->release(memory);
  }
};

}  // namespace

Result<CopyRate> measure_copy_rate(const std::shared_ptr<PinnedRing>& ring, double seconds) {
  Device& device = *ring->device();
  if (Status status = device.select(); !status.ok()) return status;
  Bench bench;
  bench.ring = ring;
  const size_t slots = std::min(ring->open_slots(), kInFlight);
  Result<std::byte*> memory = device.allocate(slots * ring->slot_bytes());
  if (!memory.ok()) return memory.status();
  bench.memory = *memory;
  Result<std::unique_ptr<CopyQueue>> copies = CopyQueue::create(ring->device(), kStreams);
  if (!copies.ok()) return copies.status();
  bench.copies = std::move(*copies);

  CopyRate rate;
  Status failure;
  std::vector<uint64_t> done;
  const TimePoint started = Clock::now();
  const TimePoint enough = after_seconds(seconds);
  std::vector<uint64_t> free_slots;
  for (uint64_t i = 0; i < slots; ++i) free_slots.push_back(i);
  while (failure.ok()) {
    while (failure.ok() && !free_slots.empty() && Clock::now() < enough) {
      const uint64_t slot = free_slots.back();
      free_slots.pop_back();
      const CopyPiece piece{bench.memory + slot * ring->slot_bytes(), ring->slot(slot),
                            ring->slot_bytes()};
      failure = bench.copies->submit(slot, {&piece, 1}, CopyKind::kHostToDevice);
    }
    done.clear();
    if (failure.ok()) failure = bench.copies->reap(&done);
    rate.bytes += done.size() * ring->slot_bytes();
    free_slots.insert(free_slots.end(), done.begin(), done.end());
    if (bench.copies->in_flight() == 0 && Clock::now() >= enough) break;
    if (done.empty()) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  rate.seconds = seconds_between(started, Clock::now());
  if (failure.ok()) return rate;
  // What was queued may run all the same: its memory is not given back before.
  for (;;) {
    Result<bool> idle = bench.copies->idle();
    if (idle.ok() && *idle) return failure;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace fxload
