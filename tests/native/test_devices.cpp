// The conformance suite of devices: every platform passes it.
//
// FXLOAD_TEST_PLATFORMS names those to try (default "host"), FXLOAD_TEST_RUNTIMES the folders of
// their runtimes; both are lists with commas.

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <latch>
#include <thread>

#include "base/align.h"
#include "device/read_back.h"
#include "platforms/host/device.h"
#include "platforms/host/stream.h"
#include "platforms/platforms.h"
#include "temp_file.h"

namespace fxload {
namespace {

using testing::pattern;

constexpr size_t kMiB = 1 << 20;

std::vector<std::string> listed(const char* variable, const std::string& otherwise) {
  const char* value = std::getenv(variable);
  const std::string text = value != nullptr ? value : otherwise;
  std::vector<std::string> items;
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    items.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return items;
}

std::shared_ptr<Platform> platform_of(const std::string& name) {
  Result<std::shared_ptr<Platform>> platform =
      find_platform(name, listed("FXLOAD_TEST_RUNTIMES", ""));
  REQUIRE_MESSAGE(platform.ok(), platform.status().detail().reason);
  return *platform;
}

// The first device of every platform to try, selected for this thread.
std::vector<std::shared_ptr<Device>> test_devices() {
  std::vector<std::shared_ptr<Device>> devices;
  for (const std::string& name : listed("FXLOAD_TEST_PLATFORMS", "host")) {
    Result<std::shared_ptr<Device>> device = platform_of(name)->open(0);
    REQUIRE_MESSAGE(device.ok(), device.status().detail().reason);
    REQUIRE((*device)->select().ok());
    devices.push_back(*device);
  }
  return devices;
}

void succeed(const Status& status) { REQUIRE_MESSAGE(status.ok(), status.detail().reason); }

template <typename T>
T take(Result<T> result) {
  REQUIRE_MESSAGE(result.ok(), result.status().detail().reason);
  return std::move(*result);
}

// Whole pages of host memory, pinned.
class Pinned {
 public:
  Pinned(std::shared_ptr<Device> device, size_t size)
      : device_(std::move(device)), size_(align_up(size, page_bytes())) {
    void* memory =
        ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    memory_ = static_cast<std::byte*>(memory);
    succeed(device_->pin({memory_, size_}));
  }
  Pinned(const Pinned&) = delete;
  ~Pinned() {
    CHECK(device_->unpin(memory_).ok());
    ::munmap(memory_, size_);
  }
  std::byte* data() const { return memory_; }

 private:
  std::shared_ptr<Device> device_;
  size_t size_;
  std::byte* memory_;
};

class Allocated {
 public:
  Allocated(std::shared_ptr<Device> device, size_t size)
      : device_(std::move(device)), size_(size), memory_(take(device_->allocate(size))) {}
  Allocated(const Allocated&) = delete;
  ~Allocated() { CHECK(device_->release(memory_).ok()); }
  std::byte* data() const { return memory_; }
  std::vector<std::byte> content(size_t offset, size_t length) const {
    std::vector<std::byte> bytes(length);
    succeed(read_back(*device_, bytes, memory_ + offset, after_seconds(60)));
    return bytes;
  }
  std::vector<std::byte> content() const { return content(0, size_); }

 private:
  std::shared_ptr<Device> device_;
  size_t size_;
  std::byte* memory_;
};

class Event {
 public:
  explicit Event(std::shared_ptr<Device> device)
      : device_(std::move(device)), handle(take(device_->create_event())) {}
  Event(const Event&) = delete;
  ~Event() { CHECK(device_->destroy_event(handle).ok()); }
  bool done() const { return take(device_->done(handle)); }
  void wait() const {
    const TimePoint deadline = after_seconds(60);
    while (!done()) {
      REQUIRE(Clock::now() < deadline);
      std::this_thread::yield();
    }
  }

 private:
  std::shared_ptr<Device> device_;

