#include "io/read_progress.h"

#include <algorithm>
#include <cerrno>

#include "base/align.h"

namespace fxload {
namespace {

// EINTR and EAGAIN in a row, after which something is wrong with the file rather than the moment.
constexpr int kMostEmptyTries = 1000;

}  // namespace

Result<ReadProgress::Step> ReadProgress::next() const {
  Step step;
  step.direct = direct_;
  step.into = request_.into + done_;
  step.offset = request_.offset + done_;
  step.length = request_.length - done_;
  if (direct_) {
    step.fd = request_.file->direct_fd();
    step.length = align_up(step.length, request_.file->direct().offset_align);
    return step;
  }
  Result<int> fd = request_.file->buffered_fd();
  if (!fd.ok()) return fd.status();
  step.fd = *fd;
  return step;
}

Status ReadProgress::failed(Status status) const {
  return std::move(status).at(request_.file->path(), request_.offset + done_,
                              request_.length - done_);
}

bool ReadProgress::advance(int64_t outcome, Status* status) {
  if (outcome == -EINTR || outcome == -EAGAIN) {
    if (++empty_tries_ < kMostEmptyTries) return false;
    *status = failed(Status::from_errno(static_cast<int>(-outcome), "read"));
    return true;
  }
  empty_tries_ = 0;
  if (outcome == -EINVAL && direct_) {
    direct_ = false;
    return false;
  }
  if (outcome < 0) {
    *status = failed(Status::from_errno(static_cast<int>(-outcome), "read"));
    return true;
  }
  if (outcome == 0) {
    *status = failed(Status::error(Code::kTruncated, "the file ends before its size"));
    return true;
  }
  const size_t got = static_cast<size_t>(outcome);
  if (done_ + got >= request_.length) return true;
  if (!direct_) {
    done_ += got;
    return false;
  }
  // A direct read can only go on from an aligned place; the bytes past it are read again.
  const DirectShape& shape = request_.file->direct();
  const size_t unit = std::max(shape.offset_align, shape.memory_align);
  const size_t aligned = align_down(got, unit);
  if (aligned == 0) direct_ = false;
  done_ += aligned;
  return false;
}

}  // namespace fxload
