#include "io/open_files.h"

#include <cstdlib>

#include "base/align.h"

namespace fxload {

Result<std::unique_ptr<FanOut>> open_files(std::vector<std::string> paths, bool want_direct,
                                           size_t head_bytes, size_t threads,
                                           std::shared_ptr<Quarantine> quarantine,
                                           std::shared_ptr<OpenedFiles> into) {
  into->files.resize(paths.size());
  into->heads.resize(paths.size());
  const size_t count = paths.size();
  const size_t unit = std::max<size_t>(page_bytes(), 4096);
  const size_t bytes = std::max(unit, static_cast<size_t>(align_up(head_bytes, unit)));
  return FanOut::start(
      count, threads, std::move(quarantine),
      [paths = std::move(paths), want_direct, unit, bytes, into](size_t i) -> Status {
        auto* raw = static_cast<std::byte*>(std::aligned_alloc(unit, bytes));
        if (raw == nullptr) return Status::error(Code::kMemory, "no memory").at(paths[i]);
        Head& head = into->heads[i];
        head.memory = std::shared_ptr<std::byte>(raw, &std::free);
        Result<std::shared_ptr<File>> file =
            File::open(paths[i], want_direct, {raw, bytes}, &head.length);
        if (!file.ok()) return file.status();
        into->files[i] = std::move(*file);
        return {};
      });
}

}  // namespace fxload
