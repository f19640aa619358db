#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace fxsim {

// A range of memory that the runtime knows.
struct Block {
  uintptr_t begin = 0;
  size_t size = 0;
  uint64_t id = 0;  // never used twice
  int device = 0;

  uintptr_t end() const { return begin + size; }
};

// Ranges that do not overlap. Not thread-safe: the engine's lock guards it.
class BlockTable {
 public:
  const Block& add(const void* begin, size_t size, int device);
  void remove(const void* begin);
  const Block* starting_at(const void* address) const;
  // The block that holds all of the range; nullptr if none does.
  const Block* holding(const void* address, size_t size) const;
  bool touches(const void* address, size_t size) const;

 private:
  std::map<uintptr_t, Block> blocks_;
  uint64_t next_id_ = 1;
};

// Whole pages; nullptr where the system has none. `secret` pages refuse direct reads, as the host
// memory of Ascend's own allocator does; where the kernel lacks them, `*secret` becomes false.
void* map_pages(size_t size, bool* secret);
void unmap_pages(void* memory, size_t size);

// Pages that are touched beforehand, and go back to be used again. What it has none of is mapped
// as it is asked for. Not thread-safe.
class TouchedPages {
 public:
  explicit TouchedPages(size_t size);
  void* take(size_t size);
  void give_back(void* memory, size_t size);

 private:
  std::byte* begin_ = nullptr;
  std::byte* next_ = nullptr;
  std::byte* end_ = nullptr;
  std::multimap<size_t, std::byte*> free_;  // by size
};
size_t round_to_pages(size_t size);
bool starts_on_page(const void* address);
// Whether all of the range is mapped in this process.
bool is_mapped(const void* address, size_t size);
// Tells whether bytes have changed; no digest.
uint64_t checksum(const std::byte* bytes, size_t size);

}  // namespace fxsim
