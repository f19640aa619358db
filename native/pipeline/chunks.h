#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "io/file.h"
#include "pipeline/tuning.h"

namespace fxload {

struct Extent;

// How the bytes of a chunk come in.
enum class Route : uint8_t {
  kDirect,    // O_DIRECT
  kCached,    // copied from the page cache or tmpfs
  kBuffered,  // from storage through the page cache
};

// One request of a load.
struct Chunk {
  uint32_t file = 0;
  Route route = Route::kDirect;
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t destination = 0;
};

// Checks extents against files and destination, then cuts them along a grid of file offsets into
// requests, each with its route. Asks the page cache what is resident; does no other I/O.
Result<std::vector<Chunk>> cut_chunks(std::span<const std::shared_ptr<File>> files,
                                      std::span<const Extent> extents, uint64_t space_bytes,
                                      bool use_page_cache, size_t storage_request_bytes,
                                      size_t memory_request_bytes);

}  // namespace fxload
