#include "device/runtime_library.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>

namespace fxload {

namespace {

// Whether a file is the library of that stem, whatever its version: libcudart.so.13,
// libcudart-1b184622.so.12.8.90 (as packers of wheels rename it), libamdhip64.so.
bool is_library(std::string_view file, std::string_view stem) {
  if (!file.starts_with(stem)) return false;
  file.remove_prefix(stem.size());
  if (file.starts_with('-')) {
    file.remove_prefix(1);
    while (!file.empty() && std::isalnum(static_cast<unsigned char>(file.front())) != 0) {
      file.remove_prefix(1);
    }
  }
  if (!file.starts_with(".so")) return false;
  file.remove_prefix(3);
  return std::all_of(file.begin(), file.end(), [](char c) {
    return c == '.' || std::isdigit(static_cast<unsigned char>(c)) != 0;
  });
}

std::string_view file_of(std::string_view path) { return path.substr(path.rfind('/') + 1); }

struct LoadedSearch {
  std::string_view stem;
  std::vector<std::string> paths;
};

int visit_loaded(dl_phdr_info* info, size_t, void* argument) {
  auto* search = static_cast<LoadedSearch*>(argument);
  const std::string_view path = info->dlpi_name != nullptr ? info->dlpi_name : "";
  if (is_library(file_of(path), search->stem)) search->paths.emplace_back(path);
  return 0;
}

// All copies in this process, those in `folders` first.
std::vector<std::string> loaded_paths(const RuntimeSearch& search) {
  LoadedSearch loaded{search.stem, {}};
  ::dl_iterate_phdr(visit_loaded, &loaded);
  std::stable_partition(loaded.paths.begin(), loaded.paths.end(), [&](const std::string& path) {
    return std::any_of(search.folders.begin(), search.folders.end(),
                       [&](const std::string& folder) { return path.starts_with(folder); });
  });
  return loaded.paths;
}

std::string joined(std::span<const std::string> items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ", ") + item;
  return text;
}

// The file that a loaded library came from.
std::string path_of(void* handle, const std::string& otherwise) {
  link_map* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name[0] != '\0') return map->l_name;
  return otherwise;
}

std::string last_error() {
  const char* text = ::dlerror();
  return text != nullptr ? text : "no reason given";
}

}  // namespace

Result<RuntimeLibrary> RuntimeLibrary::find(const RuntimeSearch& search) {
  RuntimeLibrary library;
  std::string refused;
  const auto open = [&](const std::string& name, int flags, const char* how) {
    library.handle_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | flags);
    if (library.handle_ == nullptr) return false;
    library.path_ = path_of(library.handle_, name);
    library.found_by_ = how;
    return true;
  };
  for (const std::string& path : loaded_paths(search)) {
    if (open(path, RTLD_NOLOAD, "already loaded")) return library;
    (void)last_error();
  }
  const auto open_in = [&](const std::vector<std::string>& folders, const char* how) {
    for (const std::string& folder : folders) {
      for (const std::string& name : search.names) {
        const std::string path = folder + "/" + name;
        if (::access(path.c_str(), F_OK) != 0) continue;
        if (open(path, 0, how)) return true;
        refused += "; cannot load " + last_error();
      }
    }
    return false;
  };
  if (open_in(search.folders, "torch's folder")) return library;
  if (open_in(search.toolkit, "toolkit")) return library;
  for (const std::string& name : search.names) {
    if (open(name, 0, "system")) return library;
    const std::string reason = last_error();
    // What is merely absent is said once, below.
    if (reason.find("No such file") == std::string::npos || !reason.starts_with(name)) {
      refused += "; cannot load " + reason;
    }
  }
  std::vector<std::string> looked = search.folders;
  looked.insert(looked.end(), search.toolkit.begin(), search.toolkit.end());
  return Status::error(Code::kUnsupported,
                       "no " + search.vendor + " runtime: none of " + joined(search.names) +
                           " is loaded already, in " +
                           (looked.empty() ? "any folder to look in" : joined(looked)) +
                           ", or known to the system's loader" + refused);
}

void* RuntimeLibrary::symbol(const char* name) const { return ::dlsym(handle_, name); }

Status FunctionBinder::finish() const {
  if (missing_.empty()) return {};
  return Status::error(Code::kUnsupported, "this version lacks " + missing_ +
                                               ", which fxload needs; install another version")
      .at(library_.path());
}

std::vector<std::string> folders_from_environment(std::span<const char* const> variables,
                                                  std::span<const char* const> below) {
  std::vector<std::string> folders;
  for (const char* variable : variables) {
    const char* root = std::getenv(variable);
    if (root == nullptr || *root == '\0') continue;
    for (const char* folder : below) folders.push_back(std::string(root) + "/" + folder);
  }
  return folders;
}

}  // namespace fxload
