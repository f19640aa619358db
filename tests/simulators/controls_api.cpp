// The functions by which a test that has loaded the library speaks to it.
#include <algorithm>
#include <cstring>
#include <string>

#include "engine.h"

namespace {

fxsim::Engine& engine() { return fxsim::Engine::instance(); }

// Answers the length of the text, whether or not it fits.
long copy_out(const std::string& text, char* buffer, long size) {
  if (size > 0) {
    const size_t length = std::min(text.size(), static_cast<size_t>(size) - 1);
    std::memcpy(buffer, text.data(), length);
    buffer[length] = '\0';
  }
  return static_cast<long>(text.size());
}

}  // namespace

// 0, or -1 for a name that no control has.
FXSIM_EXPORT int fxsim_set(const char* name, long value) {
  return engine().set(name, value) ? 0 : -1;
}

// The value of a control or a counter; -1 for neither.
FXSIM_EXPORT long fxsim_get(const char* name) { return engine().get(name); }

// 1 as soon as a counter has reached the value, 0 if it has not in time.
FXSIM_EXPORT int fxsim_wait(const char* name, long value, long timeout_ms) {
  return engine().wait_until(name, value, timeout_ms) ? 1 : 0;
}

// The `nth` call from now on (1: the next) of a function answers `status`. "copy": the nth copy
// fails when it runs.
FXSIM_EXPORT void fxsim_fail(const char* function, long nth, int status) {
  engine().controls().fail(function, nth, status);
}

// Copies of this stream wait until it is called with 0, for it or for nullptr. -1 for a stream that
// is none.
FXSIM_EXPORT int fxsim_hold(void* stream, int held) {
  return engine().hold(stream, held != 0) ? 0 : -1;
}

FXSIM_EXPORT long fxsim_violation(long index, char* buffer, long size) {
  return copy_out(engine().violation(static_cast<size_t>(index)), buffer, size);
}

// What FXSIM_REPORT gets when the process ends.
FXSIM_EXPORT long fxsim_report(char* buffer, long size) {
  return copy_out(engine().report(), buffer, size);
}

// Forgets calls, traffic, violations, contexts and peaks; what lives goes on.
FXSIM_EXPORT void fxsim_reset() { engine().reset(); }
