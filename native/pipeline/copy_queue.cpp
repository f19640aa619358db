#include "pipeline/copy_queue.h"

#include <algorithm>
#include <utility>

namespace fxload {

Result<std::unique_ptr<CopyQueue>> CopyQueue::create(std::shared_ptr<Device> device,
                                                     size_t streams) {
  auto queue = std::unique_ptr<CopyQueue>(new CopyQueue(std::move(device)));
  for (size_t i = 0; i < streams; ++i) {
    Result<StreamHandle> stream = queue->device_->create_stream();
    if (!stream.ok()) return stream.status();
    queue->streams_.push_back(*stream);
  }
  queue->last_run_.resize(streams);
  return queue;
}

CopyQueue::~CopyQueue() {
  for (const Copy& copy : in_flight_) (void)device_->destroy_event(copy.event);
  for (const Order& order : orders_) (void)device_->destroy_event(order.event);
  for (const EventHandle event : free_events_) (void)device_->destroy_event(event);
  for (const StreamHandle stream : streams_) (void)device_->destroy_stream(stream);
}

Result<EventHandle> CopyQueue::take_event() {
  if (free_events_.empty()) return device_->create_event();
  const EventHandle event = free_events_.back();
  free_events_.pop_back();
  return event;
}

Status CopyQueue::submit(uint64_t tag, std::span<const CopyPiece> pieces, CopyKind kind) {
  Result<EventHandle> event = take_event();
  if (!event.ok()) return event.status();
  const uint64_t number = next_number_++;
  const size_t turn = number % streams_.size();
  Status status = pieces.size() == 1 ? device_->copy(pieces.front(), kind, streams_[turn])
                                     : device_->copy_batch(pieces, kind, streams_[turn]);
  if (status.ok()) status = device_->record(*event, streams_[turn]);
  if (status.ok()) {
    in_flight_.push_back({tag, *event, turn, number});
  } else {
    free_events_.push_back(*event);
  }
  return status;
}

Status CopyQueue::order_after(StreamHandle stream) {
  Result<EventHandle> event = take_event();
  if (!event.ok()) return event.status();
  // Waited for by streams that may have been told to wait before a failure, too.
  orders_.push_back({*event, next_number_});
  Status status = device_->record(*event, stream);
  for (const StreamHandle ours : streams_) {
    if (status.ok()) status = device_->stream_wait(ours, *event);
  }
  return status;
}

void CopyQueue::retire_orders() {
  const uint64_t run = *std::min_element(last_run_.begin(), last_run_.end());
  std::erase_if(orders_, [&](const Order& order) {
    if (run < order.number) return false;
    free_events_.push_back(order.event);
    return true;
  });
}

Status CopyQueue::reap(std::vector<uint64_t>* done) {
  Status failure;
  std::erase_if(in_flight_, [&](const Copy& copy) {
    if (!failure.ok()) return false;
    Result<bool> ran = device_->done(copy.event);
    if (!ran.ok()) {
      failure = ran.status();
      return false;
    }
    if (!*ran) return false;
    done->push_back(copy.tag);
    last_run_[copy.stream] = std::max(last_run_[copy.stream], copy.number);
    free_events_.push_back(copy.event);
    return true;
  });
  retire_orders();
  return failure;
}

Result<bool> CopyQueue::idle() {
  for (const StreamHandle stream : streams_) {
    Result<bool> idle = device_->stream_idle(stream);
    if (!idle.ok() || !*idle) return idle;
  }
  return true;
}

}  // namespace fxload
