#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/fan_out.h"
#include "io/file.h"

namespace fxload {

// The first bytes of a file, in memory that a direct read can use.
struct Head {
  std::shared_ptr<std::byte> memory;
  size_t length = 0;
};

struct OpenedFiles {
  std::vector<std::shared_ptr<File>> files;
  std::vector<Head> heads;
};

// Opens all paths at once: on a network file system each one is several round trips.
Result<std::unique_ptr<FanOut>> open_files(std::vector<std::string> paths, bool want_direct,
                                           size_t head_bytes, size_t threads,
                                           std::shared_ptr<Quarantine> quarantine,
                                           std::shared_ptr<OpenedFiles> into);

}  // namespace fxload
