#include "device/checks.h"

#include "base/align.h"

namespace fxload {

Status check_index(const std::string& platform, int index, int count) {
  if (index >= 0 && index < count) return {};
  return Status::error(Code::kUsage,
                       "there is no " + platform + " device " + std::to_string(index) +
                           (count == 1 ? ", only 0" : ", only 0 to " + std::to_string(count - 1)));
}

Status check_size(size_t size) {
  if (size > 0) return {};
  return Status::error(Code::kUsage, "cannot allocate 0 bytes");
}

Status check_pages(std::span<const std::byte> memory) {
  if (!memory.empty() && is_aligned(reinterpret_cast<uintptr_t>(memory.data()), page_bytes())) {
    return {};
  }
  return Status::error(Code::kUsage, "memory to pin must not be empty, and must start on a page");
}

Status no_memory(const std::string& platform, int index, size_t size, const Status& failure) {
  return Status::error(Code::kMemory, "no " + std::to_string(size) + " bytes on " + platform +
                                          " device " + std::to_string(index) + ": " +
                                          failure.detail().reason);
}

}  // namespace fxload
