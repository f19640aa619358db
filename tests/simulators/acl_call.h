// What every function of the ACL layer starts with.
#pragma once

#include <cstdint>

#include "engine.h"

namespace fxsim {

// Of the last call of this thread that failed.
inline thread_local int last_error = 0;

inline Engine& engine() { return Engine::instance(); }

inline int noted(int status) {
  if (status != 0) last_error = status;
  return status;
}

}  // namespace fxsim

using fxsim::engine;
using fxsim::noted;

// Counts the call, and leaves the function where it has to fail.
#define FXSIM_ENTER()                                         \
  [[maybe_unused]] constexpr const char* function = __func__; \
  if (const int entered = engine().enter(function)) return noted(entered)
