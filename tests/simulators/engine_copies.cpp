// Copies: what may be asked for, and how they run.
#include <algorithm>
#include <cstring>

#include "engine.h"

namespace fxsim {
namespace {

constexpr int kInferred = 4;  // the kind follows from the addresses

bool to_device(Kind kind) { return kind == Kind::kHostToDevice || kind == Kind::kDeviceToDevice; }
bool from_device(Kind kind) { return kind == Kind::kDeviceToHost || kind == Kind::kDeviceToDevice; }

std::string range(const void* address, size_t size) {
  return "[" + hex(address) + ", +" + std::to_string(size) + ")";
}

bool aligned(const void* address, int64_t align) {
  return align <= 1 || reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(align) == 0;
}

// Even, and the same for the same seed and copy, whatever the threads do.
int64_t random_below(int64_t limit, int64_t seed, uint64_t number) {
  uint64_t value = (static_cast<uint64_t>(seed) << 32) + number * 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  value ^= value >> 31;
  return static_cast<int64_t>(value % static_cast<uint64_t>(limit));
}

}  // namespace

int Engine::check_device_end(const Copy& copy, const void* end, int device, uint64_t* id) {
  const Block* block = device_memory_.holding(end, copy.size);
  const char* function = copy.function.c_str();
  if (block == nullptr) {
    return violate(function, range(end, copy.size) + " lies outside every live device allocation",
                   kTraits.codes.invalid_value);
  }
  if (block->device != device) {
    return violate(function,
                   range(end, copy.size) + " belongs to device " + std::to_string(block->device) +
                       ", the stream to device " + std::to_string(device),
                   kTraits.codes.invalid_value);
  }
  *id = block->id;
  return 0;
}

int Engine::check_host_end(Copy& copy, const void* end, uint64_t* id) {
  const char* function = copy.function.c_str();
  if (device_memory_.touches(end, copy.size)) {
    return violate(function, range(end, copy.size) + " is device memory, not the host's",
                   kTraits.codes.invalid_value);
  }
  if (const Block* block = host_memory_.holding(end, copy.size)) {
    *id = block->id;
    return 0;
  }
  if (host_memory_.touches(end, copy.size)) {
    return violate(function, range(end, copy.size) + " is registered in part only",
                   kTraits.codes.invalid_value);
  }
  if (!is_mapped(end, copy.size)) {
    return violate(function, range(end, copy.size) + " is not mapped", kTraits.codes.invalid_value);
  }
  copy.pageable = true;
  return 0;
}

// Called with the lock held.
int Engine::check_copy(Copy& copy, int device) {
  int status = to_device(copy.kind) ? check_device_end(copy, copy.to, device, &copy.to_block)
                                    : check_host_end(copy, copy.to, &copy.to_block);
  if (status != 0) return status;
  return from_device(copy.kind) ? check_device_end(copy, copy.from, device, &copy.from_block)
                                : check_host_end(copy, copy.from, &copy.from_block);
}

int Engine::copy(const char* function, void* to, const void* from, size_t size, int kind,
                 void* stream_handle, bool wait) {
  Lock lock(mutex_);
  int device = 0;
  Stream* stream = nullptr;
  if (const int status = use_device(&device)) return status;
  if (const int status = find_stream(function, stream_handle, device, &stream)) return status;
  if (stream->device != device) {
    return violate(function, "the thread's device is not the stream's", kTraits.codes.bad_stream);
  }
  if (stream->error != 0) return stream->error;
  if (kind < 0 || kind > kInferred) return kTraits.codes.invalid_value;
  if (size == 0) return 0;
  if (kind == kInferred) {
    kind = (device_memory_.touches(to, 1) ? 1 : 0) + (device_memory_.touches(from, 1) ? 2 : 0);
  }
  Copy copy;
  copy.function = function;
  copy.to = static_cast<std::byte*>(to);
  copy.from = static_cast<const std::byte*>(from);
  copy.size = size;
  copy.kind = static_cast<Kind>(kind);
  copy.number = ++copies_submitted_;
  if (const int status = check_copy(copy, device)) return status;
  const int64_t align =
      copy.kind == Kind::kDeviceToDevice ? controls_.copy_align_within : controls_.copy_align;
  if (!wait && !(aligned(to, align) && aligned(from, align))) {
    return violate(function,
                   hex(from) + " to " + hex(to) + ": an asynchronous copy has to start on " +
                       std::to_string(align) + " bytes at both ends",
                   kTraits.codes.misaligned);
  }
  note_races(copy, *stream);
  // What a stream wrote last need not be there yet when the copy is asked for: only sources in
  // host memory must not change from now on.
  copy.checked = controls_.poison != 0 && !from_device(copy.kind);
  if (copy.checked) copy.sum = checksum(copy.from, copy.size);
  const bool pageable = copy.pageable;
  ledger_.queued++;
  submit(*stream, {std::move(copy), {}});
  // From or to unregistered memory, the runtimes synchronise the stream.
  return wait || pageable ? drain_locked(lock, *stream, -1) : 0;
}

int Engine::fill(const char* function, void* memory, int value, size_t size) {
  Lock lock(mutex_);
  int device = 0;
  if (const int status = use_device(&device)) return status;
  Copy checked;
  checked.function = function;
  checked.size = size;
  uint64_t block = 0;
  if (const int status = check_device_end(checked, memory, device, &block)) return status;
  std::memset(memory, value, size);
  return 0;
}

// Two copies that touch the same bytes, one of them writing, need an order: one stream, an event
// that the other stream waits for, or a host that has seen the first one done.
void Engine::note_races(const Copy& copy, const Stream& stream) {
  const auto overlap = [](const std::byte* a, size_t length_a, const std::byte* b,
                          size_t length_b) { return a < b + length_b && b < a + length_a; };
  for (const Stream* other : all_streams()) {
    if (other == &stream) continue;
    const auto found = stream.order.find(other);
    const uint64_t over = found == stream.order.end() ? 0 : found->second;
    for (const Operation& operation : other->queue) {
      const auto* queued = std::get_if<Copy>(&operation.what);
      if (queued == nullptr || queued->sequence <= over) continue;
      if (overlap(copy.to, copy.size, queued->to, queued->size) ||
          overlap(copy.to, copy.size, queued->from, queued->size) ||
          overlap(copy.from, copy.size, queued->to, queued->size)) {
        violate(copy.function.c_str(),
                range(copy.to, copy.size) + " races with a copy that another stream has not run",
                0);
      }
    }
  }
}

// Memory may be freed, or unregistered, only after the copies that use it have run.
void Engine::note_if_in_use(Lock& lock, const char* function, const Block& block) {
  const auto uses = [&](const Operation& operation) {
    const auto* copy = std::get_if<Copy>(&operation.what);
    return copy != nullptr &&
           ((copy->to_block == block.id &&
             reinterpret_cast<uintptr_t>(copy->to) - block.begin < block.size) ||
            (copy->from_block == block.id &&
             reinterpret_cast<uintptr_t>(copy->from) - block.begin < block.size));
  };
  for (Stream* stream : all_streams()) {
    const auto used = std::count_if(stream->queue.begin(), stream->queue.end(), uses);
    if (used == 0) continue;
    violate(function,
            hex(reinterpret_cast<void*>(block.begin)) + ": " + std::to_string(used) +
                " copies that use it have not run",
            0);
    changed_.wait(lock, [&] {
      return !stream->running || stream->queue.empty() || !uses(stream->queue.front());
    });
  }
}

// When the copy is through, by the link's bandwidth, and books the link until then.
Clock::time_point Engine::reserve(Stream& stream, const Copy& copy, Clock::time_point submitted) {
  using std::chrono::microseconds;
  using std::chrono::nanoseconds;
  auto ready = std::max(submitted, stream.free_at);
  if (const int64_t jitter = controls_.jitter_us; jitter > 0) {
    ready += microseconds(random_below(jitter + 1, controls_.seed, copy.number));
  }
  const int64_t bandwidth = controls_.bandwidth;
  // Copies within a device do not cross the link, and are far faster.
  if (bandwidth > 0 && copy.kind != Kind::kDeviceToDevice) {
    const int kind = controls_.bandwidth_shared != 0 ? 0 : static_cast<int>(copy.kind);
    Clock::time_point& link = link_free_at_[{stream.device, kind}];
    const double seconds = static_cast<double>(copy.size) / static_cast<double>(bandwidth);
    link = std::max(ready, link) + nanoseconds(static_cast<int64_t>(seconds * 1e9));
    ready = link;
  }
  return ready + microseconds(controls_.copy_delay_us);
}

void Engine::hang_if_asked(Lock& lock, const Stream& stream) {
  const int64_t started = ++copies_started_;
  const auto hangs = [&] {
    const int64_t after = controls_.hang_after;
    return controls_.hang != 0 || stream.held || (after >= 0 && started > after);
  };
  if (!hangs()) return;
  ledger_.hanging++;
  changed_.notify_all();
  changed_.wait(lock, [&] { return !hangs(); });
  ledger_.hanging--;
}

// Why the copy can no longer run, "" if it can.
std::string Engine::stale(const Copy& copy) {
  const auto gone = [&](const void* end, uint64_t id, bool device) {
    if (id == 0) return !is_mapped(end, copy.size);
    const Block* block = (device ? device_memory_ : host_memory_).holding(end, copy.size);
    return block == nullptr || block->id != id || !is_mapped(end, copy.size);
  };
  if (gone(copy.to, copy.to_block, to_device(copy.kind))) {
    return range(copy.to, copy.size) + " was freed before a copy into it ran";
  }
  if (gone(copy.from, copy.from_block, from_device(copy.kind))) {
    return range(copy.from, copy.size) + " was freed or unregistered before a copy from it ran";
  }
  return "";
}

void Engine::run_copy(Lock& lock, Stream& stream, const Copy& copy, Clock::time_point submitted) {
  const auto through = reserve(stream, copy, submitted);
  stream.free_at = through;
  while (Clock::now() < through) changed_.wait_until(lock, through);
  hang_if_asked(lock, stream);
  if (stream.error != 0) return;
  if (const int failure = controls_.failure_of("copy")) {
    if (stream.stops) stream.error = failure;
    return;
  }
  const char* function = copy.function.c_str();
  if (const std::string why = stale(copy); !why.empty()) {
    stream.error = violate(function, why, kTraits.codes.invalid_value);
    return;
  }
  stream.running = true;
  lock.unlock();
  const bool changed = copy.checked && checksum(copy.from, copy.size) != copy.sum;
  std::memmove(copy.to, copy.from, copy.size);
  lock.lock();
  stream.running = false;
  if (changed) violate(function, range(copy.from, copy.size) + " changed before its copy ran", 0);
  Ledger::Traffic& traffic = ledger_.traffic[static_cast<size_t>(copy.kind)];
  traffic.copies++;
  traffic.bytes += static_cast<int64_t>(copy.size);
  if (copy.pageable) {
    ledger_.pageable.copies++;
    ledger_.pageable.bytes += static_cast<int64_t>(copy.size);
  }
}

}  // namespace fxsim
