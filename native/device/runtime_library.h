#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace fxload {

// Where a device runtime may be.
struct RuntimeSearch {
  std::string vendor;                // as users know it: "ROCm"
  std::string stem;                  // "libamdhip64"
  std::vector<std::string> names;    // file names, best first: "libamdhip64.so.7", ...
  std::vector<std::string> folders;  // torch's own libraries
  std::vector<std::string> toolkit;  // where the vendor installs it
};

// The shared library of a device runtime. It stays loaded until the process ends, whoever loaded
// it: runtimes keep threads and state that outlive their users. A value; copies are alike.
//
// One process must have one copy of a runtime, or torch's memory means nothing to the other. So one
// that is loaded already is taken, whatever its path. It is looked for among the loaded objects: by
// its bare name dlopen does not find a library that was loaded by its path, and would load another.
class RuntimeLibrary {
 public:
  // kUnsupported, with all that was tried, where there is none.
  static Result<RuntimeLibrary> find(const RuntimeSearch& search);

  const std::string& path() const { return path_; }
  // "already loaded", "torch's folder", "toolkit" or "system".
  const std::string& found_by() const { return found_by_; }

  // Null where this runtime lacks it.
  template <typename Function>
  void bind(Function** function, const char* name) const {
    *function = reinterpret_cast<Function*>(symbol(name));
  }

 private:
  void* symbol(const char* name) const;

  void* handle_ = nullptr;
  std::string path_;
  std::string found_by_;
};

// Binds the functions of a runtime, and remembers which of those that fxload cannot do without are
// missing.
class FunctionBinder {
 public:
  explicit FunctionBinder(const RuntimeLibrary& library) : library_(library) {}
  // `Declared` is the function's type as abi.h declares it.
  template <typename Declared>
  void required(Declared** function, const char* name) {
    library_.bind(function, name);
    if (*function == nullptr) missing_ += (missing_.empty() ? "" : ", ") + std::string(name);
  }
  template <typename Declared>
  void optional(Declared** function, const char* name) {
    library_.bind(function, name);
  }
  // kUnsupported, naming what is missing.
  Status finish() const;

 private:
  const RuntimeLibrary& library_;
  std::string missing_;
};

// The folders that these environment variables name, with `below` appended, as far as they are set.
std::vector<std::string> folders_from_environment(std::span<const char* const> variables,
                                                  std::span<const char* const> below);

}  // namespace fxload
