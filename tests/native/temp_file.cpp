#include "temp_file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "io/reader.h"

namespace fxload::testing {

std::string test_folder() {
  const char* folder = std::getenv("FXLOAD_TEST_DIR");
  return folder != nullptr ? folder : "/tmp";
}

std::vector<std::string> test_engines() {
  if (const char* engine = std::getenv("FXLOAD_TEST_ENGINE")) return {engine};
  if (probe_uring().ok) return {"io_uring", "pread"};
  return {"pread"};
}

std::vector<std::byte> pattern(size_t size, uint64_t seed) {
  std::vector<std::byte> bytes(size);
  uint64_t state = seed * 0x9E3779B97F4A7C15ULL + 1;
  for (std::byte& byte : bytes) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    byte = static_cast<std::byte>(state);
  }
  return bytes;
}

TempFile::TempFile(const std::vector<std::byte>& content) {
  path_ = test_folder() + "/fxload-test-XXXXXX";
  const int fd = ::mkstemp(path_.data());
  REQUIRE(fd >= 0);
  size_t done = 0;
  while (done < content.size()) {
    const ssize_t put = ::write(fd, content.data() + done, content.size() - done);
    REQUIRE(put > 0);
    done += static_cast<size_t>(put);
  }
  REQUIRE(::fsync(fd) == 0);
  ::close(fd);
}

TempFile::~TempFile() { ::unlink(path_.c_str()); }

void TempFile::truncate(uint64_t size) const {
  REQUIRE(::truncate(path_.c_str(), static_cast<off_t>(size)) == 0);
}

void TempFile::make_cold() const {
  const int fd = ::open(path_.c_str(), O_RDONLY);
  REQUIRE(fd >= 0);
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  ::close(fd);
}

std::shared_ptr<File> TempFile::open(bool direct) const {
  Result<RingMemory> head = RingMemory::create(65536);
  REQUIRE(head.ok());
  size_t head_bytes = 0;
  Result<std::shared_ptr<File>> file =
      File::open(path_, direct, head->bytes().first(65536), &head_bytes);
  REQUIRE(file.ok());
  return *file;
}

std::vector<std::byte> content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::byte> bytes;
  char byte;
  while (file.get(byte)) bytes.push_back(static_cast<std::byte>(byte));
  return bytes;
}

}  // namespace fxload::testing
