#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <thread>

#include "bindings/buffers.h"
#include "bindings/errors.h"
#include "bindings/files.h"
#include "bindings/loads.h"
#include "memory/memory_pool.h"
#include "pipeline/load.h"
#include "pipeline/transfer.h"

namespace fxload::bindings {

namespace nb = nanobind;

namespace {

size_t threads_or_all(size_t threads) {
  return threads != 0 ? threads : std::max(1U, std::thread::hardware_concurrency());
}

std::shared_ptr<MemoryPool> make_pool(size_t window_bytes, size_t limit_bytes) {
  if (window_bytes == 0 || window_bytes % kHugePageBytes != 0) {
    raise(Status::error(Code::kUsage, "a window must be a multiple of 2 MiB"));
  }
  return std::make_shared<MemoryPool>(window_bytes, limit_bytes);
}

int lease_buffer(PyObject* self, Py_buffer* view, int flags) {
  auto* lease = nb::inst_ptr<RegionLease>(self);
  return PyBuffer_FillInfo(view, self, lease->data(), static_cast<Py_ssize_t>(lease->size()), 0,
                           flags);
}

PyType_Slot lease_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(lease_buffer)},
                             {0, nullptr}};

std::unique_ptr<Load> start_load(const FileSet& files, const nb::object& extents,
                                 uint64_t space_bytes, std::shared_ptr<MemoryPool> pool,
                                 const LoadOptions& options) {
  const std::vector<Extent> list =
      records_of<Extent>(extents, "extents are four unsigned 64-bit numbers each");
  const auto opened = files.files();
  Result<std::unique_ptr<Load>> load = [&] {
    const nb::gil_scoped_release unlocked;
    return Load::start(opened, list, space_bytes, std::move(pool), files.quarantine(), options);
  }();
  return value_of(std::move(load));
}

nb::dict load_stats(const LoadStats& stats) {
  nb::dict result = to_dict(stats);
  result["over_budget_bytes"] = stats.over_budget_bytes;
  result["peak_bytes"] = stats.peak_bytes;
  result["small_pages"] = stats.small_pages;
  return result;
}

nb::dict transfer_stats(const TransferStats& stats) {
  nb::dict result = to_dict(stats);
  result["ring_bytes"] = stats.ring_bytes;
  result["total_bytes"] = stats.planned_bytes;
  result["done_bytes"] = stats.done_bytes;
  return result;
}

template <typename Pipeline>
uint64_t close_within(Pipeline& pipeline, double timeout_s) {
  const nb::gil_scoped_release unlocked;
  return pipeline.close(after_seconds(timeout_s));
}

}  // namespace

