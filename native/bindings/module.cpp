#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <thread>

#include "base/align.h"
#include "bindings/device_loads.h"
#include "bindings/devices.h"
#include "bindings/errors.h"
#include "bindings/files.h"
#include "io/reader.h"
#include "io/residency.h"
#include "io/system.h"
#include "memory/copy_bandwidth.h"
#include "memory/region.h"
#include "memory/ring.h"
#include "pipeline/digest.h"

namespace fxload::bindings {

namespace nb = nanobind;

namespace {

nb::dict to_dict(const Capability& capability) {
  nb::dict result;
  result["ok"] = capability.ok;
  result["reason"] = capability.reason;
  return result;
}

Capability from_errno(int os_errno) {
  if (os_errno == 0) return {true, ""};
  return {false, std::generic_category().message(os_errno)};
}

Capability probe_cachestat() {
  size_t head_bytes = 0;
  std::vector<std::byte> head(page_bytes());
  Result<std::shared_ptr<File>> file = File::open("/proc/self/exe", false, head, &head_bytes);
  if (!file.ok()) return {false, file.status().detail().reason};
  Result<int> fd = (*file)->buffered_fd();
  if (!fd.ok()) return {false, fd.status().detail().reason};
  const system::CacheState state = system::cache_state(*fd, 0, 0);
  // The program's file may belong to somebody else; that the call exists is what is asked.
  if (state.os_errno == EPERM && ::geteuid() != 0) return {true, ""};
  return from_errno(state.os_errno);
}

Capability probe_dioalign() {
  size_t head_bytes = 0;
  std::vector<std::byte> head(page_bytes());
  Result<std::shared_ptr<File>> file = File::open("/proc/self/exe", false, head, &head_bytes);
  if (!file.ok()) return {false, file.status().detail().reason};
  Result<int> fd = (*file)->buffered_fd();
  if (!fd.ok()) return {false, fd.status().detail().reason};
  if (system::direct_alignment(*fd).known) return {true, ""};
  return {false,
          "statx reports no STATX_DIOALIGN: the kernel is older than 6.1, the file system "
          "does not tell, or a filter refuses; 4096 is assumed"};
}

Capability probe_populate() {
  Result<RingMemory> memory = RingMemory::create(kHugePageBytes);
  if (!memory.ok()) return {false, memory.status().detail().reason};
  return from_errno(system::populate_write(memory->bytes().data(), memory->bytes().size()));
}

Capability probe_huge_pages() {
  std::FILE* setting = std::fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
  if (setting == nullptr) return {false, "this kernel has no transparent huge pages"};
  char line[64] = "";
  const bool read = std::fgets(line, sizeof line, setting) != nullptr;
  std::fclose(setting);
  if (read && std::strstr(line, "[never]") != nullptr) {
    return {false, "/sys/kernel/mm/transparent_hugepage/enabled is never"};
  }
  return {true, ""};
}

nb::dict capabilities() {
  nb::dict result;
  result["io_uring"] = to_dict(probe_uring());
  result["registered_buffers"] = to_dict(probe_registered_buffers());
  result["cachestat"] = to_dict(probe_cachestat());
  result["statx_dioalign"] = to_dict(probe_dioalign());
  result["madv_populate_write"] = to_dict(probe_populate());
  result["transparent_huge_pages"] = to_dict(probe_huge_pages());
  return result;
}

nb::dict residency(const std::string& path, uint64_t offset, uint64_t length) {
  size_t head_bytes = 0;
  Residency found;
  Status status;
  {
    const nb::gil_scoped_release unlocked;
    // No first bytes are asked for: reading them would make them resident.
    Result<std::shared_ptr<File>> file = File::open(path, false, {}, &head_bytes);
    if (file.ok()) {
      found = probe_residency(**file, offset, length);
    } else {
      status = file.status();
    }
  }
  check(status);
  nb::dict result;
  result["bytes"] = found.bytes;
  result["provable"] = found.provable;
  result["method"] = found.method;
  result["reason"] = found.reason;
  return result;
}

std::string digest_bytes(const nb::object& data) {
  Py_buffer view;
  if (PyObject_GetBuffer(data.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(view.buf),
                                         static_cast<size_t>(view.len));
  std::string text;
  {
    const nb::gil_scoped_release unlocked;
    FileDigest digest(bytes.size());
    for (size_t i = 0; i < digest.leaves(); ++i) {
      digest.set_leaf(
          i, bytes.subspan(i * kDigestLeafBytes,
                           std::min(kDigestLeafBytes, bytes.size() - i * kDigestLeafBytes)));
    }
    text = digest.hex();
  }
  PyBuffer_Release(&view);
  return text;
}

}  // namespace

NB_MODULE(_native, module) {
  // A model that is still loaded when the interpreter ends is no leak.
  nb::set_leak_warnings(false);
  // Owned by the functions that use it, and so by the module.
  auto quarantine = std::make_shared<Quarantine>();
  module.def("page_size", &page_bytes);
  module.def("capabilities", &capabilities);
  module.def("residency", &residency, nb::arg("path"), nb::arg("offset") = 0,
             nb::arg("length") = 0);
  module.def("digest_bytes", &digest_bytes, nb::arg("data"));
  module.def(
      "copy_bandwidth",
      [](size_t size_bytes, size_t threads, bool fresh, bool huge_pages) {
        if (threads == 0) threads = std::max(1U, std::thread::hardware_concurrency());
        Result<double> rate = [&] {
          const nb::gil_scoped_release unlocked;
          return copy_bandwidth(size_bytes, threads, fresh, huge_pages);
        }();
        return value_of(std::move(rate));
      },
      nb::arg("size_bytes"), nb::kw_only(), nb::arg("threads") = 0, nb::arg("fresh") = true,
      nb::arg("huge_pages") = true);
  module.def("quarantined_threads", [quarantine] { return quarantine->reap(); });
  bind_devices(module, quarantine);
  bind_files(module, quarantine);
  bind_pipelines(module);
  bind_device_loads(module, quarantine);
}

}  // namespace fxload::bindings
