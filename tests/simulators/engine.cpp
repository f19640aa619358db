#include "engine.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

namespace fxsim {
namespace {

thread_local int selected_device = -1;
std::atomic<bool> forked{false};

// "%p" in the path of the report stands for the process.
void write_report() {
  const char* variable = std::getenv("FXSIM_REPORT");
  if (variable == nullptr || forked) return;
  std::string path = variable;
  if (const size_t at = path.find("%p"); at != std::string::npos) {
    path.replace(at, 2, std::to_string(getpid()));
  }
  const std::string fresh = path + ".new";
  std::ofstream(fresh) << Engine::instance().report();
  std::rename(fresh.c_str(), path.c_str());
}

}  // namespace

std::string hex(const void* address) {
  char text[24];
  std::snprintf(text, sizeof text, "%p", address);
  return text;
}

Engine::Engine()
    : controls_(kTraits), pages_(static_cast<size_t>(controls_.touched_memory.load())) {
  // Its threads do not exist in a forked child, as the real runtimes' do not.
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
}

Engine& Engine::instance() {
  // Never destroyed: its threads may outlive main().
  static auto* engine = new Engine;
  static const int registered = std::atexit(write_report);
  static_cast<void>(registered);
  return *engine;
}

int Engine::enter(const char* function) {
  if (forked) return kTraits.codes.not_initialized;
  {
    const std::lock_guard lock(mutex_);
    ledger_.calls[function]++;
  }
  return controls_.failure_of(function);
}

int Engine::violate(const char* function, const std::string& what, int status) {
  ledger_.violation(std::string(function) + ": " + what);
  changed_.notify_all();
  return status;
}

int Engine::device_count(int* count) {
  const auto devices = static_cast<int>(controls_.devices);
  *count = devices;
  if (devices > 0) return 0;
  const auto status = static_cast<int>(controls_.no_device_status);
  return status != 0 ? status : kTraits.codes.no_device;
}

int Engine::select(int device) {
  int count = 0;
  if (const int status = device_count(&count)) return status;
  if (device < 0 || device >= count) return kTraits.codes.invalid_device;
  const std::lock_guard lock(mutex_);
  if (kTraits.selecting_opens) ledger_.contexts[device].insert(std::this_thread::get_id());
  selected_device = device;
  return 0;
}

int Engine::current() const {
  return selected_device < 0 && kTraits.implicit_device ? 0 : selected_device;
}

// Called with the lock held, by what needs a context.
int Engine::use_device(int* device) {
  int count = 0;
  if (const int status = device_count(&count)) return status;
  *device = current();
  if (*device < 0) {
    ledger_.violation("a thread that has selected no device calls the runtime");
    return kTraits.codes.no_context;
  }
  ledger_.contexts[*device].insert(std::this_thread::get_id());
  return 0;
}

int Engine::allocate(size_t size, void** memory) {
  const Lock lock(mutex_);
  int device = 0;
  if (const int status = use_device(&device)) return status;
  if (memory == nullptr) return kTraits.codes.invalid_value;
  *memory = nullptr;
  if (size == 0) return kTraits.implicit_device ? 0 : kTraits.codes.invalid_value;
  const auto taken = static_cast<int64_t>(round_to_pages(size));
  if (taken > controls_.device_memory - used_[device]) return kTraits.codes.out_of_memory;
  *memory = pages_.take(static_cast<size_t>(taken));
  if (*memory == nullptr) return kTraits.codes.out_of_memory;
  // Real device memory is not zeroed.
  if (controls_.poison != 0) std::fill_n(static_cast<unsigned char*>(*memory), size, 0xcd);
  device_memory_.add(*memory, size, device);
  used_[device] += taken;
  ledger_.device_bytes.add(taken);
  ledger_.allocations.add(1);
  return 0;
}

int Engine::release(const char* function, void* memory) {
  Lock lock(mutex_);
  int device = 0;
  if (const int status = use_device(&device)) return status;
  if (memory == nullptr) return 0;
  const Block* found = device_memory_.starting_at(memory);
  if (found == nullptr) {
    return violate(function, hex(memory) + " is no live device memory",
                   kTraits.codes.invalid_value);
  }
  const Block block = *found;
  note_if_in_use(lock, function, block);
  const size_t taken = round_to_pages(block.size);
  device_memory_.remove(memory);
  used_[block.device] -= static_cast<int64_t>(taken);
  ledger_.device_bytes.add(-static_cast<int64_t>(taken));
  ledger_.allocations.add(-1);
  pages_.give_back(memory, taken);
  return 0;
}

int Engine::allocate_host(size_t size, void** memory) {
  const Lock lock(mutex_);
  int device = 0;
  if (const int status = use_device(&device)) return status;
  if (memory == nullptr || size == 0) return kTraits.codes.invalid_value;
  bool secret = controls_.secret_host_memory != 0;
  *memory = map_pages(round_to_pages(size), &secret);
  if (*memory == nullptr) return kTraits.codes.out_of_memory;
  ledger_.host_memory_refuses_direct_reads = secret;
  host_memory_.add(*memory, round_to_pages(size), device);
  own_host_memory_.insert(*memory);
  ledger_.host_bytes.add(static_cast<int64_t>(round_to_pages(size)));
  ledger_.host_allocations.add(1);
  return 0;
}

int Engine::release_host(const char* function, void* memory) {
  Lock lock(mutex_);
  if (memory == nullptr) return 0;
  if (!own_host_memory_.contains(memory)) {
    return violate(function, hex(memory) + " is no live host allocation",
                   kTraits.codes.invalid_value);
  }
  const Block block = *host_memory_.starting_at(memory);
  note_if_in_use(lock, function, block);
  host_memory_.remove(memory);
  own_host_memory_.erase(memory);
  ledger_.host_bytes.add(-static_cast<int64_t>(block.size));
  ledger_.host_allocations.add(-1);
  unmap_pages(memory, block.size);
  return 0;
}

int Engine::register_host(const char* function, void* memory, size_t size) {
  const Lock lock(mutex_);
  int device = 0;
  if (const int status = use_device(&device)) return status;
  if (controls_.refuse_registration != 0) {
    return static_cast<int>(controls_.refuse_registration);
  }
  if (memory == nullptr || size == 0) return kTraits.codes.invalid_value;
  if (kTraits.registers_whole_pages && !starts_on_page(memory)) {
    return violate(function, hex(memory) + " does not start on a page",
                   kTraits.codes.invalid_value);
  }
  if (host_memory_.touches(memory, size)) return kTraits.codes.already_registered;
  if (!is_mapped(memory, size)) {
    return violate(function, hex(memory) + " is not mapped", kTraits.codes.invalid_value);
  }
  // As a driver does, which is what RLIMIT_MEMLOCK may refuse.
  if (mlock(memory, size) != 0) return kTraits.codes.out_of_memory;
  host_memory_.add(memory, size, device);
  ledger_.registered_bytes.add(static_cast<int64_t>(size));
  ledger_.registrations.add(1);
  return 0;
}

int Engine::unregister_host(const char* function, void* memory) {
  Lock lock(mutex_);
  const Block* found = host_memory_.starting_at(memory);
  if (found == nullptr || own_host_memory_.contains(memory)) {
    return violate(function, hex(memory) + " is not registered", kTraits.codes.not_registered);
  }
  const Block block = *found;
  note_if_in_use(lock, function, block);
  host_memory_.remove(memory);
  ledger_.registered_bytes.add(-static_cast<int64_t>(block.size));
  ledger_.registrations.add(-1);
  if (is_mapped(memory, block.size)) {
    munlock(memory, block.size);
  } else {
    violate(function, hex(memory) + " was unmapped before", 0);
  }
  return 0;
}

int Engine::memory_info(size_t* free, size_t* total) {
  const Lock lock(mutex_);
  int device = 0;
  if (const int status = use_device(&device)) return status;
  const int64_t most = controls_.device_memory;
  *total = static_cast<size_t>(most);
  *free = static_cast<size_t>(std::max(most - used_[device], int64_t{0}));
  return 0;
}

int Engine::owner_of(const void* address) {
  const Lock lock(mutex_);
  if (const Block* block = device_memory_.holding(address, 1)) return block->device;
  return host_memory_.holding(address, 1) != nullptr ? -1 : -2;
}

int64_t Engine::get(const std::string& name) {
  if (const Controls::Value* control = controls_.find(name)) return *control;
  const Lock lock(mutex_);
  return ledger_.get(name);
}

bool Engine::set(const std::string& name, int64_t value) {
  Controls::Value* control = controls_.find(name);
  if (control == nullptr) return false;
  const Lock lock(mutex_);
  *control = value;
  if (name == "hang_after") copies_started_ = 0;
  changed_.notify_all();
  return true;
}

bool Engine::wait_until(const std::string& name, int64_t value, int64_t timeout_ms) {
  Lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                           [&] { return ledger_.get(name) >= value; });
}

bool Engine::hold(void* stream, bool held) {
  const Lock lock(mutex_);
  if (stream == nullptr && !held) {
    for (Stream* each : all_streams()) each->held = false;
  } else if (streams_.contains(stream)) {
    static_cast<Stream*>(stream)->held = held;
  } else {
    return false;
  }
  changed_.notify_all();
  return true;
}

std::string Engine::violation(size_t index) {
  const Lock lock(mutex_);
  return index < ledger_.violations.size() ? ledger_.violations[index] : "";
}

std::string Engine::report() {
  const Lock lock(mutex_);
  return ledger_.json(kTraits.name);
}

void Engine::reset() {
  const Lock lock(mutex_);
  ledger_.calls.clear();
  ledger_.traffic = {};
  ledger_.pageable = {};
  ledger_.violations.clear();
  ledger_.violation_count = 0;
  ledger_.contexts.clear();
  for (Gauge* each : {&ledger_.device_bytes, &ledger_.host_bytes, &ledger_.registered_bytes}) {
    each->peak = each->now;
  }
}

}  // namespace fxsim
