#include "base/status.h"

#include <cerrno>
#include <cstring>
#include <system_error>

namespace fxload {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kUsage:
      return "usage";
    case Code::kNotFound:
      return "not_found";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kIo:
      return "io";
    case Code::kTruncated:
      return "truncated";
    case Code::kChanged:
      return "changed";
    case Code::kCapacity:
      return "capacity";
    case Code::kDeadline:
      return "deadline";
    case Code::kMemory:
      return "memory";
    case Code::kDevice:
      return "device";
  }
  return "io";
}

Status Status::error(Code code, std::string reason) {
  return Status(Detail{code, std::move(reason), {}, {}, {}, 0});
}

Status Status::from_errno(int os_errno, std::string_view action) {
  Code code = Code::kIo;
  switch (os_errno) {
    case ENOENT:
    case ENOTDIR:
      code = Code::kNotFound;
      break;
    case ENOSPC:
    case EDQUOT:
      code = Code::kCapacity;
      break;
    case ENOMEM:
      code = Code::kMemory;
      break;
    case ESTALE:
      code = Code::kChanged;
      break;
    default:
      break;
  }
  const std::string reason = std::string("cannot ") + std::string(action) + ": " +
                             std::generic_category().message(os_errno);
  return Status(Detail{code, reason, {}, {}, {}, os_errno});
}

Status Status::at(std::string path) && {
  Detail detail = *detail_;
  detail.path = std::move(path);
  return Status(std::move(detail));
}

Status Status::at(std::string path, uint64_t offset, uint64_t length) && {
  Detail detail = *detail_;
  detail.path = std::move(path);
  detail.offset = offset;
  detail.length = length;
  return Status(std::move(detail));
}

}  // namespace fxload