 public:
  const EventHandle handle;
};

class Stream {
 public:
  explicit Stream(std::shared_ptr<Device> device)
      : device_(std::move(device)), handle(take(device_->create_stream())) {}
  Stream(const Stream&) = delete;
  ~Stream() {
    finish();
    CHECK(device_->destroy_stream(handle).ok());
  }
  void copy(std::byte* to, const std::byte* from, size_t length, CopyKind kind) const {
    succeed(device_->copy({to, from, length}, kind, handle));
  }
  void record(const Event& event) const { succeed(device_->record(event.handle, handle)); }
  void wait_for(const Event& event) const { succeed(device_->stream_wait(handle, event.handle)); }
  void finish() const {
    const Event event(device_);
    record(event);
    event.wait();
  }

 private:
  std::shared_ptr<Device> device_;

 public:
  const StreamHandle handle;
};

void fill(const Pinned& memory, const std::vector<std::byte>& content) {
  std::memcpy(memory.data(), content.data(), content.size());
}

TEST_CASE("a device says what it is") {
  for (const auto& device : test_devices()) {
    const DeviceTraits& traits = device->traits();
    CAPTURE(traits.platform);
    CHECK_FALSE(traits.torch_type.empty());
    CHECK(traits.tensor_align >= traits.copy_align);
    for (const size_t align : {traits.tensor_align, traits.copy_align}) {
      CHECK(align > 0);
      CHECK((align & (align - 1)) == 0);
    }
    CHECK(device->index() == 0);
    CHECK(device->info().numa_node >= -1);
    const MemoryInfo memory = take(device->memory());
    CHECK(memory.total_bytes > 0);
    CHECK(memory.free_bytes <= memory.total_bytes);
  }
}

TEST_CASE("an index that does not exist is refused, and those that do are named") {
  for (const std::string& name : listed("FXLOAD_TEST_PLATFORMS", "host")) {
    const auto platform = platform_of(name);
    CHECK(platform->name() == name);
    const int count = take(platform->device_count());
    CHECK(count > 0);
    for (const int index : {-1, count, 1 << 20}) {
      const Result<std::shared_ptr<Device>> device = platform->open(index);
      REQUIRE_FALSE(device.ok());
      CHECK(device.status().detail().code == Code::kUsage);
      CHECK(device.status().detail().reason.find(std::to_string(index)) != std::string::npos);
      CHECK(device.status().detail().reason.find(std::to_string(count - 1)) != std::string::npos);
    }
  }
}

TEST_CASE("bytes come back as they were, whatever their number") {
  for (const auto& device : test_devices()) {
    CAPTURE(device->traits().platform);
    for (const size_t size : {1UL, 63UL, 64UL, 4097UL, 3 * kMiB + 5, 20 * kMiB}) {
      CAPTURE(size);
      const auto content = pattern(size, size);
      const Pinned source(device, size);
      fill(source, content);
      const Allocated memory(device, size);
      CHECK(is_aligned(reinterpret_cast<uintptr_t>(memory.data()), device->traits().copy_align));
      {
        const Stream stream(device);
        stream.copy(memory.data(), source.data(), size, CopyKind::kHostToDevice);
      }
      CHECK(memory.content() == content);
      const size_t offset = size / 3;
      CHECK(memory.content(offset, size - offset) ==
            std::vector(content.begin() + static_cast<ptrdiff_t>(offset), content.end()));
    }
  }
}

TEST_CASE("a stream runs its copies in order") {
  for (const auto& device : test_devices()) {
    CAPTURE(device->traits().platform);
    constexpr size_t kSize = 4 * kMiB;
    const auto first = pattern(kSize, 1);
    const auto second = pattern(kSize, 2);
    const Pinned one(device, kSize);
    const Pinned two(device, kSize);
    const Pinned back(device, 2 * kSize);
    fill(one, first);
    fill(two, second);
    const Allocated memory(device, kSize);
    const Allocated other(device, kSize);
    {
      const Stream stream(device);
      for (int round = 0; round < 3; ++round) {
        stream.copy(memory.data(), one.data(), kSize, CopyKind::kHostToDevice);
        stream.copy(other.data(), memory.data(), kSize, CopyKind::kDeviceToDevice);
        stream.copy(memory.data(), two.data(), kSize, CopyKind::kHostToDevice);
        stream.copy(back.data(), other.data(), kSize, CopyKind::kDeviceToHost);
        stream.copy(back.data() + kSize, memory.data(), kSize, CopyKind::kDeviceToHost);
      }
    }
    CHECK(std::memcmp(back.data(), first.data(), kSize) == 0);
    CHECK(std::memcmp(back.data() + kSize, second.data(), kSize) == 0);
  }
}

TEST_CASE("a stream waits for another's event, as it was recorded last") {
  for (const auto& device : test_devices()) {
    CAPTURE(device->traits().platform);
    constexpr size_t kSize = 4 * kMiB;
    const Pinned source(device, kSize);
    const Allocated memory(device, kSize);
    const Allocated other(device, kSize);
    const Stream writer(device);
    const Stream reader(device);
    const Event written(device);
    const Event read(device);
    reader.wait_for(written);  // never recorded: waits for nothing
    for (uint64_t round = 0; round < 8; ++round) {
      const auto content = pattern(kSize, round);
      fill(source, content);
      writer.wait_for(read);
      for (int i = 0; i < 4; ++i) {
        writer.copy(memory.data(), source.data(), kSize, CopyKind::kHostToDevice);
      }
      writer.record(written);
      reader.wait_for(written);
      reader.copy(other.data(), memory.data(), kSize, CopyKind::kDeviceToDevice);
      reader.record(read);
      read.wait();
      CHECK(written.done());
      CHECK(other.content() == content);
    }
  }
}

TEST_CASE("after its event the source of a copy may change") {
  for (const auto& device : test_devices()) {
    CAPTURE(device->traits().platform);
    constexpr size_t kSize = kMiB;
    const Pinned slot(device, kSize);
    const Allocated memory(device, 8 * kSize);
    const Stream stream(device);
    const Event copied(device);
    std::vector<std::byte> expected;
    for (size_t i = 0; i < 8; ++i) {
      const auto content = pattern(kSize, i);
      fill(slot, content);
      stream.copy(memory.data() + i * kSize, slot.data(), kSize, CopyKind::kHostToDevice);
      stream.record(copied);
      copied.wait();
      expected.insert(expected.end(), content.begin(), content.end());
    }
    CHECK(memory.content() == expected);
  }
}

TEST_CASE("an event that was never recorded is done; between two there is time") {
  for (const auto& device : test_devices()) {
    CAPTURE(device->traits().platform);
    const Event begin(device);
    const Event end(device);
    CHECK(begin.done());
    const Pinned source(device, 8 * kMiB);
    const Allocated memory(device, 8 * kMiB);
    const Stream stream(device);
    stream.record(begin);
    stream.copy(memory.data(), source.data(), 8 * kMiB, CopyKind::kHostToDevice);
    stream.record(end);
    end.wait();
    CHECK(begin.done());
    CHECK(take(device->elapsed_s(begin.handle, end.handle)) > 0);
    stream.finish();
    const TimePoint deadline = after_seconds(60);
    while (!take(device->stream_idle(stream.handle))) REQUIRE(Clock::now() < deadline);
  }
}

TEST_CASE("a batch copies each of its pieces") {
  for (const auto& device : test_devices()) {
    CAPTURE(device->traits().platform);
    constexpr size_t kPiece = 1000;
    constexpr size_t kStep = 1024;
    constexpr size_t kCount = 500;
    const auto content = pattern(kCount * kStep, 11);
    const Pinned source(device, content.size());
    fill(source, content);
    const Allocated memory(device, content.size());
    const Allocated reversed(device, content.size());
    const Stream stream(device);
    const auto pieces = [&](std::byte* to, const std::byte* from) {
      std::vector<CopyPiece> all;
      for (size_t i = 0; i < kCount; ++i) {
        all.push_back({to + (kCount - 1 - i) * kStep, from + i * kStep, i == 7 ? 0 : kPiece});
      }
      return all;
    };
    stream.copy(memory.data(), source.data(), content.size(), CopyKind::kHostToDevice);
    succeed(device->copy_batch({}, CopyKind::kHostToDevice, stream.handle));
    succeed(device->copy_batch(pieces(memory.data(), source.data()), CopyKind::kHostToDevice,
                               stream.handle));
    stream.copy(reversed.data(), source.data(), content.size(), CopyKind::kHostToDevice);
    succeed(device->copy_batch(pieces(reversed.data(), memory.data()), CopyKind::kDeviceToDevice,
                               stream.handle));
    stream.finish();
    auto expected = content;
    for (const CopyPiece& piece : pieces(expected.data(), content.data())) {
      std::memcpy(piece.to, piece.from, piece.length);
    }
    CHECK(memory.content() == expected);
    auto twice = content;
    for (const CopyPiece& piece : pieces(twice.data(), expected.data())) {
      std::memcpy(piece.to, piece.from, piece.length);
    }
    CHECK(reversed.content() == twice);
  }
}

TEST_CASE("memory of the runtime's own serves as pinned memory") {
  for (const auto& device : test_devices()) {
    CAPTURE(device->traits().platform);
    const auto content = pattern(kMiB, 5);
    std::byte* source = take(device->allocate_pinned(kMiB));
    std::memcpy(source, content.data(), content.size());
    const Allocated memory(device, kMiB);
    {
      const Stream stream(device);
      stream.copy(memory.data(), source, kMiB, CopyKind::kHostToDevice);
    }
    CHECK(memory.content() == content);
    CHECK(device->release_pinned(source).ok());
  }
}

TEST_CASE("more memory than there is: refused as such, and the next request is served") {
  for (const auto& device : test_devices()) {
    CAPTURE(device->traits().platform);
    const Result<std::byte*> memory = device->allocate(size_t{1} << 50);
    REQUIRE_FALSE(memory.ok());
    CHECK(memory.status().detail().code == Code::kMemory);
    CHECK(memory.status().detail().reason.find(std::to_string(size_t{1} << 50)) !=
          std::string::npos);
    const Allocated after(device, kMiB);
    const Result<std::byte*> nothing = device->allocate(0);
    REQUIRE_FALSE(nothing.ok());
    CHECK(nothing.status().detail().code == Code::kUsage);
  }
}

TEST_CASE("what is no whole page, or is not pinned, is refused") {
  for (const auto& device : test_devices()) {
    CAPTURE(device->traits().platform);
    const Pinned memory(device, kMiB);
    Status status = device->pin({memory.data() + 1, 4096});
    REQUIRE_FALSE(status.ok());
    CHECK(status.detail().code == Code::kUsage);
    status = device->pin({memory.data(), size_t{0}});
    REQUIRE_FALSE(status.ok());
    CHECK(status.detail().code == Code::kUsage);
    std::vector<std::byte> other(3 * page_bytes());
    const auto begin = align_up(reinterpret_cast<uintptr_t>(other.data()), page_bytes());
    status = device->unpin(reinterpret_cast<std::byte*>(begin));
    REQUIRE_FALSE(status.ok());
    CHECK(status.detail().code == Code::kDevice);
  }
}

TEST_CASE("a copy that starts where the device does not want it is refused before it is queued") {
  for (const auto& device : test_devices()) {
    CAPTURE(device->traits().platform);
    const size_t align = device->traits().copy_align;
    const Pinned source(device, 2 * kMiB);
    const Allocated memory(device, 2 * kMiB);
    const Stream stream(device);
    const auto misplaced = [&](size_t to, size_t from) {
      const CopyPiece piece{memory.data() + to, source.data() + from, 64};
      const Status alone = device->copy(piece, CopyKind::kHostToDevice, stream.handle);
      const Status batch = device->copy_batch({&piece, 1}, CopyKind::kHostToDevice, stream.handle);
      CHECK(alone.ok() == batch.ok());
      CHECK(alone.ok() == (align == 1));
      if (alone.ok()) return;
      REQUIRE_FALSE(alone.ok());
      CHECK(alone.detail().code == Code::kUsage);
      CHECK(alone.detail().reason.find(std::to_string(align)) != std::string::npos);
    };
    misplaced(align / 2 + (align == 1), 0);
    misplaced(0, align / 2 + (align == 1));
    stream.copy(memory.data() + align, source.data() + 3 * align, 1, CopyKind::kHostToDevice);
  }
}

TEST_CASE("a copy within the device starts wherever it likes") {
  for (const auto& device : test_devices()) {
    CAPTURE(device->traits().platform);
    const auto content = pattern(kMiB, 21);
    const Pinned source(device, kMiB);
    fill(source, content);
    const Allocated memory(device, kMiB);
    const Allocated other(device, kMiB);
    const Stream stream(device);
    stream.copy(memory.data(), source.data(), kMiB, CopyKind::kHostToDevice);
    stream.copy(other.data(), memory.data() + 8, kMiB - 8, CopyKind::kDeviceToDevice);
    const CopyPiece piece{other.data() + 24, memory.data() + 1, 3};
    succeed(device->copy_batch({&piece, 1}, CopyKind::kDeviceToDevice, stream.handle));
    stream.finish();
    std::vector expected(content.begin() + 8, content.end());
    std::copy_n(content.begin() + 1, 3, expected.begin() + 24);
    CHECK(other.content(0, kMiB - 8) == expected);
  }
}

TEST_CASE("several threads use one device at once") {
  for (const auto& device : test_devices()) {
    CAPTURE(device->traits().platform);
    std::vector<std::jthread> threads;
    std::atomic<int> right{0};
    for (uint64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        if (!device->select().ok()) return;
        const auto content = pattern(kMiB, t);
        const Pinned source(device, kMiB);
        fill(source, content);
        const Allocated memory(device, kMiB);
        const Stream stream(device);
        for (int round = 0; round < 10; ++round) {
          stream.copy(memory.data(), source.data(), kMiB, CopyKind::kHostToDevice);
          stream.finish();
        }
        if (memory.content() == content) ++right;
      });
    }
    threads.clear();
    CHECK(right == 4);
  }
}

