#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fxload {

// The digest of a file: XXH3-128 over the XXH3-128 of each 8 MiB leaf, then the size (8 bytes,
// little endian). A tree, so that leaves can be hashed by any thread in any order as they arrive.
// It covers every byte and finds every accident; it does not withstand an adversary who crafts
// collisions.
constexpr size_t kDigestLeafBytes = size_t{8} << 20;

class FileDigest {
 public:
  explicit FileDigest(uint64_t size_bytes);

  size_t leaves() const { return leaves_.size(); }
  // Leaves may be set by different threads, each once.
  void set_leaf(size_t index, std::span<const std::byte> content);
  // All leaves must be set.
  std::string hex() const;

 private:
  uint64_t size_bytes_;
  std::vector<std::array<unsigned char, 16>> leaves_;
};

}  // namespace fxload
