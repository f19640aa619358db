#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "base/align.h"
#include "pipeline/device_load.h"
#include "pipeline/digest.h"
#include "platforms/platforms.h"
#include "scripted_device.h"
#include "temp_file.h"

namespace fxload {
namespace {

using testing::pattern;
using testing::ScriptedDevice;
using testing::TempFile;
using Script = ScriptedDevice::Script;

constexpr uint64_t kBlock = 512;
constexpr size_t kSlot = kHugePageBytes;

// Memory on the device, and how its owner tells that it still lives.
struct DeviceMemory {
  std::vector<std::byte> bytes;
  explicit DeviceMemory(size_t size) : bytes(size + 4096, std::byte{0xee}) {}
  std::byte* aligned() {
    return reinterpret_cast<std::byte*>(align_up(reinterpret_cast<uintptr_t>(bytes.data()), 4096));
  }
};

struct Setup {
  std::vector<std::vector<std::byte>> contents;
  std::vector<std::unique_ptr<TempFile>> temps;
  std::vector<std::shared_ptr<File>> files;
  std::vector<Extent> extents;
  uint64_t space = 0;
  std::vector<std::byte> expected;  // of the destination; what no extent fills is not compared
  std::vector<bool> known;
  std::shared_ptr<Device> device;
  std::shared_ptr<PinnedRing> ring;
  std::shared_ptr<Quarantine> quarantine = std::make_shared<Quarantine>();

