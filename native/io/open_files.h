#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/fan_out.h"
#include "io/file.h"

namespace fxload {

// The first bytes of a file.
struct Head {
  std::shared_ptr<std::byte> memory;
  size_t length = 0;
};

struct OpenedFiles {
  std::vector<std::shared_ptr<File>> files;
  std::vector<Head> heads;
};

struct OpenOptions {
  bool direct = true;
  size_t head_bytes = 0;
  // A safetensors file begins with the length of its header: read that far, in the same go.
  bool whole_header = false;
  size_t threads = 1;
};

// Opens all paths at once: on a network file system each one is several round trips.
Result<std::unique_ptr<FanOut>> open_files(std::vector<std::string> paths,
                                           const OpenOptions& options,
                                           std::shared_ptr<Quarantine> quarantine,
                                           std::shared_ptr<OpenedFiles> into);

}  // namespace fxload
