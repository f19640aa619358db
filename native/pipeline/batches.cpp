#include "pipeline/batches.h"

#include <algorithm>
#include <bit>

#include "base/align.h"

namespace fxload {

Result<std::vector<Batch>> cut_batches(std::span<const Chunk> chunks,
                                       std::span<const uint64_t> read_units, uint64_t block_bytes,
                                       uint64_t memory_align, uint64_t slot_bytes) {
  if (!std::has_single_bit(block_bytes) || !std::has_single_bit(memory_align)) {
    return Status::error(Code::kUsage, "a block is a power of two");
  }
  const uint64_t unit = std::max(block_bytes, memory_align);
  std::vector<Batch> batches;
  uint64_t previous_end = 0;  // of the chunk before, exactly
  for (size_t i = 0; i < chunks.size(); ++i) {
    const Chunk& chunk = chunks[i];
    const uint64_t begin = align_down(chunk.destination, block_bytes);
    const uint64_t end = align_up(chunk.destination + chunk.length, block_bytes);
    const uint64_t touched =
        chunk.route == Route::kDirect
            ? chunk.destination + align_up(chunk.length, read_units[chunk.file])
            : end;
    const uint64_t reach = align_up(std::max(end, touched), unit);
    if (begin < align_up(previous_end, block_bytes)) {
      return Status::error(Code::kUsage, "two extents share a block of the destination");
    }
    previous_end = chunk.destination + chunk.length;
    if (!batches.empty() && reach - batches.back().base <= slot_bytes) {
      Batch& batch = batches.back();
      ++batch.chunk_count;
      batch.end = end;
      continue;
    }
    const uint64_t base = align_down(begin, unit);
    if (reach - base > slot_bytes) {
      return Status::error(Code::kUsage, "a chunk does not fit into a slot of the ring");
    }
    batches.push_back({i, 1, base, begin, end});
  }
  return batches;
}

}  // namespace fxload
