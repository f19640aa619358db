#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/quarantine.h"
#include "io/reader.h"
#include "pipeline/chunks.h"
#include "pipeline/lane.h"
#include "pipeline/read_stats.h"
#include "pipeline/tuning.h"

namespace fxload {

// The reading side of a pipeline: one lane for direct reads, one for reads through the page cache,
// made as far as the chunks need them. Thread-safe once started.
class Lanes {
 public:
  static Result<std::unique_ptr<Lanes>> create(std::span<const std::shared_ptr<File>> files,
                                               std::span<const Chunk> chunks,
                                               const std::string& engine, const Tuning& storage,
                                               const Tuning& memory, FixedMemory fixed);

  const ReadPath& path() const { return path_; }

  // Reads the chunk into `into`; its completion carries `tag`.
  void push(const File& file, const Chunk& chunk, std::byte* into, uint64_t tag);
  // Starts a thread for each lane. on_done (called on them) and `owner`, which must own these
  // lanes and all memory that is read into, live as long as the threads.
  Status start(std::shared_ptr<void> owner, const Lane::OnDone& on_done,
               std::vector<Worker>* threads);
  // Whatever is still queued is reported as not read; the threads end once nothing is in flight.
  void stop();

 private:
  std::unique_ptr<Lane> direct_;
  std::unique_ptr<Lane> cached_;
  ReadPath path_;
};

}  // namespace fxload
