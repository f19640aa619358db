#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/quarantine.h"
#include "base/status.h"
#include "io/file.h"
#include "pipeline/read_stats.h"

namespace fxload {

struct TransferOptions {
  std::vector<std::string> sinks;  // empty, or a path for each file
  bool digest = true;
  size_t ring_bytes = 0;  // 0: the depth, and as much again as the workers need
  std::string engine = "auto";
  size_t request_bytes = 0;  // a power of two; 0: chosen; with digest or sinks always a leaf
  size_t depth = 0;
  bool use_page_cache = true;
  uint64_t limit_bytes_per_s = 0;
  double stall_timeout_s = 120;
};

struct TransferStats : ReadStats {
  size_t ring_bytes = 0;
  uint64_t done_bytes = 0;  // read, and digested and written as far as that was asked for
};

// Streams every byte of some files through a ring of slots: read, then digested and written to the
// sinks by workers, then the slot is used again. Runs from start() on; thread-safe.
class Transfer {
 public:
  static Result<std::unique_ptr<Transfer>> start(std::vector<std::shared_ptr<File>> files,
                                                 std::shared_ptr<Quarantine> quarantine,
                                                 const TransferOptions& options);
  Transfer(const Transfer&) = delete;
  ~Transfer();

  // True when all is done and durable; false at the deadline.
  Result<bool> wait(TimePoint deadline);
  Result<std::vector<std::string>> digests() const;
  TransferStats stats() const;
  uint64_t close(TimePoint deadline);

 private:
  struct State;
  Transfer(std::shared_ptr<State> state, std::shared_ptr<Quarantine> quarantine);

  std::shared_ptr<State> state_;
  std::shared_ptr<Quarantine> quarantine_;
  std::vector<Worker> workers_;
  std::vector<Worker> lanes_;
  pid_t owner_pid_;
};

}  // namespace fxload
