#pragma once

#include <cstddef>
#include <string>

#include "io/file.h"

namespace fxload {

// How reads of one kind of file are shaped.
struct Tuning {
  size_t request_bytes = 0;
  size_t depth = 0;  // requests in flight
  std::string reason;
};

// For reads that go to the storage. Large requests and a deep queue: an array across a network
// needs latency × bandwidth in flight, and a local disk does not mind.
Tuning tune_storage(bool direct);
// For what is already in memory: one thread a processor, requests of a huge page, so that pages are
// still in the processor's cache from being touched when they are filled.
Tuning tune_memory();

}  // namespace fxload
