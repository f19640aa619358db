#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "device/device.h"

namespace fxload::testing {

// A device that runs copies as late as it may: at the moment when the event behind them is said to
// be done. Whoever uses a source again before that is found out by the bytes.
class ScriptedDevice : public Device {
 public:
  struct Script {
    int polls_until_done = 3;  // an event is done when it has been asked for so often
    std::string failing_call;  // "copy", "record", "done", "create_event", "pin"
    int failing_at = 0;        // the n-th such call, from 1; 0: none
    bool lies = false;         // says that events are done before the copies have run
  };

  explicit ScriptedDevice(Script script) : script_(std::move(script)) {}
  ~ScriptedDevice() override;

  // Calls of stream_wait block, as in a runtime that hangs, until it is over.
  void block_waits(bool blocked);
  // No copy runs while it holds.
  void hold(bool held);
  size_t bytes_run() const;

  const DeviceTraits& traits() const override { return traits_; }
  int index() const override { return 3; }
  const DeviceInfo& info() const override { return info_; }
  Status select() override { return {}; }
  Result<MemoryInfo> memory() override { return MemoryInfo{1 << 20, 1 << 20}; }
  Result<std::byte*> allocate(size_t size) override;
  Status release(std::byte* memory) override;
  Status pin(std::span<std::byte> memory) override;
  Status unpin(std::byte* memory) override;
  Result<std::byte*> allocate_pinned(size_t size) override { return allocate(size); }
  Status release_pinned(std::byte* memory) override { return release(memory); }
  Result<StreamHandle> create_stream() override;
  Status destroy_stream(StreamHandle stream) override;
  Result<bool> stream_idle(StreamHandle stream) override;
  Status stream_wait(StreamHandle stream, EventHandle event) override;
  Result<EventHandle> create_event() override;
  Status destroy_event(EventHandle event) override;
  Status record(EventHandle event, StreamHandle stream) override;
  Result<bool> done(EventHandle event) override;
  Result<double> elapsed_s(EventHandle, EventHandle) override { return 0.0; }
  Status copy(const CopyPiece& piece, CopyKind kind, StreamHandle stream) override;
  Status copy_batch(std::span<const CopyPiece> pieces, CopyKind kind, StreamHandle stream) override;

 private:
  struct Stream;
  struct Work {  // a copy; or a wait for copies of another stream
    CopyPiece piece;
    Stream* awaited = nullptr;
    size_t until = 0;
  };
  struct Stream {
    std::deque<Work> queued;
    size_t run = 0;
    size_t submitted = 0;
  };
  struct Event {
    Stream* stream = nullptr;
    size_t behind = 0;  // work of the stream that it waits for
    int polls = 0;
  };

  Status count(const std::string& call);  // mutex held
  void run(Stream& stream, size_t until);

  const Script script_;
  const DeviceTraits traits_{"scripted", "cpu", 256, 64, true};
  const DeviceInfo info_;
  mutable std::mutex mutex_;
  bool held_ = false;
  bool waits_blocked_ = false;
  std::condition_variable unblocked_;
  size_t bytes_run_ = 0;
  std::map<std::string, int> calls_;
  std::set<std::byte*> allocations_;
  std::set<std::byte*> pinned_;
  std::set<Stream*> streams_;
  std::set<Event*> events_;
};

}  // namespace fxload::testing
