#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/quarantine.h"
#include "base/status.h"
#include "io/file.h"
#include "memory/memory_pool.h"
#include "memory/region.h"
#include "pipeline/read_stats.h"

namespace fxload {

// One planned read: `length` bytes of a file to an offset of the destination.
struct Extent {
  uint64_t file = 0;
  uint64_t file_offset = 0;
  uint64_t length = 0;
  uint64_t destination = 0;
};

struct LoadOptions {
  size_t budget_bytes = 0;  // destination memory alive at once; 0: no bound
  std::string engine = "auto";
  size_t request_bytes = 0;  // a power of two; 0: chosen
  size_t depth = 0;          // 0: chosen
  bool digest = false;       // needs whole files planned
  bool use_page_cache = true;
  double stall_timeout_s = 120;
};

struct LoadStats : ReadStats {
  uint64_t over_budget_bytes = 0;
  uint64_t peak_bytes = 0;   // destination memory alive at once
  bool small_pages = false;  // huge pages cost too much here
};

// Reads extents of files into a Region, in order of destination, keeping a deep queue in flight.
//
//   prepare   workers place windows and touch their pages ahead of the reads, within the budget
//   read      one thread a lane owns a reader: direct reads, and reads through the page cache
//   land      completions advance a watermark; leaves are digested by the workers
//
// wait_past() may be called by one thread at a time; everything else by any. A deadline abandons
// the wait, never the memory: close() hands threads that the kernel still holds, together with all
// that they may still write to, to the quarantine.
class Load {
 public:
  static Result<std::unique_ptr<Load>> start(std::vector<std::shared_ptr<File>> files,
                                             std::span<const Extent> extents, uint64_t space_bytes,
                                             std::shared_ptr<MemoryPool> pool,
                                             std::shared_ptr<Quarantine> quarantine,
                                             const LoadOptions& options);
  Load(const Load&) = delete;
  ~Load();

  struct Wait {
    uint64_t landed = 0;  // every planned byte below this destination has landed
    bool done = false;    // landed >= end
    Status status;        // set when `end` will never be reached
  };
  // Waits until all below `end` has landed, but no longer than `deadline`. Bytes that the budget
  // holds back are read all the same, and counted as over budget.
  Wait wait_past(uint64_t end, TimePoint deadline);

  // The range must have landed and not been released.
  Result<RegionLease> lease(uint64_t offset, size_t length) const;
  // Windows that end at or below `offset` live on only in their leases.
  void release_before(uint64_t offset);

  Result<std::vector<std::string>> digests(TimePoint deadline) const;
  LoadStats stats() const;
  // Returns the bytes that are still in flight, and now quarantined.
  uint64_t close(TimePoint deadline);

 private:
  struct State;
  Load(std::shared_ptr<State> state, std::shared_ptr<Quarantine> quarantine);

  std::shared_ptr<State> state_;
  std::shared_ptr<Quarantine> quarantine_;
  std::vector<Worker> workers_;
  std::vector<Worker> lanes_;
  pid_t owner_pid_;
};

}  // namespace fxload
