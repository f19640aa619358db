#include "bindings/errors.h"

#include <string>

namespace fxload::bindings {

namespace nb = nanobind;

void raise(const Status& status) {
  const Status::Detail& detail = status.detail();
  const auto text = [](const std::string& value) {
    // A path is bytes to the system; what is not UTF-8 comes through as the file system's codec
    // would have it.
    return nb::steal<nb::object>(
        PyUnicode_DecodeFSDefaultAndSize(value.data(), static_cast<Py_ssize_t>(value.size())));
  };
  const auto number = [](const std::optional<uint64_t>& value) {
    return value ? nb::object(nb::int_(*value)) : nb::none();
  };
  const nb::object error =
      nb::module_::import_("fxload._errors")
          .attr("from_status")(
              nb::str(std::string(code_name(detail.code)).c_str()), text(detail.reason),
              detail.path.empty() ? nb::none() : text(detail.path), number(detail.offset),
              number(detail.length),
              detail.os_errno != 0 ? nb::object(nb::int_(detail.os_errno)) : nb::none());
  PyErr_SetObject(error.type().ptr(), error.ptr());
  throw nb::python_error();
}

}  // namespace fxload::bindings
