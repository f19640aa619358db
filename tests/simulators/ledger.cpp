#include "ledger.h"

#include <cstdlib>
#include <string_view>
#include <utility>

namespace fxsim {
namespace {

constexpr std::string_view kKindNames[] = {"h2h", "h2d", "d2h", "d2d"};

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char each : text) {
    if (each == '"' || each == '\\') result += '\\';
    result += each;
  }
  return result + '"';
}

}  // namespace

void Ledger::violation(std::string text) {
  violation_count++;
  if (violations.size() < kKept) violations.push_back(std::move(text));
}

int64_t Ledger::get(const std::string& name) const {
  if (name.starts_with("calls:")) {
    const auto found = calls.find(name.substr(6));
    return found == calls.end() ? 0 : found->second;
  }
  if (name.starts_with("contexts:")) {
    const auto found = contexts.find(std::atoi(name.c_str() + 9));
    return found == contexts.end() ? 0 : static_cast<int64_t>(found->second.size());
  }
  for (size_t kind = 0; kind < traffic.size(); kind++) {
    if (name == "copies_" + std::string(kKindNames[kind])) return traffic[kind].copies;
    if (name == "bytes_" + std::string(kKindNames[kind])) return traffic[kind].bytes;
  }
  const std::pair<std::string_view, int64_t> plain[] = {
      {"violations", violation_count},
      {"queued", queued},
      {"hanging", hanging},
      {"pageable_copies", pageable.copies},
      {"pageable_bytes", pageable.bytes},
      {"device_bytes", device_bytes.now},
      {"device_bytes_peak", device_bytes.peak},
      {"host_bytes", host_bytes.now},
      {"host_bytes_peak", host_bytes.peak},
      {"registered_bytes", registered_bytes.now},
      {"registered_bytes_peak", registered_bytes.peak},
      {"live_allocations", allocations.now},
      {"live_host_allocations", host_allocations.now},
      {"live_registrations", registrations.now},
      {"live_streams", streams.now},
      {"live_events", events.now},
      {"devices_touched", static_cast<int64_t>(contexts.size())},
      {"host_memory_refuses_direct_reads", host_memory_refuses_direct_reads},
  };
  for (const auto& [known, value] : plain) {
    if (known == name) return value;
  }
  return -1;
}

std::string Ledger::json(const char* runtime) const {
  std::string text = "{\"runtime\": " + quoted(runtime);
  for (const char* name : {"queued",
                           "pageable_copies",
                           "pageable_bytes",
                           "device_bytes",
                           "device_bytes_peak",
                           "host_bytes",
                           "host_bytes_peak",
                           "registered_bytes",
                           "registered_bytes_peak",
                           "live_allocations",
                           "live_host_allocations",
                           "live_registrations",
                           "live_streams",
                           "live_events",
                           "host_memory_refuses_direct_reads",
                           "copies_h2h",
                           "copies_h2d",
                           "copies_d2h",
                           "copies_d2d",
                           "bytes_h2h",
                           "bytes_h2d",
                           "bytes_d2h",
                           "bytes_d2d"}) {
    text += ",\n " + quoted(name) + ": " + std::to_string(get(name));
  }
  text += ",\n \"calls\": {";
  const char* comma = "";
  for (const auto& [name, count] : calls) {
    text += std::exchange(comma, ", ") + quoted(name) + ": " + std::to_string(count);
  }
  text += "},\n \"contexts\": {";
  comma = "";
  for (const auto& [device, threads] : contexts) {
    text += std::exchange(comma, ", ") + quoted(std::to_string(device)) + ": " +
            std::to_string(threads.size());
  }
  text += "},\n \"violation_count\": " + std::to_string(violation_count);
  text += ",\n \"violations\": [";
  comma = "";
  for (const std::string& each : violations) text += std::exchange(comma, ",\n  ") + quoted(each);
  return text + "]}\n";
}

}  // namespace fxsim
