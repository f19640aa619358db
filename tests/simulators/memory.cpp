#include "memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

namespace fxsim {
namespace {

uintptr_t number(const void* address) { return reinterpret_cast<uintptr_t>(address); }

uintptr_t page_size() {
  static const auto size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  return size;
}

void* map_secret(size_t size) {
#ifdef SYS_memfd_secret
  const int fd = static_cast<int>(syscall(SYS_memfd_secret, O_CLOEXEC));
#else
  const int fd = -1;
#endif
  if (fd < 0) return nullptr;
  void* memory = MAP_FAILED;
  if (ftruncate(fd, static_cast<off_t>(size)) == 0) {
    memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  close(fd);
  return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace

const Block& BlockTable::add(const void* begin, size_t size, int device) {
  return blocks_[number(begin)] = {number(begin), size, next_id_++, device};
}

void BlockTable::remove(const void* begin) { blocks_.erase(number(begin)); }

const Block* BlockTable::starting_at(const void* address) const {
  const auto found = blocks_.find(number(address));
  return found == blocks_.end() ? nullptr : &found->second;
}

const Block* BlockTable::holding(const void* address, size_t size) const {
  auto found = blocks_.upper_bound(number(address));
  if (found == blocks_.begin()) return nullptr;
  const Block& block = (--found)->second;
  const uintptr_t offset = number(address) - block.begin;
  return offset <= block.size && size <= block.size - offset ? &block : nullptr;
}

bool BlockTable::touches(const void* address, size_t size) const {
  const auto next = blocks_.lower_bound(number(address) + size);
  return next != blocks_.begin() && std::prev(next)->second.end() > number(address);
}

void* map_pages(size_t size, bool* secret) {
  if (*secret) {
    if (void* memory = map_secret(size)) return memory;
    *secret = false;
  }
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

void unmap_pages(void* memory, size_t size) { munmap(memory, size); }

TouchedPages::TouchedPages(size_t size) {
  if (size == 0) return;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (memory == MAP_FAILED) return;
  begin_ = next_ = static_cast<std::byte*>(memory);
  end_ = begin_ + size;
}

void* TouchedPages::take(size_t size) {
  if (const auto found = free_.lower_bound(size); found != free_.end()) {
    std::byte* memory = found->second;
    const size_t rest = found->first - size;
    free_.erase(found);
    if (rest > 0) free_.emplace(rest, memory + size);
    return memory;
  }
  if (static_cast<size_t>(end_ - next_) >= size) return std::exchange(next_, next_ + size);
  bool secret = false;
  return map_pages(size, &secret);
}

void TouchedPages::give_back(void* memory, size_t size) {
  auto* begin = static_cast<std::byte*>(memory);
  if (begin < begin_ || begin >= end_) {
    unmap_pages(memory, size);
  } else {
    free_.emplace(size, begin);
  }
}

size_t round_to_pages(size_t size) { return (size + page_size() - 1) & ~(page_size() - 1); }

bool starts_on_page(const void* address) { return number(address) % page_size() == 0; }

bool is_mapped(const void* address, size_t size) {
  const uintptr_t begin = number(address) & ~(page_size() - 1);
  const size_t pages = round_to_pages(number(address) + size - begin) / page_size();
  std::vector<unsigned char> resident(pages);
  return mincore(reinterpret_cast<void*>(begin), pages * page_size(), resident.data()) == 0;
}

uint64_t checksum(const std::byte* bytes, size_t size) {
  constexpr uint64_t kPrime = 0x9e3779b97f4a7c15;
  uint64_t lanes[4] = {1, 2, 3, 4};
  size_t at = 0;
  for (; at + sizeof lanes <= size; at += sizeof lanes) {
    uint64_t words[4];
    std::memcpy(words, bytes + at, sizeof words);
    for (size_t i = 0; i < 4; i++) lanes[i] = (lanes[i] ^ words[i]) * kPrime;
  }
  for (; at < size; at++) lanes[0] = (lanes[0] ^ static_cast<uint64_t>(bytes[at])) * kPrime;
  uint64_t sum = 0;
  for (const uint64_t each : lanes) sum = (sum ^ (each >> 29) ^ each) * kPrime;
  return sum;
}

}  // namespace fxsim
