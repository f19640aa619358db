#include "platforms/rocm/platform.h"

#include <array>

#include "platforms/gpu/platform.h"
#include "platforms/rocm/abi.h"

namespace fxload::rocm {

namespace {

constexpr std::array kAbsent{abi::kNoDevice};

static_assert(abi::kEventDefault == gpu::kNoFlags && abi::kWaitDefault == gpu::kNoFlags &&
              abi::kHostAllocDefault == gpu::kNoFlags &&
              abi::kHostRegisterDefault == gpu::kNoFlags && abi::kSuccess == 0);

RuntimeSearch search_in(std::span<const std::string> folders) {
  static constexpr std::array kVariables{"ROCM_PATH", "ROCM_HOME", "HIP_PATH"};
  static constexpr std::array kBelow{"lib", "lib64"};
  RuntimeSearch search;
  search.vendor = "ROCm";
  search.stem = "libamdhip64";
  // torch's wheels carry it without a version.
  search.names = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"};
  search.folders.assign(folders.begin(), folders.end());
  search.toolkit = folders_from_environment(kVariables, kBelow);
  search.toolkit.insert(search.toolkit.end(), {"/opt/rocm/lib", "/opt/rocm/lib64"});
  return search;
}

// HIP_VERSION: 60241134 is 6.2.41134.
std::string version_text(int number) {
  return std::to_string(number / 10'000'000) + "." + std::to_string(number / 100'000 % 100) + "." +
         std::to_string(number % 100'000);
}

}  // namespace

Result<std::shared_ptr<Platform>> find_platform(std::span<const std::string> folders) {
  Result<RuntimeLibrary> library = RuntimeLibrary::find(search_in(folders));
  if (!library.ok()) return library.status();
  gpu::Table table;
  FunctionBinder bind(*library);
  bind.required<abi::GetDeviceCount>(&table.get_device_count, "hipGetDeviceCount");
  bind.required<abi::SetDevice>(&table.set_device, "hipSetDevice");
  bind.required<abi::GetErrorString>(&table.get_error_string, "hipGetErrorString");
  bind.required<abi::GetLastError>(&table.get_last_error, "hipGetLastError");
  bind.required<abi::Malloc>(&table.malloc, "hipMalloc");
  bind.required<abi::Free>(&table.free, "hipFree");
  bind.required<abi::MemGetInfo>(&table.mem_get_info, "hipMemGetInfo");
  bind.required<abi::HostAlloc>(&table.host_alloc, "hipHostMalloc");
  bind.required<abi::HostFree>(&table.host_free, "hipHostFree");
  bind.required<abi::HostRegister>(&table.host_register, "hipHostRegister");
  bind.required<abi::HostUnregister>(&table.host_unregister, "hipHostUnregister");
  bind.required<abi::StreamCreateWithFlags>(&table.stream_create, "hipStreamCreateWithFlags");
  bind.required<abi::StreamDestroy>(&table.stream_destroy, "hipStreamDestroy");
  bind.required<abi::StreamQuery>(&table.stream_query, "hipStreamQuery");
  bind.required<abi::StreamWaitEvent>(&table.stream_wait_event, "hipStreamWaitEvent");
  bind.required<abi::EventCreateWithFlags>(&table.event_create, "hipEventCreateWithFlags");
  bind.required<abi::EventDestroy>(&table.event_destroy, "hipEventDestroy");
  bind.required<abi::EventRecord>(&table.event_record, "hipEventRecord");
  bind.required<abi::EventQuery>(&table.event_query, "hipEventQuery");
  bind.required<abi::EventElapsedTime>(&table.event_elapsed_time, "hipEventElapsedTime");
  bind.required<abi::MemcpyAsync>(&table.memcpy_async, "hipMemcpyAsync");
  bind.optional<abi::RuntimeGetVersion>(&table.runtime_get_version, "hipRuntimeGetVersion");
  bind.optional<abi::DeviceGetPCIBusId>(&table.device_get_pci_bus_id, "hipDeviceGetPCIBusId");
  abi::DeviceGetName* get_name = nullptr;
  bind.optional<abi::DeviceGetName>(&get_name, "hipDeviceGetName");
  if (Status status = bind.finish(); !status.ok()) return status;

  auto runtime = std::make_shared<gpu::Runtime>();
  runtime->library = *library;
  runtime->dialect.platform = "rocm";
  runtime->dialect.vendor = "ROCm";
  runtime->dialect.prefix = "hip";
  runtime->dialect.host_alloc = "HostMalloc";
  runtime->dialect.host_free = "HostFree";
  runtime->dialect.absent = kAbsent;
  runtime->dialect.out_of_memory = abi::kOutOfMemory;
  runtime->dialect.not_ready = abi::kNotReady;
  runtime->dialect.stream_flags = abi::kStreamNonBlocking;
  runtime->dialect.version_text = version_text;
  runtime->table = table;
  runtime->device_name = [get_name](int index) -> std::string {
    std::array<char, 256> name{};
    if (get_name == nullptr || get_name(name.data(), name.size() - 1, index) != 0) return "";
    return name.data();
  };
  return gpu::make_platform(std::move(runtime));
}

}  // namespace fxload::rocm
