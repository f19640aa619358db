#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/file.h"
#include "memory/ring.h"

namespace fxload::testing {

// The folder under test (FXLOAD_TEST_DIR, else the system's temporary folder).
std::string test_folder();
// The engines under test (FXLOAD_TEST_ENGINE, else all that this host allows).
std::vector<std::string> test_engines();

// Bytes that differ from page to page and file to file.
std::vector<std::byte> pattern(size_t size, uint64_t seed);

// A file with this content, durable, and gone when the object dies.
class TempFile {
 public:
  explicit TempFile(const std::vector<std::byte>& content);
  TempFile(const TempFile&) = delete;
  ~TempFile();

  const std::string& path() const { return path_; }
  void truncate(uint64_t size) const;
  // Drops it from the page cache, where the file system has one.
  void make_cold() const;
  std::shared_ptr<File> open(bool direct = true) const;

 private:
  std::string path_;
};

std::vector<std::byte> content_of(const std::string& path);

}  // namespace fxload::testing