  Setup(const std::vector<size_t>& sizes, std::shared_ptr<Device> with, size_t slots)
      : device(std::move(with)) {
    for (const size_t size : sizes) {
      contents.push_back(pattern(size, contents.size() + 1));
      temps.push_back(std::make_unique<TempFile>(contents.back()));
      temps.back()->make_cold();
      files.push_back(temps.back()->open());
    }
    auto made = PinnedRing::create(device, slots * kSlot, kSlot, temps.front()->path());
    REQUIRE_MESSAGE(made.ok(), made.status().detail().reason);
    ring = *made;
  }
  // Each file whole, one after the other.
  void plan_whole() {
    for (size_t i = 0; i < files.size(); ++i) {
      if (files[i]->size() > 0) extents.push_back({i, 0, files[i]->size(), space});
      space = align_up(space + files[i]->size(), 4096);
    }
    expect();
  }
  // Parts of the files, some of them anything but aligned.
  void plan_parts(std::mt19937& random) {
    for (size_t i = 0; i < files.size(); ++i) {
      uint64_t at = 0;
      while (at < files[i]->size()) {
        at += random() % 3 == 0 ? 0 : random() % 100'000;
        if (random() % 2 == 0) at = align_down(at, 4096);
        if (at >= files[i]->size()) break;
        uint64_t length = 1 + random() % (random() % 4 == 0 ? 3'000'000 : 5000);
        length = std::min(length, files[i]->size() - at);
        // Congruent to the file, so that whole requests stay whole blocks.
        const uint64_t destination = align_up(space, 4096) + at % 4096;
        extents.push_back({i, at, length, destination});
        space = align_up(destination + length, 4096);
        at = align_up(at + length, 4096);
      }
    }
    expect();
  }
  void expect() {
    expected.assign(space + kBlock, std::byte{0});
    known.assign(space + kBlock, false);
    for (const Extent& extent : extents) {
      for (uint64_t i = 0; i < extent.length; ++i) {
        expected[extent.destination + i] = contents[extent.file][extent.file_offset + i];
        known[extent.destination + i] = true;
      }
    }
  }
  std::unique_ptr<DeviceLoad> start(DeviceLoadOptions options = {}) {
    options.block_bytes = kBlock;
    auto load = DeviceLoad::start(files, extents, space, ring, quarantine, options);
    REQUIRE_MESSAGE(load.ok(), load.status().detail().reason);
    return std::move(*load);
  }
  bool holds(uint64_t begin, uint64_t end, const std::byte* memory) const {
    for (uint64_t i = begin; i < end; ++i) {
      if (known[i] && expected[i] != memory[i - begin]) return false;
    }
    return true;
  }
};

struct Placed {
  uint64_t begin = 0;
  uint64_t end = 0;
  std::shared_ptr<DeviceMemory> memory;
};

// Cuts the space into windows at random places: neighbours share the block in which they meet.
std::vector<Placed> random_windows(uint64_t space, std::mt19937& random, uint64_t longest) {
  std::vector<Placed> windows;
  for (uint64_t at = 0; at < space;) {
    const uint64_t to = std::min<uint64_t>(space, at + 1 + random() % longest);
    Placed window{align_down(at, kBlock), align_up(to, kBlock), nullptr};
    window.memory = std::make_shared<DeviceMemory>(window.end - window.begin);
    windows.push_back(window);
    at = to;
  }
  return windows;
}

Status place(DeviceLoad& load, const std::vector<Placed>& windows, size_t index) {
  const Placed& window = windows[index];
  return load.place({window.begin, window.end, window.memory->aligned(), window.memory, {}},
                    index + 1 < windows.size() ? windows[index + 1].begin : UINT64_MAX);
}

void wait_all(DeviceLoad& load, uint64_t end) {
  const Load::Wait wait = load.wait_past(end, after_seconds(60));
  REQUIRE_MESSAGE(wait.status.ok(), wait.status.detail().reason);
  REQUIRE(wait.done);
}

// Waits in slices, as callers do: that nothing has moved is noticed between them.
Status failure_of(DeviceLoad& load, uint64_t end) {
  Load::Wait wait;
  for (int i = 0; i < 1200 && wait.status.ok() && !wait.done; ++i) {
    wait = load.wait_past(end, after_seconds(0.05));
  }
  return wait.status;
}

std::shared_ptr<Device> host_device() {
  auto platform = find_platform("host", {});
  REQUIRE(platform.ok());
  auto device = (*platform)->open(0);
  REQUIRE(device.ok());
  return *device;
}

// Loads everything through small windows, each placed when it is wanted; whether all bytes agree.
bool loads_right(Setup& setup, DeviceLoadOptions options, std::mt19937& random) {
  const auto windows = random_windows(setup.space, random, 3'000'000);
  const auto load = setup.start(std::move(options));
  bool right = true;
  for (size_t i = 0; i < windows.size(); ++i) {
    REQUIRE(place(*load, windows, i).ok());
    if (random() % 3 != 0) continue;  // a consumer that looks now and then
    wait_all(*load, windows[i].end);
    right = right && setup.holds(windows[i].begin, windows[i].end, windows[i].memory->aligned());
  }
  wait_all(*load, setup.space);
  for (const Placed& window : windows) {
    right = right && setup.holds(window.begin, window.end, window.memory->aligned());
  }
  CHECK(load->close(after_seconds(60)) == 0);
  return right;
}

TEST_CASE("random plans reach the device byte for byte, whatever the device's pace") {
  for (unsigned seed = 0; seed < 12; ++seed) {
    std::mt19937 random(seed);
    for (const std::string& engine : testing::test_engines()) {
      std::shared_ptr<Device> device;
      if (seed % 3 == 0) {
        device = host_device();
      } else {
        device = std::make_shared<ScriptedDevice>(Script{static_cast<int>(random() % 20), "", 0});
      }
      Setup setup({(7UL << 20) + 5, 1 + random() % 5'000'000, 4096, 1}, device, 1 + random() % 4);
      if (random() % 2 == 0) {
        setup.plan_whole();
      } else {
        setup.plan_parts(random);
      }
      DeviceLoadOptions options;
      options.engine = engine;
      options.depth = 1 + random() % 8;
      options.use_page_cache = random() % 2 == 0;
      CHECK(loads_right(setup, options, random));
    }
  }
}

// The check above must be able to fail: with events that are done too early, slots are read into
// again while copies from them are still to run.
TEST_CASE("a slot that is used again before its copy has run is found out") {
  std::mt19937 random(1);
  Script script;
  script.lies = true;
  Setup setup({8UL << 20}, std::make_shared<ScriptedDevice>(script), 1);
  setup.plan_whole();
  CHECK_FALSE(loads_right(setup, {}, random));
}

TEST_CASE("the digest is that of the content") {
  std::mt19937 random(2);
  Setup setup({(2UL << 20) + 5, 0, 4096}, host_device(), 5);
  // A leaf has to fit into a slot.
  auto ring = PinnedRing::create(setup.device, 4 * kDigestLeafBytes, kDigestLeafBytes, "");
  REQUIRE(ring.ok());
  setup.ring = *ring;
  setup.plan_whole();
  const auto load = setup.start({kBlock, "auto", 0, true});
  const auto windows = random_windows(setup.space, random, 1'000'000);
  for (size_t i = 0; i < windows.size(); ++i) REQUIRE(place(*load, windows, i).ok());
  wait_all(*load, setup.space);
  const auto digests = load->digests(after_seconds(60));
  REQUIRE(digests.ok());
  for (size_t i = 0; i < setup.contents.size(); ++i) {
    FileDigest digest(setup.contents[i].size());
    for (size_t leaf = 0; leaf < digest.leaves(); ++leaf) {
      const size_t at = leaf * kDigestLeafBytes;
      digest.set_leaf(leaf,
                      std::span(setup.contents[i])
                          .subspan(at, std::min(kDigestLeafBytes, setup.contents[i].size() - at)));
    }
    CHECK((*Result(digests))[i] == digest.hex());
  }
}

TEST_CASE("a digest wants slots that take a leaf") {
  Setup setup({4UL << 20}, host_device(), 2);
  setup.plan_whole();
  const auto load = DeviceLoad::start(setup.files, setup.extents, setup.space, setup.ring,
                                      setup.quarantine, {kBlock, "auto", 0, true});
  REQUIRE_FALSE(load.ok());
  CHECK(load.status().detail().code == Code::kUsage);
}

TEST_CASE("reads run ahead of the windows, and a window waits for nobody else's") {
  Setup setup({10UL << 20}, host_device(), 3);
  setup.plan_whole();
  const auto load = setup.start();
  CHECK(load->wait_past(1, after_seconds(0.05)).done == false);
  // The boundary lies inside of a block: the first window's share of it must not wait for the next.
  const std::vector<Placed> windows{
      {0, 5 * kBlock, std::make_shared<DeviceMemory>(5 * kBlock)},
      {4 * kBlock, setup.space, std::make_shared<DeviceMemory>(setup.space)}};
  REQUIRE(place(*load, windows, 0).ok());
  wait_all(*load, 5 * kBlock);
  CHECK(setup.holds(0, 5 * kBlock, windows[0].memory->aligned()));
  CHECK(load->wait_past(5 * kBlock + 1, after_seconds(0.05)).done == false);
  REQUIRE(place(*load, windows, 1).ok());
  wait_all(*load, setup.space);
  CHECK(setup.holds(windows[1].begin, setup.space, windows[1].memory->aligned()));
}

TEST_CASE("windows out of order, or off the blocks, are refused") {
  Setup setup({1UL << 20}, host_device(), 1);
  setup.plan_whole();
  const auto load = setup.start();
  const auto memory = std::make_shared<DeviceMemory>(1UL << 20);
  std::byte* at = memory->aligned();
  CHECK_FALSE(load->place({1, kBlock, at, memory, {}}, kBlock).ok());
  CHECK_FALSE(load->place({0, 4 * kBlock, at, memory, {}}, kBlock).ok());
  REQUIRE(load->place({0, kBlock, at, memory, {}}, kBlock).ok());
  CHECK_FALSE(load->place({0, kBlock, at, memory, {}}, kBlock).ok());
}

TEST_CASE("extents that share a block are refused") {
  Setup setup({1UL << 20}, host_device(), 1);
  setup.extents = {{0, 0, 100, 0}, {0, 200, 100, 200}};
  setup.space = 4096;
  const auto load = DeviceLoad::start(setup.files, setup.extents, setup.space, setup.ring,
                                      setup.quarantine, {kBlock});
  REQUIRE_FALSE(load.ok());
  CHECK(load.status().detail().code == Code::kUsage);
}

TEST_CASE("a move within the device has run when it says so") {
  Setup setup({1UL << 20}, std::make_shared<ScriptedDevice>(Script{}), 1);
  setup.plan_whole();
  const auto load = setup.start();
  const std::vector<Placed> windows{{0, setup.space, std::make_shared<DeviceMemory>(setup.space)}};
  REQUIRE(place(*load, windows, 0).ok());
  wait_all(*load, setup.space);
  const auto home = std::make_shared<DeviceMemory>(1000);
  std::byte* from = windows[0].memory->aligned();
  auto ticket =
      load->move({{home->aligned(), from + 8, 500}, {home->aligned() + 512, from, 8}}, home);
  REQUIRE(ticket.ok());
  auto moved = load->wait_moved(*ticket, after_seconds(60));
  REQUIRE(moved.ok());
  CHECK(*moved);
  CHECK(setup.holds(8, 508, home->aligned()));
  CHECK(setup.holds(0, 8, home->aligned() + 512));
}

TEST_CASE("whichever call of the device fails, the next load works") {
  for (const char* call : {"copy", "record", "done", "create_event"}) {
    for (const int at : {1, 2, 5}) {
      std::mt19937 random(3);
      auto device = std::make_shared<ScriptedDevice>(Script{3, call, at});
      Setup setup({9UL << 20}, device, 2);
      setup.plan_whole();
      bool met = true;
      {
        const auto windows = random_windows(setup.space, random, 2'000'000);
        const auto load = setup.start();
        Status failure;
        for (size_t i = 0; failure.ok() && i < windows.size(); ++i) {
          failure = place(*load, windows, i);
        }
        if (failure.ok()) failure = load->wait_past(setup.space, after_seconds(60)).status;
        // Few events are made: they are used again.
        if (failure.ok()) {
          CHECK(std::string(call) == "create_event");
          met = false;
        } else {
          CHECK(failure.detail().code == Code::kDevice);
          CHECK(failure.detail().reason == "scripted failure of " + std::string(call));
        }
        CHECK(load->close(after_seconds(60)) == 0);
        CHECK(setup.quarantine->reap() == 0);
      }
      // What this load did not meet, the next one might.
      if (met) CHECK(loads_right(setup, {}, random));
    }
  }
}

TEST_CASE("a copy that outlives its deadline keeps ring and window until it has run") {
  auto device = std::make_shared<ScriptedDevice>(Script{});
  Setup setup({4UL << 20}, device, 2);
  setup.plan_whole();
  DeviceLoadOptions options;
  options.stall_timeout_s = 0.2;
  device->hold(true);
  auto load = setup.start(options);
  std::weak_ptr<DeviceMemory> window;
  std::weak_ptr<PinnedRing> ring = setup.ring;
  {
    const std::vector<Placed> windows{
        {0, setup.space, std::make_shared<DeviceMemory>(setup.space)}};
    window = windows[0].memory;
    REQUIRE(place(*load, windows, 0).ok());
  }
  const Status failure = failure_of(*load, setup.space);
  REQUIRE_FALSE(failure.ok());
  CHECK(failure.detail().code == Code::kDeadline);
  CHECK(failure.detail().reason == "scripted device 3 has not finished a copy for 0.2 s");
  CHECK(load->close(after_seconds(0.05)) == setup.ring->open_bytes());
  load.reset();
  setup.ring.reset();
  // Nobody but the quarantine holds them now; and the late copies run into memory that lives.
  CHECK_FALSE(window.expired());
  CHECK_FALSE(ring.expired());
  CHECK(setup.quarantine->reap() > 0);
  const size_t before = device->bytes_run();
  device->hold(false);
  const TimePoint deadline = after_seconds(60);
  while (setup.quarantine->reap() > 0 && Clock::now() < deadline) std::this_thread::yield();
  CHECK(device->bytes_run() > before);
  CHECK(window.expired());
  CHECK(ring.expired());
}

TEST_CASE("a device that hangs outside of a copy is given up, too") {
  auto device = std::make_shared<ScriptedDevice>(Script{});
  Setup setup({4UL << 20}, device, 2);
  setup.plan_whole();
  auto user = device->create_stream();
  REQUIRE(user.ok());
  device->block_waits(true);
  DeviceLoadOptions options;
  options.stall_timeout_s = 0.2;
  const auto load = setup.start(options);
  const auto memory = std::make_shared<DeviceMemory>(setup.space);
  REQUIRE(load->place({0, setup.space, memory->aligned(), memory, *user}, UINT64_MAX).ok());
  const Status failure = failure_of(*load, setup.space);
  REQUIRE_FALSE(failure.ok());
  CHECK(failure.detail().code == Code::kDeadline);
  CHECK(failure.detail().reason == "scripted device 3 has not answered for 0.2 s");
  CHECK(load->close(after_seconds(0.05)) > 0);
  device->block_waits(false);
  const TimePoint deadline = after_seconds(60);
  while (setup.quarantine->reap() > 0 && Clock::now() < deadline) std::this_thread::yield();
  CHECK(setup.quarantine->reap() == 0);
  REQUIRE(device->destroy_stream(*user).ok());
}

TEST_CASE("a file that ends early is an error with its place, and everything comes back") {
  Setup setup({4UL << 20}, std::make_shared<ScriptedDevice>(Script{}), 2);
  setup.plan_whole();
  setup.temps[0]->truncate(1UL << 20);
  const auto load = setup.start();
  const std::vector<Placed> windows{{0, setup.space, std::make_shared<DeviceMemory>(setup.space)}};
  (void)place(*load, windows, 0);
  const Load::Wait wait = load->wait_past(setup.space, after_seconds(60));
  REQUIRE_FALSE(wait.status.ok());
  CHECK(wait.status.detail().code == Code::kTruncated);
  CHECK(wait.status.detail().path == setup.temps[0]->path());
  CHECK(load->close(after_seconds(60)) == 0);
}

TEST_CASE("a ring opens segment by segment, and not for reads that need no more slots") {
  std::mt19937 random(5);
  Setup setup({100UL << 20}, std::make_shared<ScriptedDevice>(Script{}), 64);
  const size_t first = setup.ring->open_slots();
  CHECK(first == 32);
  CHECK(setup.ring->size() == 64 * kSlot);
  setup.plan_whole();
  DeviceLoadOptions options;
  options.depth = 4;
  CHECK(loads_right(setup, options, random));
  CHECK(setup.ring->open_slots() == first);
  CHECK(setup.ring->grow());
  CHECK(setup.ring->open_slots() == 64);
  CHECK_FALSE(setup.ring->grow());
  CHECK(loads_right(setup, options, random));
}

TEST_CASE("a ring that cannot be registered says so and serves all the same") {
  std::mt19937 random(4);
  auto device = std::make_shared<ScriptedDevice>(Script{3, "pin", 1});
  Setup setup({3UL << 20}, device, 2);
  CHECK(setup.ring->reason().find("scripted failure of pin") == 0);
  setup.plan_whole();
  CHECK(loads_right(setup, {}, random));
}

TEST_CASE("copies into a window wait for the stream that may still use its memory") {
  auto device = std::make_shared<ScriptedDevice>(Script{});
  Setup setup({6UL << 20}, device, 3);
  setup.plan_whole();
  auto user = device->create_stream();
  REQUIRE(user.ok());
  const std::vector<Placed> windows{{0, setup.space, std::make_shared<DeviceMemory>(setup.space)}};
  // What the former user of the memory has queued, and not yet run, is to land before ours.
  std::vector<std::byte> late(setup.space, std::byte{0x11});
  REQUIRE(device
              ->copy({windows[0].memory->aligned(), late.data(), late.size()},
                     CopyKind::kDeviceToDevice, *user)
              .ok());
  {
    const auto load = setup.start();
    REQUIRE(load->place({0, setup.space, windows[0].memory->aligned(), windows[0].memory, *user},
                        UINT64_MAX)
                .ok());
    wait_all(*load, setup.space);
    CHECK(load->close(after_seconds(60)) == 0);
  }
  auto idle = device->stream_idle(*user);
  REQUIRE(idle.ok());
  CHECK(*idle);
  CHECK(setup.holds(0, setup.space, windows[0].memory->aligned()));
  REQUIRE(device->destroy_stream(*user).ok());
}

}  // namespace
}  // namespace fxload
