#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <vector>

#include "base/quarantine.h"
#include "io/open_files.h"

namespace fxload::bindings {

// Python's FileSet.
class FileSet {
 public:
  FileSet(std::shared_ptr<OpenedFiles> opened, std::shared_ptr<Quarantine> quarantine)
      : opened_(std::move(opened)), quarantine_(std::move(quarantine)) {}

  // Raises once closed.
  const std::vector<std::shared_ptr<File>>& files() const;
  const File& file(size_t index) const;
  const Head& head(size_t index) const;
  const std::shared_ptr<Quarantine>& quarantine() const { return quarantine_; }
  void release_heads();
  void close() { opened_.reset(); }

 private:
  std::shared_ptr<OpenedFiles> opened_;
  std::shared_ptr<Quarantine> quarantine_;
};

// A path as the system sees it, from str, bytes or os.PathLike.
std::string decode_path(nanobind::handle path);

void bind_files(nanobind::module_& module, std::shared_ptr<Quarantine> quarantine);
void bind_pipelines(nanobind::module_& module);

}  // namespace fxload::bindings
