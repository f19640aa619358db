#include "device/read_back.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/align.h"

namespace fxload {

namespace {

constexpr size_t kBufferBytes = 8 << 20;

// The stream, the event and the buffer of one read-back; keeps them all while a copy may run.
class ReadBack {
 public:
  explicit ReadBack(Device& device) : device_(device) {}
  ReadBack(const ReadBack&) = delete;
  ~ReadBack() {
    if (running_) return;  // freeing any of them would wait, or let the copy hit reused memory
    if (event_ != nullptr) (void)device_.destroy_event(event_);
    if (stream_ != nullptr) (void)device_.destroy_stream(stream_);
    if (buffer_ != nullptr) (void)device_.release_pinned(buffer_);
  }

  Status prepare(size_t buffer_bytes) {
    if (Status status = device_.select(); !status.ok()) return status;
    Result<std::byte*> buffer = device_.allocate_pinned(buffer_bytes);
    if (!buffer.ok()) return buffer.status();
    buffer_ = *buffer;
    Result<StreamHandle> stream = device_.create_stream();
    if (!stream.ok()) return stream.status();
    stream_ = *stream;
    Result<EventHandle> event = device_.create_event();
    if (!event.ok()) return event.status();
    event_ = *event;
    return {};
  }

  Status fetch(const std::byte* from, size_t length, TimePoint deadline) {
    Status status = device_.copy({buffer_, from, length}, CopyKind::kDeviceToHost, stream_);
    if (!status.ok()) return status;
    running_ = true;
    status = device_.record(event_, stream_);
    if (!status.ok()) return status;
    for (auto pause = std::chrono::microseconds(10);;
         pause = std::min(2 * pause, std::chrono::microseconds(1000))) {
      Result<bool> done = device_.done(event_);
      if (!done.ok()) return done.status();
      if (*done) break;
      if (Clock::now() >= deadline) {
        return Status::error(Code::kDeadline, "the device has not finished a copy to the host");
      }
      std::this_thread::sleep_for(pause);
    }
    running_ = false;
    return {};
  }

  const std::byte* buffer() const { return buffer_; }

 private:
  Device& device_;
  std::byte* buffer_ = nullptr;
  StreamHandle stream_ = nullptr;
  EventHandle event_ = nullptr;
  bool running_ = false;
};

}  // namespace

Status read_back(Device& device, std::span<std::byte> to, const std::byte* from,
                 TimePoint deadline) {
  if (to.empty()) return {};
  // A copy has to start where the device wants it: what comes before is fetched and dropped.
  const size_t skip = reinterpret_cast<uintptr_t>(from) & (device.traits().copy_align - 1);
  const size_t total = skip + to.size();
  ReadBack work(device);
  if (Status status = work.prepare(std::min(total, kBufferBytes)); !status.ok()) return status;
  for (size_t at = 0; at < total; at += kBufferBytes) {
    const size_t length = std::min(kBufferBytes, total - at);
    Status status = work.fetch(from - skip + at, length, deadline);
    if (!status.ok()) return status;
    const size_t begin = at == 0 ? skip : 0;
    std::memcpy(to.data() + at + begin - skip, work.buffer() + begin, length - begin);
  }
  return {};
}

}  // namespace fxload
