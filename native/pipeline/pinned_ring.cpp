#include "pipeline/pinned_ring.h"

#include <sys/resource.h>

#include "device/current_device.h"
#include "io/file.h"
#include "memory/placement.h"
#include "memory/region.h"

namespace fxload {
namespace {

// A whole number of blocks of any storage.
constexpr size_t kProbeBytes = size_t{64} << 10;

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

Result<std::shared_ptr<PinnedRing>> PinnedRing::create(std::shared_ptr<Device> device, size_t size,
                                                       size_t slot_bytes,
                                                       const std::string& probe_path) {
  if (slot_bytes == 0 || slot_bytes % kHugePageBytes != 0 || size < slot_bytes) {
    return Status::error(Code::kUsage,
                         "a ring needs slots of a multiple of 2 MiB, and at least one of them");
  }
  const CurrentDevice current(*device);
  if (!current.status().ok()) return current.status();
  const int node = device->info().numa_node;
  auto ring = std::shared_ptr<PinnedRing>(new PinnedRing(std::move(device), slot_bytes));
  Result<RingMemory> memory = RingMemory::create(size / slot_bytes * slot_bytes, node);
  if (!memory.ok()) return memory.status();
  ring->mapped_ = std::move(*memory);
  ring->bytes_ = ring->mapped_.bytes();
  ring->pin(probe_path);
  ring->numa_node_ = numa_node_of(ring->bytes_.data());
  return ring;
}

void PinnedRing::pin(const std::string& probe_path) {
  if (Status status = device_->pin(bytes_); status.ok()) {
    direct_ = probe_direct(probe_path, bytes_);
    if (direct_ != Direct::kRefused) {
      method_ = "registered";
      return;
    }
    reason_ = "registered memory takes no direct reads here";
    if (!device_->unpin(bytes_.data()).ok()) return;
  } else {
    reason_ = status.detail().reason + locked_memory_limit(bytes_.size());
  }
  Result<std::byte*> other = device_->allocate_pinned(bytes_.size());
  if (!other.ok()) {
    reason_ += "; nor does the runtime allocate any: " + other.status().detail().reason;
  } else if (const Direct direct = probe_direct(probe_path, {*other, bytes_.size()});
             direct == Direct::kWorks) {
    of_runtime_ = *other;
    bytes_ = {*other, bytes_.size()};
    mapped_ = RingMemory();
    method_ = "runtime";
    direct_ = direct;
    return;
  } else {
    reason_ += direct == Direct::kRefused ? "; the runtime's own memory takes no direct reads"
                                          : "; no file to prove the runtime's own memory with";
    (void)device_->release_pinned(*other);
  }
  direct_ = probe_direct(probe_path, bytes_);
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
  // The runtime's handles are the parent's: a forked child must not touch them.
  if (::getpid() != owner_pid_) return;
  const CurrentDevice current(*device_);
  if (!current.status().ok()) return;
  if (of_runtime_ != nullptr) {
    (void)device_->release_pinned(of_runtime_);
  } else if (method_ == "registered") {
    (void)device_->unpin(bytes_.data());
  }
}

}  // namespace fxload
