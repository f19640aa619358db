#pragma once

#include "io/reader.h"

namespace fxload {

// How far one request has come, and what to ask the kernel next. The engines differ only in how
// they ask.
class ReadProgress {
 public:
  struct Step {
    int fd = -1;
    bool direct = false;
    std::byte* into = nullptr;
    size_t length = 0;
    uint64_t offset = 0;
  };

  ReadProgress() = default;
  explicit ReadProgress(const ReadRequest& request) : request_(request), direct_(request.direct) {}

  const ReadRequest& request() const { return request_; }

  // The next read. Fails only where the second descriptor cannot be opened.
  Result<Step> next() const;

  // Takes the outcome of the step (bytes, or a negated errno). True when the request has ended,
  // with *status telling how.
  bool advance(int64_t outcome, Status* status);

 private:
  Status failed(Status status) const;

  ReadRequest request_;
  size_t done_ = 0;
  bool direct_ = false;
  int empty_tries_ = 0;
};

}  // namespace fxload
