#include "platforms/host/device.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "device/checks.h"
#include "platforms/host/platform.h"

namespace fxload::host {

namespace {

Status no_such(const char* what) {
  return Status::error(Code::kDevice, std::string("the host device has no such ") + what);
}

// Free and total memory as /proc/meminfo has it.
Result<MemoryInfo> host_memory() {
  std::FILE* file = std::fopen("/proc/meminfo", "re");
  if (file == nullptr) return Status::from_errno(errno, "open").at("/proc/meminfo");
  MemoryInfo info;
  char line[128];
  while (std::fgets(line, sizeof line, file) != nullptr) {
    unsigned long long kib = 0;
    if (std::sscanf(line, "MemTotal: %llu kB", &kib) == 1) info.total_bytes = kib << 10;
    if (std::sscanf(line, "MemAvailable: %llu kB", &kib) == 1) info.free_bytes = kib << 10;
  }
  std::fclose(file);
  return info;
}

}  // namespace

HostDevice::HostDevice() : traits_{"host", "cpu", 64, 1, true}, info_{"host memory", "", -1} {}

HostDevice::~HostDevice() {
  if (!process_.here()) {
    // The memory goes with the process; the streams know that their threads are not here.
    return;
  }
  streams_.clear();  // run what they hold, before its memory goes
  for (const auto& [memory, size] : allocations_) ::munmap(memory, size);
}

Result<MemoryInfo> HostDevice::memory() { return host_memory(); }

Result<std::byte*> HostDevice::allocate(size_t size) {
  if (Status status = check_size(size); !status.ok()) return status;
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return no_memory("host", 0, size, Status::from_errno(errno, "map memory"));
  }
  auto* bytes = static_cast<std::byte*>(memory);
  const std::lock_guard lock(mutex_);
  allocations_[bytes] = size;
  return bytes;
}

Status HostDevice::release(std::byte* memory) {
  if (!process_.here()) return {};
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.find(memory);
  if (found == allocations_.end()) return no_such("memory");
  ::munmap(memory, found->second);
  allocations_.erase(found);
  return {};
}

Status HostDevice::pin(std::span<std::byte> memory) {
  if (Status status = check_pages(memory); !status.ok()) return status;
  const std::lock_guard lock(mutex_);
  if (!pinned_.emplace(memory.data(), memory.size()).second) {
    return Status::error(Code::kDevice, "this memory is pinned already");
  }
  return {};
}

Status HostDevice::unpin(std::byte* memory) {
  if (!process_.here()) return {};
  const std::lock_guard lock(mutex_);
  return pinned_.erase(memory) == 1 ? Status() : no_such("pinned memory");
}

Result<StreamHandle> HostDevice::create_stream() {
  Result<std::shared_ptr<Stream>> stream = Stream::start();
  if (!stream.ok()) return stream.status();
  const StreamHandle handle = stream->get();
  const std::lock_guard lock(mutex_);
  streams_[handle] = std::move(*stream);
  return handle;
}

Status HostDevice::destroy_stream(StreamHandle stream) {
  if (!process_.here()) return {};
  std::shared_ptr<Stream> ended;  // waits for its jobs without the lock
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return no_such("stream");
  ended = std::move(found->second);
  streams_.erase(found);
  return {};
}

Result<bool> HostDevice::stream_idle(StreamHandle stream) {
  Result<std::shared_ptr<Stream>> found = find_stream(stream);
  if (!found.ok()) return found.status();
  return (*found)->idle();
}

Status HostDevice::stream_wait(StreamHandle stream, EventHandle event) {
  Result<std::shared_ptr<Stream>> found = find_stream(stream);
  if (!found.ok()) return found.status();
  Result<std::shared_ptr<Event>> awaited = find_event(event);
  if (!awaited.ok()) return awaited.status();
  (*found)->queue(
      [point = *awaited, record = (*awaited)->last_record()] { point->wait_for(record); });
  return {};
}

Result<EventHandle> HostDevice::create_event() {
  auto event = std::make_shared<Event>();
  const EventHandle handle = event.get();
  const std::lock_guard lock(mutex_);
  events_[handle] = std::move(event);
  return handle;
}

Status HostDevice::destroy_event(EventHandle event) {
  if (!process_.here()) return {};
  const std::lock_guard lock(mutex_);
  return events_.erase(event) == 1 ? Status() : no_such("event");
}

Status HostDevice::record(EventHandle event, StreamHandle stream) {
  Result<std::shared_ptr<Stream>> found = find_stream(stream);
  if (!found.ok()) return found.status();
  Result<std::shared_ptr<Event>> recorded = find_event(event);
  if (!recorded.ok()) return recorded.status();
  (*found)->queue([point = *recorded, record = (*recorded)->record()] { point->complete(record); });
  return {};
}

Result<bool> HostDevice::done(EventHandle event) {
  Result<std::shared_ptr<Event>> found = find_event(event);
  if (!found.ok()) return found.status();
  return (*found)->done();
}

Result<double> HostDevice::elapsed_s(EventHandle begin, EventHandle end) {
  Result<std::shared_ptr<Event>> first = find_event(begin);
  if (!first.ok()) return first.status();
  Result<std::shared_ptr<Event>> last = find_event(end);
  if (!last.ok()) return last.status();
  const auto from = (*first)->completed_at();
  const auto to = (*last)->completed_at();
  if (!from || !to) return Status::error(Code::kDevice, "an event has not happened yet");
  return seconds_between(*from, *to);
}

Status HostDevice::copy(const CopyPiece& piece, CopyKind kind, StreamHandle stream) {
  return copy_batch({&piece, 1}, kind, stream);
}

Status HostDevice::copy_batch(std::span<const CopyPiece> pieces, CopyKind /*kind*/,
                              StreamHandle stream) {
  Result<std::shared_ptr<Stream>> found = find_stream(stream);
  if (!found.ok()) return found.status();
  for (const CopyPiece& piece : pieces) {
    (*found)->queue([piece] {
      // The ends of a copy within the device may overlap no more than those of any other.
      if (piece.length > 0) std::memcpy(piece.to, piece.from, piece.length);
    });
  }
  return {};
}

Result<std::shared_ptr<Stream>> HostDevice::find_stream(StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return no_such("stream");
  return found->second;
}

Result<std::shared_ptr<Event>> HostDevice::find_event(EventHandle event) {
  const std::lock_guard lock(mutex_);
  const auto found = events_.find(event);
  if (found == events_.end()) return no_such("event");
  return found->second;
}

namespace {

class HostPlatform : public Platform {
 public:
  std::string_view name() const override { return "host"; }
  const std::string& library() const override { return nothing_; }
  const std::string& found_by() const override { return nothing_; }
  std::string version() const override { return ""; }
  Result<int> device_count() override { return 1; }
  Result<std::shared_ptr<Device>> open(int index) override {
    if (Status status = check_index("host", index, 1); !status.ok()) return status;
    return std::shared_ptr<Device>(std::make_shared<HostDevice>());
  }

 private:
  const std::string nothing_;
};

}  // namespace

std::shared_ptr<Platform> make_platform() { return std::make_shared<HostPlatform>(); }

}  // namespace fxload::host
