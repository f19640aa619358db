#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "io/file.h"

namespace fxload {

// One read. `into` must stay valid until the request's completion has been reaped. A direct request
// has offset and into aligned as the file's DirectShape asks, and room behind `into` up to the
// length rounded up to offset_align; a buffered one may start anywhere.
struct ReadRequest {
  const File* file = nullptr;
  uint64_t offset = 0;
  size_t length = 0;
  std::byte* into = nullptr;
  uint64_t tag = 0;
  bool direct = false;
};

struct ReadCompletion {
  uint64_t tag = 0;
  Status status;
};

// Keeps a bounded number of reads in flight.
//
// Every request that submit() takes completes exactly once, in any order: with all of its bytes, or
// with an error that names path, offset and length. Short reads and EINTR/EAGAIN are continued
// inside; a read of 0 bytes before the end is kTruncated, never a retry; a direct read that the
// file system refuses with EINVAL is done again through the page cache.
//
// submit() and reap() belong to one thread; wake() may be called from any. Destroying a reader
// waits for what is in flight.
class Reader {
 public:
  virtual ~Reader() = default;
  virtual std::string_view name() const = 0;
  virtual size_t depth() const = 0;
  virtual size_t in_flight() const = 0;
  // Takes as many requests, from the first on, as there is room for.
  virtual size_t submit(std::span<const ReadRequest> requests) = 0;
  // Waits for a completion, a wake() or the deadline; appends what has completed.
  virtual void reap(std::vector<ReadCompletion>& out, TimePoint deadline) = 0;
  virtual void wake() = 0;
};

// The memory, if any, that most requests will read into: an engine may register it.
using FixedMemory = std::span<std::byte>;

Result<std::unique_ptr<Reader>> make_pread_reader(size_t depth);
// kUnsupported where the build, the kernel or a filter refuses io_uring.
Result<std::unique_ptr<Reader>> make_uring_reader(size_t depth,
                                                  std::span<const std::shared_ptr<File>> files,
                                                  FixedMemory fixed);

struct Capability {
  bool ok = false;
  std::string reason;
};
// Sets a ring up and reads through it.
Capability probe_uring();
// The same, with registered buffers.
Capability probe_registered_buffers();

// Which engine serves, and why not the other.
struct EngineChoice {
  std::unique_ptr<Reader> reader;
  std::string reason;
};
// engine: "auto", "io_uring" or "pread".
Result<EngineChoice> make_reader(std::string_view engine, size_t depth,
                                 std::span<const std::shared_ptr<File>> files, FixedMemory fixed);

}  // namespace fxload