void bind_pipelines(nb::module_& module) {
  nb::class_<MemoryPool>(module, "MemoryPool")
      .def(nb::new_(&make_pool), nb::kw_only(), nb::arg("window_bytes") = size_t{16} << 20,
           nb::arg("limit_bytes") = 0)
      .def(
          "prefault",
          [](MemoryPool& pool, size_t size_bytes, size_t threads) {
            Status status;
            {
              const nb::gil_scoped_release unlocked;
              status = pool.prefault(size_bytes, threads_or_all(threads));
            }
            check(status);
          },
          nb::arg("size_bytes"), nb::kw_only(), nb::arg("threads") = 0)
      .def_prop_ro("window_bytes", &MemoryPool::window_bytes)
      .def_prop_ro("retained_bytes", &MemoryPool::retained_bytes)
      .def_prop_ro("live_bytes", &MemoryPool::live_bytes)
      .def("trim", &MemoryPool::trim, nb::call_guard<nb::gil_scoped_release>());

  nb::class_<RegionLease>(module, "Lease", nb::type_slots(lease_slots))
      .def("__len__", &RegionLease::size);

  nb::class_<Load>(module, "Load")
      .def(nb::new_([](const FileSet& files, const nb::object& extents, uint64_t space_bytes,
                       std::shared_ptr<MemoryPool> pool, size_t budget_bytes, std::string engine,
                       size_t request_bytes, size_t depth, bool digest, bool use_page_cache,
                       double stall_timeout_s) {
             return start_load(files, extents, space_bytes, std::move(pool),
                               {budget_bytes, std::move(engine), request_bytes, depth, digest,
                                use_page_cache, stall_timeout_s});
           }),
           nb::arg("files"), nb::arg("extents"), nb::arg("space_bytes"), nb::kw_only(),
           nb::arg("pool"), nb::arg("budget_bytes") = 0, nb::arg("engine") = "auto",
           nb::arg("request_bytes") = 0, nb::arg("depth") = 0, nb::arg("digest") = false,
           nb::arg("use_page_cache") = true, nb::arg("stall_timeout_s") = 120.0)
      .def("wait_past", &wait_past<Load>, nb::arg("end"), nb::arg("timeout_s"))
      .def(
          "lease",
          [](const Load& load, uint64_t offset, size_t length) {
            return value_of(load.lease(offset, length));
          },
          nb::arg("offset"), nb::arg("length"))
      .def("release_before", &Load::release_before, nb::arg("offset"),
           nb::call_guard<nb::gil_scoped_release>())
      .def(
          "read_bytes",
          [](const Load& load, uint64_t offset, size_t length) {
            const RegionLease lease = value_of(load.lease(offset, length));
            return nb::bytes(reinterpret_cast<const char*>(lease.data()), lease.size());
          },
          nb::arg("offset"), nb::arg("length"))
      .def("digests", &digests_of<Load>)
      .def("stats", [](const Load& load) { return load_stats(load.stats()); })
      .def("close", &close_within<Load>, nb::arg("timeout_s") = 5.0);

  nb::class_<Transfer>(module, "Transfer")
      .def(nb::new_([](const FileSet& files, const nb::object& sinks, bool digest,
                       size_t ring_bytes, std::string engine, size_t request_bytes, size_t depth,
                       bool use_page_cache, uint64_t limit_bytes_per_s, double stall_timeout_s) {
             std::vector<std::string> paths;
             if (!sinks.is_none()) {
               for (nb::handle sink : nb::cast<nb::sequence>(sinks)) {
                 paths.push_back(decode_path(sink));
               }
             }
             const auto opened = files.files();
             TransferOptions options{std::move(paths), digest, ring_bytes,     std::move(engine),
                                     request_bytes,    depth,  use_page_cache, limit_bytes_per_s,
                                     stall_timeout_s};
             Result<std::unique_ptr<Transfer>> transfer = [&] {
               const nb::gil_scoped_release unlocked;
               return Transfer::start(opened, files.quarantine(), options);
             }();
             return value_of(std::move(transfer));
           }),
           nb::arg("files"), nb::kw_only(), nb::arg("sinks") = nb::none(), nb::arg("digest") = true,
           nb::arg("ring_bytes") = 0, nb::arg("engine") = "auto", nb::arg("request_bytes") = 0,
           nb::arg("depth") = 0, nb::arg("use_page_cache") = true, nb::arg("limit_bytes_per_s") = 0,
           nb::arg("stall_timeout_s") = 120.0)
      .def(
          "wait",
          [](Transfer& transfer, double timeout_s) {
            Status failure;
            const bool done = wait_interruptibly(timeout_s, [&](TimePoint slice) {
              Result<bool> waited = transfer.wait(slice);
              if (waited.ok()) return *waited;
              failure = waited.status();
              return true;
            });
            check(failure);
            return done;
          },
          nb::arg("timeout_s"))
      .def("digests", [](const Transfer& transfer) { return value_of(transfer.digests()); })
      .def("stats", [](const Transfer& transfer) { return transfer_stats(transfer.stats()); })
      .def("close", &close_within<Transfer>, nb::arg("timeout_s") = 5.0)
      .def("__enter__", [](nb::object self) { return self; })
      .def(
          "__exit__",
          [](Transfer& transfer, const nb::object& kind, const nb::object&, const nb::object&) {
            // After a failure nobody wants to wait longer for a storage that may have died.
            close_within(transfer, kind.is_none() ? 5.0 : 0.2);
          },
          nb::arg("kind").none(), nb::arg("error").none(), nb::arg("traceback").none());
}

}  // namespace fxload::bindings
