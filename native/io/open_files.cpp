#include "io/open_files.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/align.h"
#include "io/system.h"

namespace fxload {

namespace {

// What the format allows; a longer claim is the caller's to judge.
constexpr uint64_t kMostHeaderBytes = 100'000'000;

Result<std::shared_ptr<std::byte>> aligned_memory(size_t unit, size_t size) {
  auto* raw = static_cast<std::byte*>(std::aligned_alloc(unit, size));
  if (raw == nullptr) return Status::error(Code::kMemory, "no memory for a file's first bytes");
  return std::shared_ptr<std::byte>(raw, &std::free);
}

uint64_t header_end(const Head& head, const File& file) {
  constexpr size_t kPrefix = 8;
  if (head.length < kPrefix) return head.length;
  uint64_t length = 0;
  for (size_t i = kPrefix; i > 0; --i) {
    length = length << 8 | static_cast<uint64_t>(head.memory.get()[i - 1]);
  }
  if (length > kMostHeaderBytes || kPrefix + length > file.size()) return head.length;
  return kPrefix + length;
}

Status read_head(const File& file, size_t unit, size_t length, Head* head) {
  const size_t room = align_up(length, unit);
  Result<std::shared_ptr<std::byte>> memory = aligned_memory(unit, room);
  if (!memory.ok()) return memory.status();
  head->memory = std::move(*memory);
  head->length = 0;
  if (file.direct().works) {
    const ssize_t got = ::pread(file.direct_fd(), head->memory.get(), room, 0);
    if (got > 0) head->length = std::min(length, static_cast<size_t>(got));
    if (head->length == length) return {};
  }
  Result<int> fd = file.buffered_fd();
  if (!fd.ok()) return fd.status();
  const size_t have = head->length;
  return system::read_exactly(*fd, {head->memory.get() + have, length - have}, have, file.path(),
                              &head->length);
}

}  // namespace

Result<std::unique_ptr<FanOut>> open_files(std::vector<std::string> paths,
                                           const OpenOptions& options,
                                           std::shared_ptr<Quarantine> quarantine,
                                           std::shared_ptr<OpenedFiles> into) {
  into->files.resize(paths.size());
  into->heads.resize(paths.size());
  const size_t count = paths.size();
  const size_t unit = std::max<size_t>(page_bytes(), 4096);
  const size_t bytes = std::max(unit, static_cast<size_t>(align_up(options.head_bytes, unit)));
  return FanOut::start(count, options.threads, std::move(quarantine),
                       [paths = std::move(paths), options, unit, bytes, into](size_t i) -> Status {
                         Result<std::shared_ptr<std::byte>> memory = aligned_memory(unit, bytes);
                         if (!memory.ok()) return memory.status();
                         Head& head = into->heads[i];
                         head.memory = std::move(*memory);
                         Result<std::shared_ptr<File>> file = File::open(
                             paths[i], options.direct, {head.memory.get(), bytes}, &head.length);
                         if (!file.ok()) return file.status();
                         into->files[i] = std::move(*file);
                         if (!options.whole_header) return {};
                         const uint64_t end = header_end(head, *into->files[i]);
                         if (end <= head.length) return {};
                         return read_head(*into->files[i], unit, end, &head);
                       });
}

}  // namespace fxload
