#pragma once

#include <unistd.h>

#include <string>
#include <string_view>

#include "base/status.h"

namespace fxload {

// Device runtimes, like threads, do not come along into a forked child: what was opened before must
// be left alone there. Remembers the process that it was made in. Thread-safe.
class OwnProcess {
 public:
  bool here() const { return ::getpid() == pid_; }
  // kUsage in another process than its own.
  Status check(std::string_view platform) const {
    if (here()) return {};
    return Status::error(
        Code::kUsage,
        "the " + std::string(platform) +
            " device was opened before this process was forked, and cannot be used "
            "in it; start workers with the method \"spawn\", or open it after the fork");
  }

 private:
  pid_t pid_ = ::getpid();
};

}  // namespace fxload
