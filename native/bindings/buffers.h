#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "bindings/errors.h"

namespace fxload::bindings {

// A view of any contiguous buffer. Needs the GIL to be made and to end.
class BufferView {
 public:
  explicit BufferView(nanobind::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nanobind::python_error();
  }
  BufferView(const BufferView&) = delete;
  ~BufferView() { PyBuffer_Release(&view_); }
  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(view_.buf), static_cast<size_t>(view_.len)};
  }

 private:
  Py_buffer view_{};
};

// Records of plain numbers, copied out of a buffer.
template <typename Record>
std::vector<Record> records_of(nanobind::handle object, const char* what) {
  const BufferView view(object);
  if (view.bytes().size() % sizeof(Record) != 0) raise(Status::error(Code::kUsage, what));
  std::vector<Record> records(view.bytes().size() / sizeof(Record));
  if (!records.empty()) std::memcpy(records.data(), view.bytes().data(), view.bytes().size());
  return records;
}

}  // namespace fxload::bindings
