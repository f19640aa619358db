#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "base/quarantine.h"

namespace fxload::bindings {

void bind_device_loads(nanobind::module_& module, const std::shared_ptr<Quarantine>& quarantine);

}  // namespace fxload::bindings
