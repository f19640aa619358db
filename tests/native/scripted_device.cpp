#include "scripted_device.h"

#include <cstdlib>
#include <cstring>

namespace fxload::testing {

ScriptedDevice::~ScriptedDevice() {
  for (Event* event : events_) delete event;
  for (Stream* stream : streams_) delete stream;
  for (std::byte* memory : allocations_) std::free(memory);
}

void ScriptedDevice::hold(bool held) {
  const std::lock_guard lock(mutex_);
  held_ = held;
}

void ScriptedDevice::block_waits(bool blocked) {
  const std::lock_guard lock(mutex_);
  waits_blocked_ = blocked;
  unblocked_.notify_all();
}

size_t ScriptedDevice::bytes_run() const {
  const std::lock_guard lock(mutex_);
  return bytes_run_;
}

Status ScriptedDevice::count(const std::string& call) {
  if (++calls_[call] == script_.failing_at && call == script_.failing_call) {
    return Status::error(Code::kDevice, "scripted failure of " + call);
  }
  return {};
}

Result<std::byte*> ScriptedDevice::allocate(size_t size) {
  const std::lock_guard lock(mutex_);
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(4096, (size + 4095) / 4096 * 4096));
  allocations_.insert(memory);
  return memory;
}

Status ScriptedDevice::release(std::byte* memory) {
  const std::lock_guard lock(mutex_);
  if (allocations_.erase(memory) == 0) return Status::error(Code::kDevice, "no such memory");
  std::free(memory);
  return {};
}

Status ScriptedDevice::pin(std::span<std::byte> memory) {
  const std::lock_guard lock(mutex_);
  if (Status status = count("pin"); !status.ok()) return status;
  pinned_.insert(memory.data());
  return {};
}

Status ScriptedDevice::unpin(std::byte* memory) {
  const std::lock_guard lock(mutex_);
  if (pinned_.erase(memory) == 0) return Status::error(Code::kDevice, "was not pinned");
  return {};
}

Result<StreamHandle> ScriptedDevice::create_stream() {
  const std::lock_guard lock(mutex_);
  return StreamHandle(*streams_.insert(new Stream()).first);
}

Status ScriptedDevice::destroy_stream(StreamHandle handle) {
  const std::lock_guard lock(mutex_);
  auto* stream = static_cast<Stream*>(handle);
  if (!stream->queued.empty()) return Status::error(Code::kDevice, "destroyed while it ran");
  streams_.erase(stream);
  delete stream;
  return {};
}

Result<bool> ScriptedDevice::stream_idle(StreamHandle handle) {
  const std::lock_guard lock(mutex_);
  auto& stream = *static_cast<Stream*>(handle);
  if (!held_) run(stream, stream.submitted);
  return stream.queued.empty();
}

Result<EventHandle> ScriptedDevice::create_event() {
  const std::lock_guard lock(mutex_);
  if (Status status = count("create_event"); !status.ok()) return status;
  return EventHandle(*events_.insert(new Event()).first);
}

Status ScriptedDevice::destroy_event(EventHandle handle) {
  const std::lock_guard lock(mutex_);
  auto* event = static_cast<Event*>(handle);
  events_.erase(event);
  delete event;
  return {};
}

Status ScriptedDevice::record(EventHandle handle, StreamHandle on) {
  const std::lock_guard lock(mutex_);
  if (Status status = count("record"); !status.ok()) return status;
  auto* stream = static_cast<Stream*>(on);
  *static_cast<Event*>(handle) = {stream, stream->submitted, 0};
  return {};
}

Result<bool> ScriptedDevice::done(EventHandle handle) {
  const std::lock_guard lock(mutex_);
  if (Status status = count("done"); !status.ok()) return status;
  auto& event = *static_cast<Event*>(handle);
  if (script_.lies) return true;
  if (held_ || ++event.polls < script_.polls_until_done) return false;
  run(*event.stream, event.behind);
  return true;
}

Status ScriptedDevice::copy(const CopyPiece& piece, CopyKind kind, StreamHandle stream) {
  return copy_batch({&piece, 1}, kind, stream);
}

Status ScriptedDevice::copy_batch(std::span<const CopyPiece> pieces, CopyKind kind,
                                  StreamHandle handle) {
  const std::lock_guard lock(mutex_);
  if (Status status = count("copy"); !status.ok()) return status;
  auto& stream = *static_cast<Stream*>(handle);
  for (const CopyPiece& piece : pieces) {
    const auto misaligned = [&](const std::byte* end) {
      return reinterpret_cast<uintptr_t>(end) % traits_.copy_align != 0;
    };
    if (kind == CopyKind::kHostToDevice && (misaligned(piece.to) || misaligned(piece.from))) {
      return Status::error(Code::kDevice, "a copy whose ends are not aligned");
    }
    stream.queued.push_back({piece, nullptr, 0});
    ++stream.submitted;
  }
  return {};
}

Status ScriptedDevice::stream_wait(StreamHandle handle, EventHandle awaited) {
  std::unique_lock lock(mutex_);
  unblocked_.wait(lock, [this] { return !waits_blocked_; });
  const auto& event = *static_cast<Event*>(awaited);
  auto& stream = *static_cast<Stream*>(handle);
  stream.queued.push_back({{}, event.stream, event.behind});
  ++stream.submitted;
  return {};
}

// What is awaited runs no earlier than a stream gets to its wait.
void ScriptedDevice::run(Stream& stream, size_t until) {
  for (; stream.run < until; ++stream.run) {
    const Work work = stream.queued.front();
    stream.queued.pop_front();
    if (work.awaited != nullptr) {
      run(*work.awaited, work.until);
      continue;
    }
    std::memmove(work.piece.to, work.piece.from, work.piece.length);
    bytes_run_ += work.piece.length;
  }
}

}  // namespace fxload::testing
