#include "bindings/files.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/fan_out.h"
#include "bindings/errors.h"
#include "io/reader.h"
#include "io/system.h"
#include "pipeline/tuning.h"

namespace fxload::bindings {

namespace nb = nanobind;

namespace {

// What Python keeps of a file: nothing of it stays open.
struct FileInfo {
  std::string path;
  FileIdentity identity;
  int64_t opened_ns;
  std::string file_system;
  DirectShape direct;
};

std::vector<FileInfo> infos_of(const FileSet& set) {
  std::vector<FileInfo> infos;
  for (const auto& file : set.files()) {
    infos.push_back(
        {file->path(), file->identity(), file->opened_ns(), file->file_system(), file->direct()});
  }
  return infos;
}

// The host limits threads before storage limits round trips.
constexpr size_t kCheckThreads = 32;

nb::object path_object(const std::string& path) {
  return nb::steal(
      PyUnicode_DecodeFSDefaultAndSize(path.data(), static_cast<Py_ssize_t>(path.size())));
}

FileSet* open_set(const nb::sequence& paths, const OpenOptions& options, double timeout_s,
                  const std::shared_ptr<Quarantine>& quarantine) {
  std::vector<std::string> names;
  for (nb::handle path : paths) names.push_back(decode_path(path));
  auto opened = std::make_shared<OpenedFiles>();
  std::unique_ptr<FanOut> work = value_of(open_files(names, options, quarantine, opened));
  if (!wait_interruptibly(timeout_s, [&](TimePoint slice) { return work->wait(slice); })) {
    check(work->first_error());
    raise(Status::error(
              Code::kDeadline,
              "opening it and reading its first bytes took longer than " + seconds_text(timeout_s))
              .at(names[work->first_unfinished()]));
  }
  check(work->first_error());
  return new FileSet(std::move(opened), quarantine);
}

nb::bytes read_range(const FileSet& set, size_t index, uint64_t offset, size_t length,
                     double timeout_s) {
  std::shared_ptr<File> file = set.files().at(index);
  auto buffer = std::make_shared<std::vector<std::byte>>();
  try {
    buffer->resize(length);
  } catch (const std::bad_alloc&) {
    raise(Status::error(Code::kMemory, "no memory").at(file->path(), offset, length));
  }
  std::unique_ptr<FanOut> work =
      value_of(FanOut::start(1, 1, set.quarantine(), [file, buffer, offset](size_t) -> Status {
        Result<int> fd = file->buffered_fd();
        if (!fd.ok()) return fd.status();
        size_t done = 0;
        return system::read_exactly(*fd, *buffer, offset, file->path(), &done);
      }));
  if (!wait_interruptibly(timeout_s, [&](TimePoint slice) { return work->wait(slice); })) {
    raise(
        Status::error(Code::kDeadline, "the read took too long").at(file->path(), offset, length));
  }
  check(work->first_error());
  return nb::bytes(buffer->data(), buffer->size());
}

void check_unchanged(const FileSet& set, double timeout_s) {
  const auto files = set.files();
  std::unique_ptr<FanOut> work =
      value_of(FanOut::start(files.size(), kCheckThreads, set.quarantine(),
                             [files](size_t i) { return files[i]->check_unchanged(); }));
  if (!wait_interruptibly(timeout_s, [&](TimePoint slice) { return work->wait(slice); })) {
    raise(Status::error(Code::kDeadline,
                        "asking for its state took longer than " + seconds_text(timeout_s))
              .at(files[work->first_unfinished()]->path()));
  }
  check(work->first_error());
}

nb::dict tuning_of(const FileSet& set, size_t index) {
  const File& file = set.file(index);
  const Tuning tuning = file.in_memory() ? tune_memory() : tune_storage(file.direct().works);
  nb::dict result;
  result["request_bytes"] = tuning.request_bytes;
  result["depth"] = tuning.depth;
  result["reason"] = tuning.reason;
  return result;
}

}  // namespace

std::string decode_path(nb::handle path) {
  PyObject* bytes = nullptr;
  if (PyUnicode_FSConverter(path.ptr(), &bytes) == 0) throw nb::python_error();
  const auto owned = nb::steal<nb::bytes>(bytes);
  return {owned.c_str(), owned.size()};
}

const std::vector<std::shared_ptr<File>>& FileSet::files() const {
  if (!opened_) raise(Status::error(Code::kUsage, "the file set is closed"));
  return opened_->files;
}

const File& FileSet::file(size_t index) const {
  if (index >= files().size()) throw nb::index_error();
  return *files()[index];
}

const Head& FileSet::head(size_t index) const {
  if (index >= files().size()) throw nb::index_error();
  if (index >= opened_->heads.size()) {
    raise(Status::error(Code::kUsage, "the first bytes have been released"));
  }
  return opened_->heads[index];
}

void FileSet::release_heads() {
  if (opened_) opened_->heads.clear();
}

void bind_files(nb::module_& module, std::shared_ptr<Quarantine> quarantine) {
  nb::class_<FileInfo>(module, "FileInfo")
      .def_prop_ro("path", [](const FileInfo& info) { return path_object(info.path); })
      .def_prop_ro("size_bytes", [](const FileInfo& info) { return info.identity.size_bytes; })
      .def_prop_ro("device", [](const FileInfo& info) { return info.identity.device; })
      .def_prop_ro("inode", [](const FileInfo& info) { return info.identity.inode; })
      .def_prop_ro("mtime_ns", [](const FileInfo& info) { return info.identity.mtime_ns; })
      .def_prop_ro("ctime_ns", [](const FileInfo& info) { return info.identity.ctime_ns; })
      .def_ro("opened_ns", &FileInfo::opened_ns)
      .def_ro("file_system", &FileInfo::file_system)
      .def_prop_ro("direct", [](const FileInfo& info) { return info.direct.works; })
      .def_prop_ro("direct_reason", [](const FileInfo& info) { return info.direct.reason; })
      .def_prop_ro("memory_align", [](const FileInfo& info) { return info.direct.memory_align; })
      .def_prop_ro("offset_align", [](const FileInfo& info) { return info.direct.offset_align; })
      .def_prop_ro("align_source", [](const FileInfo& info) {
        return info.direct.from_statx ? "statx" : "assumed";
      });

  nb::class_<FileSet>(module, "FileSet")
      .def(nb::new_([quarantine](const nb::sequence& paths, bool direct, size_t head_bytes,
                                 bool whole_header, size_t threads, double timeout_s) {
             return open_set(paths,
                             {direct, head_bytes, whole_header, std::max<size_t>(1, threads)},
                             timeout_s, quarantine);
           }),
           nb::arg("paths"), nb::kw_only(), nb::arg("direct") = true, nb::arg("head_bytes") = 65536,
           nb::arg("whole_header") = false, nb::arg("threads") = 32, nb::arg("timeout_s") = 120.0)
      .def("__len__", [](const FileSet& set) { return set.files().size(); })
      .def_prop_ro("infos", &infos_of)
      .def(
          "head",
          [](const FileSet& set, size_t file, size_t length) {
            const Head& head = set.head(file);
            return nb::bytes(head.memory.get(), std::min(head.length, length));
          },
          nb::arg("file"), nb::arg("length") = SIZE_MAX)
      .def("release_heads", &FileSet::release_heads)
      .def("read", &read_range, nb::arg("file"), nb::arg("offset"), nb::arg("length"),
           nb::arg("timeout_s") = 120.0)
      .def("tuning", &tuning_of, nb::arg("file"))
      .def("check_unchanged", &check_unchanged, nb::arg("timeout_s") = 120.0)
      .def("close", &FileSet::close);
}

}  // namespace fxload::bindings
