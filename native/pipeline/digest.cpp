#include "pipeline/digest.h"

#define XXH_INLINE_ALL
#include "third_party/xxhash/xxhash.h"

namespace fxload {

FileDigest::FileDigest(uint64_t size_bytes)
    : size_bytes_(size_bytes), leaves_((size_bytes + kDigestLeafBytes - 1) / kDigestLeafBytes) {}

void FileDigest::set_leaf(size_t index, std::span<const std::byte> content) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(content.data(), content.size()));
  std::copy(std::begin(canonical.digest), std::end(canonical.digest), leaves_[index].begin());
}

std::string FileDigest::hex() const {
  std::vector<unsigned char> root;
  root.reserve(leaves_.size() * 16 + 8);
  for (const auto& leaf : leaves_) root.insert(root.end(), leaf.begin(), leaf.end());
  for (int shift = 0; shift < 64; shift += 8) {
    root.push_back(static_cast<unsigned char>(size_bytes_ >> shift));
  }
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(root.data(), root.size()));
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : canonical.digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace fxload
