#include "pipeline/chunks.h"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <string>

#include "base/align.h"
#include "io/residency.h"
#include "pipeline/load.h"

namespace fxload {
namespace {

// Where a file stands in the page cache: answers for the whole file at once where that is enough.
class CacheMap {
 public:
  CacheMap(const File& file, bool enabled) : file_(file), enabled_(enabled) {
    if (file.in_memory()) {
      all_ = true;
    } else if (enabled) {
      const Residency whole = probe_residency(file, 0, 0);
      all_ = whole.provable && whole.bytes >= file.size() && file.size() > 0;
      some_ = whole.provable && whole.bytes > 0;
    }
  }

  // Nearly all of it: a hole is read through the cache, which costs less than a direct read of
  // bytes that are already here.
  bool resident(uint64_t offset, uint64_t length) const {
    if (all_) return true;
    if (!enabled_ || !some_) return false;
    return probe_residency(file_, offset, length).bytes * 10 >= length * 9;
  }

 private:
  const File& file_;
  bool enabled_;
  bool all_ = false;
  bool some_ = false;
};

bool fits_direct(const File& file, const Extent& extent) {
  const DirectShape& shape = file.direct();
  if (!shape.works) return false;
  // One unit for all: it is what the plan counts with, and the room behind the last read.
  const uint64_t unit = std::max(shape.offset_align, shape.memory_align);
  const uint64_t end = extent.file_offset + extent.length;
  return (is_aligned(end, unit) || end == file.size()) && is_aligned(extent.file_offset, unit) &&
         is_aligned(extent.destination, shape.memory_align);
}

Status check(const Extent& extent, std::span<const std::shared_ptr<File>> files,
             uint64_t space_bytes, uint64_t previous_end) {
  if (extent.file >= files.size()) return Status::error(Code::kUsage, "an extent names no file");
  const File& file = *files[extent.file];
  if (extent.length == 0 || extent.file_offset > file.size() ||
      extent.length > file.size() - extent.file_offset) {
    return Status::error(Code::kUsage, "an extent lies outside its file")
        .at(file.path(), extent.file_offset, extent.length);
  }
  if (extent.destination < previous_end || extent.destination > space_bytes ||
      extent.length > space_bytes - extent.destination) {
    return Status::error(Code::kUsage, "extents overlap, or lie outside the destination")
        .at(file.path(), extent.file_offset, extent.length);
  }
  return {};
}

}  // namespace

Result<std::vector<Chunk>> cut_chunks(std::span<const std::shared_ptr<File>> files,
                                      std::span<const Extent> extents, uint64_t space_bytes,
                                      bool use_page_cache, size_t storage_request_bytes,
                                      size_t memory_request_bytes) {
  constexpr size_t kSmallestRequest = 4096;
  if (storage_request_bytes < kSmallestRequest ||
      !is_aligned(storage_request_bytes, std::bit_floor(storage_request_bytes))) {
    return Status::error(Code::kUsage, "a request size must be a power of two of at least 4096");
  }
  std::vector<Chunk> chunks;
  std::vector<CacheMap> caches;
  caches.reserve(files.size());
  for (const auto& file : files) caches.emplace_back(*file, use_page_cache);
  std::vector<bool> advised(files.size(), false);
  uint64_t previous_end = 0;
  for (const Extent& extent : extents) {
    if (Status status = check(extent, files, space_bytes, previous_end); !status.ok()) {
      return status;
    }
    previous_end = extent.destination + extent.length;
    const File& file = *files[extent.file];
    const bool direct = fits_direct(file, extent);
    if (!direct && file.direct().works && !advised[extent.file]) {
      // A few bytes between direct reads: reading ahead of them would read what nobody wants.
      if (Result<int> fd = file.buffered_fd(); fd.ok()) {
        (void)::posix_fadvise(*fd, 0, 0, POSIX_FADV_RANDOM);
      }
      advised[extent.file] = true;
    }
    uint64_t at = extent.file_offset;
    const uint64_t end = at + extent.length;
    while (at < end) {
      // The residency of a whole storage request decides the route of its parts.
      const uint64_t block_end =
          std::min(end, align_down(at, storage_request_bytes) + storage_request_bytes);
      Route route = direct ? Route::kDirect : Route::kBuffered;
      if (caches[extent.file].resident(at, block_end - at)) route = Route::kCached;
      const uint64_t step = route == Route::kCached
                                ? std::min(memory_request_bytes, storage_request_bytes)
                                : storage_request_bytes;
      while (at < block_end) {
        const uint64_t piece_end = std::min(block_end, align_down(at, step) + step);
        chunks.push_back({static_cast<uint32_t>(extent.file), route, at, piece_end - at,
                          extent.destination + (at - extent.file_offset)});
        at = piece_end;
      }
    }
  }
  return chunks;
}

}  // namespace fxload
