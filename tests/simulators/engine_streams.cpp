// Streams and events of the engine.
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

#include "engine.h"

namespace fxsim {
namespace {

// Signals are for the threads of the program that uses the runtime.
std::thread quiet_thread(std::function<void()> work) {
  sigset_t all;
  sigset_t former;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &former);
  std::thread thread(std::move(work));
  pthread_sigmask(SIG_SETMASK, &former, nullptr);
  pthread_setname_np(thread.native_handle(), "fxsim-stream");
  return thread;
}

}  // namespace

// Called with the lock held. nullptr is the default stream of `device`.
int Engine::find_stream(const char* function, void* handle, int device, Stream** stream) {
  if (handle == nullptr) {
    Stream*& own = default_streams_[device];
    if (own == nullptr) {
      own = new Stream;
      own->device = device;
      own->stops = !kTraits.goes_on_after_failure;
    }
    *stream = own;
    return 0;
  }
  if (!streams_.contains(handle)) {
    return violate(function, hex(handle) + " is no stream", kTraits.codes.bad_stream);
  }
  *stream = static_cast<Stream*>(handle);
  if ((*stream)->destroyed) {
    return violate(function, "the stream was destroyed", kTraits.codes.bad_stream);
  }
  return 0;
}

int Engine::find_event(const char* function, void* handle, Event** event) {
  if (!events_.contains(handle)) {
    return violate(function, hex(handle) + " is no event", kTraits.codes.bad_event);
  }
  *event = static_cast<Event*>(handle);
  if ((*event)->destroyed) {
    return violate(function, "the event was destroyed", kTraits.codes.bad_event);
  }
  return 0;
}

std::vector<Stream*> Engine::all_streams() const {
  std::vector<Stream*> all;
  for (void* each : streams_) all.push_back(static_cast<Stream*>(each));
  for (const auto& [device, stream] : default_streams_) all.push_back(stream);
  return all;
}

int Engine::create_stream(void** stream) {
  const Lock lock(mutex_);
  int device = 0;
  if (const int status = use_device(&device)) return status;
  auto* made = new Stream;
  made->device = device;
  made->stops = !kTraits.goes_on_after_failure;
  streams_.insert(made);
  ledger_.streams.add(1);
  *stream = made;
  return 0;
}

int Engine::stop_on_failure(const char* function, void* handle, bool stops) {
  const Lock lock(mutex_);
  int device = 0;
  Stream* stream = nullptr;
  if (const int status = use_device(&device)) return status;
  if (const int status = find_stream(function, handle, device, &stream)) return status;
  stream->stops = stops;
  return 0;
}

int Engine::destroy_stream(const char* function, void* handle, bool drain) {
  Lock lock(mutex_);
  int device = 0;
  Stream* stream = nullptr;
  if (const int status = use_device(&device)) return status;
  if (handle == nullptr) return kTraits.codes.bad_stream;
  if (const int status = find_stream(function, handle, 0, &stream)) return status;
  if (drain) static_cast<void>(drain_locked(lock, *stream, -1));
  stream->destroyed = true;
  ledger_.streams.add(-1);
  changed_.notify_all();
  return 0;
}

int Engine::stream_status(const char* function, void* handle) {
  const Lock lock(mutex_);
  int device = 0;
  Stream* stream = nullptr;
  if (const int status = use_device(&device)) return status;
  if (const int status = find_stream(function, handle, device, &stream)) return status;
  if (stream->finished < stream->submitted) return kTraits.codes.not_ready;
  return stream->error;
}

int Engine::drain_locked(Lock& lock, Stream& stream, int64_t timeout_ms) {
  const uint64_t target = stream.submitted;
  const auto drained = [&] { return stream.finished >= target; };
  if (timeout_ms < 0) {
    changed_.wait(lock, drained);
  } else if (!changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), drained)) {
    return kTraits.codes.timed_out;
  }
  return stream.error;
}

int Engine::drain(const char* function, void* handle, int64_t timeout_ms) {
  Lock lock(mutex_);
  int device = 0;
  Stream* stream = nullptr;
  if (const int status = use_device(&device)) return status;
  if (const int status = find_stream(function, handle, device, &stream)) return status;
  return drain_locked(lock, *stream, timeout_ms);
}

int Engine::drain_device() {
  Lock lock(mutex_);
  int device = 0;
  if (const int status = use_device(&device)) return status;
  int result = 0;
  // Streams are never deleted, and one that is made meanwhile need not be waited for.
  for (Stream* stream : all_streams()) {
    if (stream->device != device || stream->destroyed) continue;
    if (const int status = drain_locked(lock, *stream, -1)) result = status;
  }
  return result;
}

