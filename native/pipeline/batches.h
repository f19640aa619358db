#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "pipeline/chunks.h"

namespace fxload {

// Neighbouring chunks that one slot of a ring takes, and that reach the device in one copy: small
// reads must not cost a slot and a copy each.
struct Batch {
  size_t first_chunk = 0;
  size_t chunk_count = 0;
  uint64_t base = 0;   // the destination that the slot's first byte stands for
  uint64_t begin = 0;  // what is copied: whole blocks
  uint64_t end = 0;
};

// `read_units`: of each file, what a direct read rounds its length up to. `block_bytes`: what both
// ends of a copy are multiples of; `memory_align`: what direct reads ask of their memory. Fails
// with kUsage where blocks of different extents overlap (a copy would overwrite its neighbour), or
// where a chunk does not fit into a slot.
Result<std::vector<Batch>> cut_batches(std::span<const Chunk> chunks,
                                       std::span<const uint64_t> read_units, uint64_t block_bytes,
                                       uint64_t memory_align, uint64_t slot_bytes);

}  // namespace fxload
