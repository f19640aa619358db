#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "base/unique_fd.h"

namespace fxload {

// A new file that is written in pieces, by any thread in any order, and then made durable.
class Sink {
 public:
  Sink(std::string path, uint64_t size_bytes) : path_(std::move(path)), size_bytes_(size_bytes) {}

  // Creates the file (it must not exist), mode 0600, and reserves its space: a full destination is
  // found before the first byte is copied.
  Status open();
  // `data` starts on a page and has writable room behind it up to the next 4096 bytes: the last
  // piece of a file is padded in place so that it too can be written directly.
  Status write(uint64_t offset, std::span<std::byte> data);
  // Cuts the padding off and waits for the storage.
  Status finish();

 private:
  Status write_all(int fd, uint64_t offset, std::span<const std::byte> data) const;

  std::string path_;
  uint64_t size_bytes_;
  UniqueFd fd_;
  UniqueFd direct_fd_;
};

}  // namespace fxload
