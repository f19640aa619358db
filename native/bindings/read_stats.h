#pragma once

#include <nanobind/nanobind.h>

#include "pipeline/read_stats.h"

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

}  // namespace fxload::bindings
