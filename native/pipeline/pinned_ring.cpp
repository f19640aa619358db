#include "pipeline/pinned_ring.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <system_error>
#include <thread>

#include "io/file.h"
#include "memory/placement.h"
#include "memory/region.h"

namespace fxload {
namespace {

// A whole number of blocks of any storage.
constexpr size_t kProbeBytes = size_t{64} << 10;
// Touched and registered in some 10 ms, and enough to start with.
constexpr size_t kSegmentBytes = size_t{64} << 20;

std::string locked_memory_limit(size_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      limit.rlim_cur >= wanted) {
    return "";
  }
  return "; RLIMIT_MEMLOCK allows " + std::to_string(limit.rlim_cur) + " bytes of " +
         std::to_string(wanted) + " (ulimit -l unlimited)";
}

}  // namespace

PinnedRing::PinnedRing(std::shared_ptr<Device> device, size_t slots, size_t slot_bytes)
    : device_(std::move(device)),
      slots_(slots),
      slot_bytes_(slot_bytes),
      slots_of_segment_(std::min(slots, std::max<size_t>(1, kSegmentBytes / slot_bytes))) {
  segments_.reserve((slots_ + slots_of_segment_ - 1) / slots_of_segment_);
}

Result<std::shared_ptr<PinnedRing>> PinnedRing::create(std::shared_ptr<Device> device, size_t size,
                                                       size_t slot_bytes,
                                                       const std::string& probe_path) {
  if (slot_bytes == 0 || slot_bytes % kHugePageBytes != 0 || size < slot_bytes) {
    return Status::error(Code::kUsage,
                         "a ring needs slots of a multiple of 2 MiB, and at least one of them");
  }
  if (Status status = device->select(); !status.ok()) return status;
  auto ring =
      std::shared_ptr<PinnedRing>(new PinnedRing(std::move(device), size / slot_bytes, slot_bytes));
  if (Status status = ring->open_first(probe_path); !status.ok()) return status;
  return ring;
}

// Decides how all segments are pinned.
Status PinnedRing::open_first(const std::string& probe_path) {
  Result<Segment> mapped = map_segment();
  if (!mapped.ok()) return mapped.status();
  segments_.push_back(std::move(*mapped));
  Segment& first = segments_.front();
  numa_node_ = numa_node_of(first.bytes.data());
  if (Status status = device_->pin(first.bytes); status.ok()) {
    method_ = "registered";
    direct_ = probe_direct(probe_path, first.bytes);
    if (direct_ != Direct::kRefused) return {};
    reason_ = "registered memory takes no direct reads here";
    close_segment(first);
    method_ = "none";
  } else {
    reason_ = status.detail().reason + locked_memory_limit(size());
  }
  Result<std::byte*> other = device_->allocate_pinned(first.bytes.size());
  if (!other.ok()) {
    reason_ += "; nor does the runtime allocate any: " + other.status().detail().reason;
  } else if (const Direct direct = probe_direct(probe_path, {*other, first.bytes.size()});
             direct == Direct::kWorks) {
    method_ = "runtime";
    direct_ = direct;
    numa_node_ = numa_node_of(*other);
    first = {RingMemory(), {*other, first.bytes.size()}};
    return {};
  } else {
    reason_ += direct == Direct::kRefused ? "; the runtime's own memory takes no direct reads"
                                          : "; no file to prove the runtime's own memory with";
    (void)device_->release_pinned(*other);
  }
  direct_ = probe_direct(probe_path, first.bytes);
  return {};
}

Result<PinnedRing::Segment> PinnedRing::map_segment() const {
  const size_t slots = std::min(slots_of_segment_, slots_ - open_slots());
  Result<RingMemory> memory = RingMemory::create(slots * slot_bytes_, device_->info().numa_node);
  if (!memory.ok()) return memory.status();
  Segment segment{std::move(*memory), {}};
  segment.bytes = segment.mapped.bytes();
  // After a fork the next read into a shared page would get a new one, and the device would go on
  // copying from the old.
  (void)::madvise(segment.bytes.data(), segment.bytes.size(), MADV_DONTFORK);
  return segment;
}

Result<PinnedRing::Segment> PinnedRing::open_segment() const {
  if (method_ == "runtime") {
    const size_t bytes = std::min(slots_of_segment_, slots_ - open_slots()) * slot_bytes_;
    Result<std::byte*> memory = device_->allocate_pinned(bytes);
    if (!memory.ok()) return memory.status();
    return Segment{RingMemory(), {*memory, bytes}};
  }
  Result<Segment> segment = map_segment();
  if (segment.ok() && method_ == "registered") {
    if (Status status = device_->pin(segment->bytes); !status.ok()) return status;
  }
  return segment;
}

void PinnedRing::close_segment(const Segment& segment) const {
  // Nobody can be told: what a broken device does not take back ends with the process.
  if (method_ == "runtime") (void)device_->release_pinned(segment.bytes.data());
  if (method_ == "registered") (void)device_->unpin(segment.bytes.data());
}

bool PinnedRing::grow() {
  {
    const std::lock_guard lock(mutex_);
    if (complete_ || segments_.size() == segments_.capacity()) return false;
  }
  Result<Segment> segment = open_segment();
  const std::lock_guard lock(mutex_);
  if (segment.ok()) {
    segments_.push_back(std::move(*segment));
  } else {
    complete_ = true;
  }
  return segment.ok();
}

size_t PinnedRing::open_slots() const {
  const std::lock_guard lock(mutex_);
  return std::min(slots_, segments_.size() * slots_of_segment_);
}

std::byte* PinnedRing::slot(size_t index) const {
  const std::lock_guard lock(mutex_);
  return segments_[index / slots_of_segment_].bytes.data() +
         index % slots_of_segment_ * slot_bytes_;
}

PinnedRing::Direct PinnedRing::probe_direct(const std::string& path,
                                            std::span<std::byte> memory) const {
  if (path.empty()) return Direct::kNotProbed;
  const auto works = [&](std::span<std::byte> into) {
    size_t got = 0;
    Result<std::shared_ptr<File>> file = File::open(path, true, into, &got);
    return file.ok() && (*file)->direct().works;
  };
  if (works(memory.first(kProbeBytes))) return Direct::kWorks;
  // A file that no memory takes directly proves nothing about this memory.
  Result<RingMemory> ordinary = RingMemory::create(kProbeBytes, -1);
  if (!ordinary.ok() || !works(ordinary->bytes().first(kProbeBytes))) return Direct::kNotProbed;
  return Direct::kRefused;
}

PinnedRing::~PinnedRing() {
  if (::getpid() != owner_pid_) {
    // The runtime's handles are the parent's, and so are the addresses: nothing of the ring is
    // mapped in a forked child, where they may be somebody else's.
    new std::vector<Segment>(std::move(segments_));
    return;
  }
  const auto close_all = [this] {
    if (!device_->select().ok()) return;
    for (const Segment& segment : segments_) close_segment(segment);
  };
  try {
    std::thread(close_all).join();
  } catch (const std::system_error&) {
    // A limit on threads. Memory that is unmapped while it is registered would be worse than a
    // thread of the caller's that is on another device.
    close_all();
  }
}

}  // namespace fxload
