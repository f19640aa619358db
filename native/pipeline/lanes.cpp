#include "pipeline/lanes.h"

#include <algorithm>
#include <system_error>

namespace fxload {

Result<std::unique_ptr<Lanes>> Lanes::create(std::span<const std::shared_ptr<File>> files,
                                             std::span<const Chunk> chunks,
                                             const std::string& engine, const Tuning& storage,
                                             const Tuning& memory, FixedMemory fixed) {
  size_t in_storage = 0;
  size_t in_cache = 0;
  size_t cold_buffered = 0;
  for (const Chunk& chunk : chunks) {
    if (chunk.route == Route::kDirect) ++in_storage;
    if (chunk.route == Route::kCached) ++in_cache;
    if (chunk.route == Route::kBuffered) ++cold_buffered;
  }
  auto lanes = std::make_unique<Lanes>();
  ReadPath& path = lanes->path_;
  path.request_bytes = storage.request_bytes;
  path.tuning_reason = storage.reason;
  if (in_storage > 0) {
    Result<EngineChoice> choice =
        make_reader(engine, std::min(storage.depth, in_storage), files, fixed);
    if (!choice.ok()) return choice.status();
    path.engine = choice->reader->name();
    path.engine_reason = choice->reason;
    path.depth = choice->reader->depth();
    lanes->direct_ = std::make_unique<Lane>(std::move(choice->reader));
  }
  if (in_cache + cold_buffered > 0) {
    const size_t depth = cold_buffered > 0 ? std::max(storage.depth, memory.depth) : memory.depth;
    Result<std::unique_ptr<Reader>> reader =
        make_pread_reader(std::min(depth, in_cache + cold_buffered));
    if (!reader.ok()) return reader.status();
    if (in_storage == 0) {
      path.engine = (*reader)->name();
      path.engine_reason =
          cold_buffered > 0 ? "direct I/O does not work here" : "everything is in memory already";
      path.depth = (*reader)->depth();
      if (cold_buffered == 0) {
        path.request_bytes = memory.request_bytes;
        path.tuning_reason = memory.reason;
      }
    }
    lanes->cached_ = std::make_unique<Lane>(std::move(*reader));
  }
  return lanes;
}

void Lanes::push(const File& file, const Chunk& chunk, std::byte* into, uint64_t tag) {
  const bool direct = chunk.route == Route::kDirect;
  (direct ? *direct_ : *cached_).push({&file, chunk.offset, chunk.length, into, tag, direct});
}

Status Lanes::start(std::shared_ptr<void> owner, const Lane::OnDone& on_done,
                    std::vector<Worker>* threads) {
  try {
    for (Lane* lane : {direct_.get(), cached_.get()}) {
      if (lane == nullptr) continue;
      threads->emplace_back("fxload-read", [owner, on_done, lane] { lane->run(on_done); });
    }
  } catch (const std::system_error& error) {
    return Status::error(Code::kMemory, std::string("the host refuses a thread: ") + error.what());
  }
  return {};
}

void Lanes::stop() {
  for (Lane* lane : {direct_.get(), cached_.get()}) {
    if (lane != nullptr) lane->stop();
  }
}

}  // namespace fxload
