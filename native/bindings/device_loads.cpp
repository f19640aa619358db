#include "bindings/device_loads.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/apart.h"
#include "bindings/buffers.h"
#include "bindings/devices.h"
#include "bindings/files.h"
#include "bindings/loads.h"
#include "pipeline/copy_rate.h"
#include "pipeline/device_load.h"

namespace fxload::bindings {

namespace nb = nanobind;

namespace {

// Keeps a Python object for the core, whose threads may be the last to let go of it. They take the
// GIL for that, so nobody may wait for them while holding it.
std::shared_ptr<void> kept(nb::object object) {
  if (object.is_none()) return nullptr;
  return {object.release().ptr(), [](void* held) {
            // Where the interpreter has ended there is nobody to give it back to.
            if (Py_IsInitialized() == 0 || !nb::is_alive()) return;
            const nb::gil_scoped_acquire locked;
            Py_DECREF(static_cast<PyObject*>(held));
          }};
}

// Python's PinnedRing.
class RingHolder {
 public:
  explicit RingHolder(std::shared_ptr<PinnedRing> ring) : ring_(std::move(ring)) {}
  RingHolder(RingHolder&&) = default;
  ~RingHolder() { close(); }
  const std::shared_ptr<PinnedRing>& ring() const {
    if (ring_ == nullptr) raise(Status::error(Code::kUsage, "the ring is closed"));
    return ring_;
  }
  void close() {
    if (ring_ == nullptr) return;
    const nb::gil_scoped_release unlocked;
    ring_.reset();
  }

 private:
  std::shared_ptr<PinnedRing> ring_;
};

// Python's DeviceLoad: ends it without the GIL, which its threads may want.
class DeviceLoadHolder {
 public:
  explicit DeviceLoadHolder(std::unique_ptr<DeviceLoad> load) : load_(std::move(load)) {}
  DeviceLoadHolder(DeviceLoadHolder&&) = default;
  ~DeviceLoadHolder() {
    const nb::gil_scoped_release unlocked;
    load_.reset();
  }
  DeviceLoad& operator*() const { return *load_; }
  DeviceLoad* operator->() const { return load_.get(); }