int Engine::stream_wait(const char* function, void* handle, void* event_handle) {
  const Lock lock(mutex_);
  int device = 0;
  Stream* stream = nullptr;
  Event* event = nullptr;
  if (const int status = use_device(&device)) return status;
  if (const int status = find_stream(function, handle, device, &stream)) return status;
  if (const int status = find_event(function, event_handle, &event)) return status;
  if (event->latest != nullptr && !event->latest->done) submit(*stream, {Await{event->latest}, {}});
  return 0;
}

int Engine::create_event(void** event, bool timed) {
  const Lock lock(mutex_);
  int device = 0;
  if (const int status = use_device(&device)) return status;
  auto* made = new Event;
  made->device = device;
  made->timed = timed;
  events_.insert(made);
  ledger_.events.add(1);
  *event = made;
  return 0;
}

int Engine::destroy_event(const char* function, void* handle) {
  const Lock lock(mutex_);
  int device = 0;
  Event* event = nullptr;
  if (const int status = use_device(&device)) return status;
  if (const int status = find_event(function, handle, &event)) return status;
  event->destroyed = true;
  event->latest.reset();
  ledger_.events.add(-1);
  return 0;
}

int Engine::record(const char* function, void* event_handle, void* stream_handle) {
  const Lock lock(mutex_);
  int device = 0;
  Stream* stream = nullptr;
  Event* event = nullptr;
  if (const int status = use_device(&device)) return status;
  if (const int status = find_event(function, event_handle, &event)) return status;
  if (const int status = find_stream(function, stream_handle, device, &stream)) return status;
  if (event->device != stream->device) {
    return violate(function, "event and stream belong to different devices",
                   kTraits.codes.bad_event);
  }
  event->latest = std::make_shared<Record>();
  submit(*stream, {Signal{event->latest}, {}});
  return 0;
}

int Engine::event_status(const char* function, void* handle) {
  const Lock lock(mutex_);
  int device = 0;
  Event* event = nullptr;
  if (const int status = use_device(&device)) return status;
  if (const int status = find_event(function, handle, &event)) return status;
  if (event->latest == nullptr) return 0;
  return event->latest->done ? event->latest->error : kTraits.codes.not_ready;
}

int Engine::wait_for(const char* function, void* handle) {
  Lock lock(mutex_);
  int device = 0;
  Event* event = nullptr;
  if (const int status = use_device(&device)) return status;
  if (const int status = find_event(function, handle, &event)) return status;
  const auto record = event->latest;
  if (record == nullptr) return 0;
  changed_.wait(lock, [&] { return record->done; });
  return record->error;
}

int Engine::elapsed_ms(const char* function, void* begin, void* end, float* result) {
  const Lock lock(mutex_);
  Event* first = nullptr;
  Event* last = nullptr;
  if (const int status = find_event(function, begin, &first)) return status;
  if (const int status = find_event(function, end, &last)) return status;
  if (!first->timed || !last->timed) {
    return violate(function, "the event was made without a time", kTraits.codes.bad_event);
  }
  if (first->latest == nullptr || last->latest == nullptr) return kTraits.codes.bad_event;
  if (!first->latest->done || !last->latest->done) return kTraits.codes.not_ready;
  const std::chrono::duration<float, std::milli> passed = last->latest->time - first->latest->time;
  *result = passed.count();
  return 0;
}

void Engine::submit(Stream& stream, Operation operation) {
  operation.submitted = Clock::now();
  stream.submitted++;
  if (auto* copy = std::get_if<Copy>(&operation.what)) {
    copy->sequence = stream.submitted;
  } else if (const auto* await = std::get_if<Await>(&operation.what)) {
    for (const auto& [other, over] : await->record->order) {
      stream.order[other] = std::max(stream.order[other], over);
    }
  } else {
    Record& record = *std::get<Signal>(operation.what).record;
    record.order = stream.order;
    record.order[&stream] = stream.submitted;
  }
  stream.queue.push_back(std::move(operation));
  if (!stream.served) {
    stream.served = true;
    quiet_thread([this, &stream] { serve(stream); }).detach();
  }
  changed_.notify_all();
}

// The thread of a stream.
void Engine::serve(Stream& stream) {
  Lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return !stream.queue.empty() || stream.destroyed; });
    if (stream.queue.empty()) return;
    // A copy stays in the queue while it runs, so that whoever frees its memory is found out.
    // Nobody else takes from the queue, and what is added does not move the first.
    Operation& first = stream.queue.front();
    if (const auto* copy = std::get_if<Copy>(&first.what)) {
      run_copy(lock, stream, *copy, first.submitted);
      ledger_.queued--;
    } else if (const auto* await = std::get_if<Await>(&first.what)) {
      const auto record = await->record;
      changed_.wait(lock, [&] { return record->done; });
      stream.free_at = std::max(stream.free_at, record->time);
    } else {
      Record& record = *std::get<Signal>(first.what).record;
      record.time = std::max(stream.free_at, first.submitted);
      record.error = stream.error;
      record.done = true;
    }
    stream.queue.pop_front();
    stream.finished++;
    changed_.notify_all();
  }
}

}  // namespace fxsim
