#include "controls.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>

namespace fxsim {
namespace {

struct Name {
  std::string_view name;
  Controls::Value Controls::* value;
};

constexpr Name kNames[] = {
    {"devices", &Controls::devices},
    {"device_memory", &Controls::device_memory},
    {"bandwidth", &Controls::bandwidth},
    {"bandwidth_shared", &Controls::bandwidth_shared},
    {"copy_delay_us", &Controls::copy_delay_us},
    {"jitter_us", &Controls::jitter_us},
    {"seed", &Controls::seed},
    {"hang", &Controls::hang},
    {"hang_after", &Controls::hang_after},
    {"refuse_registration", &Controls::refuse_registration},
    {"poison", &Controls::poison},
    {"touched_memory", &Controls::touched_memory},
    {"copy_align", &Controls::copy_align},
    {"copy_align_within", &Controls::copy_align_within},
    {"secret_host_memory", &Controls::secret_host_memory},
    {"no_device_status", &Controls::no_device_status},
};

std::string variable_of(std::string_view name) {
  std::string variable = "FXSIM_";
  for (const char each : name) {
    variable += static_cast<char>(std::toupper(static_cast<unsigned char>(each)));
  }
  return variable;
}

[[noreturn]] void refuse(const char* variable, std::string_view text) {
  std::fprintf(stderr, "%s: not understood: %.*s\n", variable, static_cast<int>(text.size()),
               text.data());
  std::abort();
}

}  // namespace

Controls::Controls(const Traits& traits) {
  copy_align = traits.copy_align;
  secret_host_memory = traits.secret_host_memory;
  for (const Name& each : kNames) {
    const std::string variable = variable_of(each.name);
    const char* text = std::getenv(variable.c_str());
    if (text == nullptr) continue;
    char* end = nullptr;
    const long long value = std::strtoll(text, &end, 10);
    if (end == text || *end != '\0') refuse(variable.c_str(), text);
    this->*each.value = value;
  }
  if (const char* text = std::getenv("FXSIM_FAIL")) read_failures(text);
}

Controls::Value* Controls::find(std::string_view name) {
  const auto found = std::find_if(std::begin(kNames), std::end(kNames),
                                  [&](const Name& each) { return each.name == name; });
  return found == std::end(kNames) ? nullptr : &(this->*found->value);
}

void Controls::fail(std::string_view function, int64_t nth, int status) {
  const std::lock_guard lock(mutex_);
  failures_.push_back({std::string(function), nth, status});
}

int Controls::failure_of(std::string_view function) {
  const std::lock_guard lock(mutex_);
  int status = 0;
  std::erase_if(failures_, [&](Failure& each) {
    if (each.function != function || --each.calls_left > 0) return false;
    status = each.status;
    return true;
  });
  return status;
}

void Controls::read_failures(std::string_view text) {
  while (!text.empty()) {
    const size_t length = std::min(text.find(','), text.size());
    const std::string one(text.substr(0, length));
    text.remove_prefix(std::min(length + 1, text.size()));
    char function[64];
    long long nth = 0;
    int status = 0;
    if (std::sscanf(one.c_str(), "%63[^:]:%lld:%d", function, &nth, &status) != 3) {
      refuse("FXSIM_FAIL", one);
    }
    fail(function, nth, status);
  }
}

}  // namespace fxsim