 private:
  std::unique_ptr<DeviceLoad> load_;
};

struct MoveRecord {
  uint64_t to = 0;
  uint64_t from = 0;
  uint64_t length = 0;
};

std::optional<StreamHandle> stream_of(std::optional<uintptr_t> handle) {
  if (!handle) return {};
  return reinterpret_cast<StreamHandle>(*handle);
}

uint64_t move(const DeviceLoadHolder& load, const nb::object& moves, nb::object owner,
              std::optional<uintptr_t> after) {
  std::vector<CopyPiece> pieces;
  for (const MoveRecord& record :
       records_of<MoveRecord>(moves, "moves are three unsigned 64-bit numbers each")) {
    pieces.push_back({reinterpret_cast<std::byte*>(record.to),
                      reinterpret_cast<const std::byte*>(record.from), record.length});
  }
  return value_of(load->move(std::move(pieces), kept(std::move(owner)), stream_of(after)));
}

bool wait_moved(const DeviceLoadHolder& load, uint64_t ticket, double timeout_s) {
  Status failure;
  const bool moved = wait_interruptibly(timeout_s, [&](TimePoint slice) {
    Result<bool> waited = load->wait_moved(ticket, slice);
    if (waited.ok()) return *waited;
    failure = waited.status();
    return true;
  });
  load->take_released();
  check(failure);
  return moved;
}

nb::dict load_stats(const DeviceLoadStats& stats, const PinnedRing& ring) {
  nb::dict result = to_dict(stats);
  result["copied_bytes"] = stats.copied_bytes;
  result["copies"] = stats.copies;
  result["moved_bytes"] = stats.moved_bytes;
  result["moves"] = stats.moves;
  result["read_s"] = stats.read_s;
  result["copy_s"] = stats.copy_s;
  result["overlap_s"] = stats.overlap_s;
  result["waits_for_window_s"] = stats.waits_for_window_s;
  result["waits_for_slot_s"] = stats.waits_for_slot_s;
  result["ring_bytes"] = ring.size();
  result["ring_open_bytes"] = ring.open_bytes();
  result["pinned"] = ring.pinned();
  return result;
}

// A load together with the ring that it runs on: what Python holds may be closed before.
struct RunningLoad {
  DeviceLoadHolder load;
  std::shared_ptr<PinnedRing> ring;
};

RunningLoad start_load(const FileSet& files, const nb::object& extents, uint64_t space_bytes,
                       const DeviceHolder& device, const RingHolder& ring,
                       const DeviceLoadOptions& options) {
  if (ring.ring()->device() != device.device()) {
    raise(Status::error(Code::kUsage, "the ring was made for another device"));
  }
  auto list = records_of<Extent>(extents, "extents are four unsigned 64-bit numbers each");
  return {DeviceLoadHolder(value_apart(
              files.quarantine(), "starting a load",
              [opened = files.files(), list = std::move(list), space_bytes, pinned = ring.ring(),
               quarantine = files.quarantine(), options] {
                return DeviceLoad::start(opened, list, space_bytes, pinned, quarantine, options);
              })),
          ring.ring()};
}

}  // namespace

void bind_device_loads(nb::module_& module, const std::shared_ptr<Quarantine>& quarantine) {
  nb::class_<RingHolder>(module, "PinnedRing")
      .def(nb::new_([quarantine](const DeviceHolder& device, size_t size, size_t slot_bytes,
                                 const nb::object& probe_path) {
             std::string path;
             if (!probe_path.is_none()) path = decode_path(probe_path);
             return RingHolder(value_apart(
                 quarantine, "pinning memory", [held = device.device(), size, slot_bytes, path] {
                   return PinnedRing::create(held, size, slot_bytes, path);
                 }));
           }),
           nb::arg("device"), nb::arg("size_bytes"), nb::kw_only(),
           nb::arg("slot_bytes") = size_t{8} << 20, nb::arg("probe_path") = nb::none())
      .def_prop_ro("size_bytes", [](const RingHolder& self) { return self.ring()->size(); })
      .def_prop_ro("slot_bytes", [](const RingHolder& self) { return self.ring()->slot_bytes(); })
      .def_prop_ro("pinned", [](const RingHolder& self) { return self.ring()->pinned(); })
      .def_prop_ro("method", [](const RingHolder& self) { return self.ring()->method(); })
      .def_prop_ro("reason", [](const RingHolder& self) { return self.ring()->reason(); })
      .def_prop_ro("numa_node", [](const RingHolder& self) { return self.ring()->numa_node(); })
      .def_prop_ro("takes_direct_reads",
                   [](const RingHolder& self) -> nb::object {
                     const PinnedRing::Direct direct = self.ring()->direct();
                     if (direct == PinnedRing::Direct::kNotProbed) return nb::none();
                     return nb::bool_(direct == PinnedRing::Direct::kWorks);
                   })
      .def(
          "copy_rate",
          [quarantine](const RingHolder& self, double seconds) {
            const CopyRate rate = value_apart(
                quarantine, "measuring copies",
                [ring = self.ring(), seconds] { return measure_copy_rate(ring, seconds); });
            nb::dict result;
            result["bytes"] = rate.bytes;
            result["seconds"] = rate.seconds;
            return result;
          },
          nb::arg("seconds") = 0.2)
      .def("close", &RingHolder::close);

  nb::class_<RunningLoad>(module, "DeviceLoad")
      .def(nb::new_([](const FileSet& files, const nb::object& extents, uint64_t space_bytes,
                       const DeviceHolder& device, const RingHolder& ring, uint64_t block_bytes,
                       std::string engine, size_t depth, bool digest, bool use_page_cache,
                       double stall_timeout_s) {
             return start_load(
                 files, extents, space_bytes, device, ring,
                 {block_bytes, std::move(engine), depth, digest, use_page_cache, stall_timeout_s});
           }),
           nb::arg("files"), nb::arg("extents"), nb::arg("space_bytes"), nb::kw_only(),
           nb::arg("device"), nb::arg("ring"), nb::arg("block_bytes") = 512,
           nb::arg("engine") = "auto", nb::arg("depth") = 0, nb::arg("digest") = false,
           nb::arg("use_page_cache") = true, nb::arg("stall_timeout_s") = 120.0)
      .def_prop_ro("streams",
                   [](const RunningLoad& self) {
                     std::vector<uintptr_t> handles;
                     for (const StreamHandle stream : self.load->streams()) {
                       handles.push_back(reinterpret_cast<uintptr_t>(stream));
                     }
                     return handles;
                   })
      .def(
          "place",
          [](const RunningLoad& self, uint64_t begin, uint64_t end, uintptr_t address,
             nb::object owner, std::optional<uint64_t> next_begin, std::optional<uintptr_t> after) {
            self.load->take_released();
            check(self.load->place({begin, end, reinterpret_cast<std::byte*>(address),
                                    kept(std::move(owner)), stream_of(after)},
                                   next_begin.value_or(UINT64_MAX)));
          },
          nb::arg("begin"), nb::arg("end"), nb::arg("address"), nb::arg("owner").none(),
          nb::arg("next_begin").none(), nb::kw_only(), nb::arg("after") = nb::none())
      .def(
          "wait_past",
          [](const RunningLoad& self, uint64_t end, double timeout_s) {
            const uint64_t landed = wait_past(*self.load, end, timeout_s);
            // Now, and not at the next call: the caller may allocate before that.
            self.load->take_released();
            return landed;
          },
          nb::arg("end"), nb::arg("timeout_s"))
      .def(
          "move",
          [](const RunningLoad& self, const nb::object& moves, nb::object owner,
             std::optional<uintptr_t> after) {
            return move(self.load, moves, std::move(owner), after);
          },
          nb::arg("moves"), nb::arg("owner").none(), nb::kw_only(), nb::arg("after") = nb::none())
      .def(
          "wait_moved",
          [](const RunningLoad& self, uint64_t ticket, double timeout_s) {
            return wait_moved(self.load, ticket, timeout_s);
          },
          nb::arg("ticket"), nb::arg("timeout_s"))
      .def("digests", [](const RunningLoad& self) { return digests_of(*self.load); })
      .def("stats",
           [](const RunningLoad& self) { return load_stats(self.load->stats(), *self.ring); })
      .def(
          "close",
          [](const RunningLoad& self, double timeout_s) {
            uint64_t quarantined;
            {
              const nb::gil_scoped_release unlocked;
              quarantined = self.load->close(after_seconds(timeout_s));
            }
            self.load->take_released();
            return quarantined;
          },
          nb::arg("timeout_s") = 5.0);
}

}  // namespace fxload::bindings
