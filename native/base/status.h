#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace fxload {

// What went wrong, in the terms a caller acts on. Each code is one Python exception
// (fxload/_errors.py); the names below are the contract between the two.
enum class Code {
  kUsage,
  kNotFound,
  kUnsupported,
  kIo,
  kTruncated,
  kChanged,
  kCapacity,
  kDeadline,
  kMemory,
  kDevice,
};

std::string_view code_name(Code code);

// The outcome of an operation. Success costs one null pointer. Immutable, so copies may be shared
// between threads.
class [[nodiscard]] Status {
 public:
  struct Detail {
    Code code;
    std::string reason;
    std::string path;
    std::optional<uint64_t> offset;
    std::optional<uint64_t> length;
    int os_errno = 0;
  };

  Status() = default;

  static Status error(Code code, std::string reason);
  // The one place where errno becomes a code. `action` reads "cannot <action>".
  static Status from_errno(int os_errno, std::string_view action);

  Status at(std::string path) &&;
  Status at(std::string path, uint64_t offset, uint64_t length) &&;

  bool ok() const { return detail_ == nullptr; }
  explicit operator bool() const { return ok(); }
  const Detail& detail() const { return *detail_; }

 private:
  explicit Status(Detail detail) : detail_(std::make_shared<const Detail>(std::move(detail))) {}
  std::shared_ptr<const Detail> detail_;
};

// A value, or the status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : content_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : content_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return std::holds_alternative<T>(content_); }
  explicit operator bool() const { return ok(); }
  T& operator*() { return std::get<T>(content_); }
  T* operator->() { return &std::get<T>(content_); }
  const Status& status() const { return std::get<Status>(content_); }

 private:
  std::variant<Status, T> content_;
};

}  // namespace fxload
