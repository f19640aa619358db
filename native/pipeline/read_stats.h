#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/clock.h"
#include "pipeline/chunks.h"

namespace fxload {

// How the reads of a pipeline are done, and why so.
struct ReadPath {
  std::string engine;
  std::string engine_reason;
  std::string tuning_reason;
  size_t request_bytes = 0;
  size_t depth = 0;
};

// What every pipeline tells of its reads.
struct ReadStats : ReadPath {
  uint64_t planned_bytes = 0;
  uint64_t landed_bytes = 0;
  uint64_t direct_bytes = 0;    // read with O_DIRECT
  uint64_t cached_bytes = 0;    // were in the page cache, or on tmpfs
  uint64_t buffered_bytes = 0;  // read from storage through the page cache
  uint64_t requests = 0;
  double first_byte_s = 0;
  double elapsed_s = 0;  // to the last byte so far
  uint64_t quarantined_bytes = 0;

  void count(const Chunk& chunk, TimePoint started, TimePoint now) {
    ++requests;
    landed_bytes += chunk.length;
    (chunk.route == Route::kDirect   ? direct_bytes
     : chunk.route == Route::kCached ? cached_bytes
                                     : buffered_bytes) += chunk.length;
    if (first_byte_s == 0) first_byte_s = seconds_between(started, now);
  }
};

}  // namespace fxload
