#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/status.h"

namespace fxload {

// What every platform refuses alike, before its runtime is asked. All kUsage, but for the last.
Status check_index(const std::string& platform, int index, int count);
Status check_size(size_t size);
Status check_pages(std::span<const std::byte> memory);

// kMemory for a request that the device could not serve, with the words of what failed.
Status no_memory(const std::string& platform, int index, size_t size, const Status& failure);

}  // namespace fxload
