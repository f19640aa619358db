#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "bindings/errors.h"
#include "pipeline/load.h"

namespace fxload::bindings {

inline nanobind::dict to_dict(const ReadStats& stats) {
  nanobind::dict result;
  result["engine"] = stats.engine;
  result["engine_reason"] = stats.engine_reason;
  result["tuning_reason"] = stats.tuning_reason;
  result["request_bytes"] = stats.request_bytes;
  result["depth"] = stats.depth;
  result["planned_bytes"] = stats.planned_bytes;
  result["landed_bytes"] = stats.landed_bytes;
  result["direct_bytes"] = stats.direct_bytes;
  result["cached_bytes"] = stats.cached_bytes;
  result["buffered_bytes"] = stats.buffered_bytes;
  result["requests"] = stats.requests;
  result["first_byte_s"] = stats.first_byte_s;
  result["elapsed_s"] = stats.elapsed_s;
  result["quarantined_bytes"] = stats.quarantined_bytes;
  return result;
}

// What Load and DeviceLoad have in common, as Python calls it.

template <typename AnyLoad>
uint64_t wait_past(AnyLoad& load, uint64_t end, double timeout_s) {
  Load::Wait wait;
  wait_interruptibly(timeout_s, [&](TimePoint slice) {
    wait = load.wait_past(end, slice);
    return wait.done || !wait.status.ok();
  });
  check(wait.status);
  return wait.landed;
}

template <typename AnyLoad>
std::vector<std::string> digests_of(const AnyLoad& load) {
  std::optional<Result<std::vector<std::string>>> digests;
  // The bytes are there already: what is left to wait for is a few leaves' hashing.
  {
    const nanobind::gil_scoped_release unlocked;
    digests.emplace(load.digests(after_seconds(60)));
  }
  return value_of(std::move(*digests));
}

}  // namespace fxload::bindings