TEST_CASE("a forked child is told that the device is not its own, and breaks nothing") {
  for (auto& device : test_devices()) {
    CAPTURE(device->traits().platform);
    std::byte* memory = take(device->allocate(kMiB));
    const StreamHandle stream = take(device->create_stream());
    const pid_t child = ::fork();
    if (child == 0) {
      const Status status = device->select();
      bool right = !status.ok() && status.detail().code == Code::kUsage;
      right = right && device->release(memory).ok() && device->destroy_stream(stream).ok();
      device.reset();
      ::_exit(right ? 0 : 1);
    }
    int outcome = -1;
    REQUIRE(::waitpid(child, &outcome, 0) == child);
    CHECK(outcome == 0);
    CHECK(device->destroy_stream(stream).ok());
    CHECK(device->release(memory).ok());
  }
}

// A device whose copies never end.
class StuckDevice : public host::HostDevice {
 public:
  Result<bool> done(EventHandle) override { return false; }
  Status release_pinned(std::byte* memory) override {
    released = true;
    return host::HostDevice::release_pinned(memory);
  }
  bool released = false;
};

TEST_CASE("a copy to the host that does not end: the deadline passes, and its buffer stays") {
  StuckDevice device;
  std::byte* memory = take(device.allocate(kMiB));
  std::vector<std::byte> content(kMiB);
  const Status status =
      read_back(device, content, memory, Clock::now() + std::chrono::milliseconds(20));
  REQUIRE_FALSE(status.ok());
  CHECK(status.detail().code == Code::kDeadline);
  CHECK_FALSE(device.released);
}

TEST_CASE("an unknown platform is refused by name") {
  const Result<std::shared_ptr<Platform>> platform = find_platform("abacus", {});
  REQUIRE_FALSE(platform.ok());
  CHECK(platform.status().detail().code == Code::kUsage);
  CHECK(platform.status().detail().reason.find("abacus") != std::string::npos);
}

TEST_CASE("the host's streams run behind whoever queues") {
  host::Event event;
  std::latch gate(1);
  {
    const auto stream = take(host::Stream::start());
    CHECK(stream->idle());
    stream->queue([&] { gate.wait(); });
    stream->queue([&event, record = event.record()] { event.complete(record); });
    CHECK_FALSE(stream->idle());
    CHECK_FALSE(event.done());
    gate.count_down();
    event.wait_for(event.last_record());
    CHECK(event.done());
    stream->queue([&event, record = event.record()] { event.complete(record); });
  }
  CHECK(event.done());  // what is queued runs before a stream goes away
}

}  // namespace
}  // namespace fxload
