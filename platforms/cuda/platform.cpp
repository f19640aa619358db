#include "platforms/cuda/platform.h"

#include <array>

#include "platforms/cuda/abi.h"
#include "platforms/gpu/platform.h"

namespace fxload::cuda {

namespace {

constexpr std::array kAbsent{abi::kInsufficientDriver, abi::kNoDevice};

static_assert(abi::kEventDefault == gpu::kNoFlags && abi::kWaitDefault == gpu::kNoFlags &&
              abi::kHostAllocDefault == gpu::kNoFlags &&
              abi::kHostRegisterDefault == gpu::kNoFlags && abi::kSuccess == 0);

RuntimeSearch search_in(std::span<const std::string> folders) {
  static constexpr std::array kVariables{"CUDA_HOME", "CUDA_PATH"};
  static constexpr std::array kBelow{"lib64", "lib"};
  RuntimeSearch search;
  search.vendor = "CUDA";
  search.stem = "libcudart";
  search.names = {"libcudart.so.13", "libcudart.so.12"};
  search.folders.assign(folders.begin(), folders.end());
  search.toolkit = folders_from_environment(kVariables, kBelow);
  search.toolkit.insert(search.toolkit.end(), {"/usr/local/cuda/lib64", "/usr/local/cuda/lib"});
  return search;
}

// 12080 is 12.8.
std::string version_text(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

}  // namespace

Result<std::shared_ptr<Platform>> find_platform(std::span<const std::string> folders) {
  Result<RuntimeLibrary> library = RuntimeLibrary::find(search_in(folders));
  if (!library.ok()) return library.status();
  gpu::Table table;
  FunctionBinder bind(*library);
  bind.required<abi::GetDeviceCount>(&table.get_device_count, "cudaGetDeviceCount");
  bind.required<abi::SetDevice>(&table.set_device, "cudaSetDevice");
  bind.required<abi::GetErrorString>(&table.get_error_string, "cudaGetErrorString");
  bind.required<abi::GetLastError>(&table.get_last_error, "cudaGetLastError");
  bind.required<abi::Malloc>(&table.malloc, "cudaMalloc");
  bind.required<abi::Free>(&table.free, "cudaFree");
  bind.required<abi::MemGetInfo>(&table.mem_get_info, "cudaMemGetInfo");
  bind.required<abi::HostAlloc>(&table.host_alloc, "cudaHostAlloc");
  bind.required<abi::HostFree>(&table.host_free, "cudaFreeHost");
  bind.required<abi::HostRegister>(&table.host_register, "cudaHostRegister");
  bind.required<abi::HostUnregister>(&table.host_unregister, "cudaHostUnregister");
  bind.required<abi::StreamCreateWithFlags>(&table.stream_create, "cudaStreamCreateWithFlags");
  bind.required<abi::StreamDestroy>(&table.stream_destroy, "cudaStreamDestroy");
  bind.required<abi::StreamQuery>(&table.stream_query, "cudaStreamQuery");
  bind.required<abi::StreamWaitEvent>(&table.stream_wait_event, "cudaStreamWaitEvent");
  bind.required<abi::EventCreateWithFlags>(&table.event_create, "cudaEventCreateWithFlags");
  bind.required<abi::EventDestroy>(&table.event_destroy, "cudaEventDestroy");
  bind.required<abi::EventRecord>(&table.event_record, "cudaEventRecord");
  bind.required<abi::EventQuery>(&table.event_query, "cudaEventQuery");
  bind.required<abi::EventElapsedTime>(&table.event_elapsed_time, "cudaEventElapsedTime");
  bind.required<abi::MemcpyAsync>(&table.memcpy_async, "cudaMemcpyAsync");
  bind.optional<abi::RuntimeGetVersion>(&table.runtime_get_version, "cudaRuntimeGetVersion");
  bind.optional<abi::DeviceGetPCIBusId>(&table.device_get_pci_bus_id, "cudaDeviceGetPCIBusId");
  abi::GetDeviceProperties* get_properties = nullptr;
  // Version 12 has both: the one that matches its headers, and one for programs of version 11.
  bind.optional<abi::GetDeviceProperties>(&get_properties, "cudaGetDeviceProperties");
  if (Status status = bind.finish(); !status.ok()) return status;

  auto runtime = std::make_shared<gpu::Runtime>();
  runtime->library = *library;
  runtime->dialect.platform = "cuda";
  runtime->dialect.vendor = "CUDA";
  runtime->dialect.prefix = "cuda";
  runtime->dialect.host_alloc = "HostAlloc";
  runtime->dialect.host_free = "FreeHost";
  runtime->dialect.absent = kAbsent;
  runtime->dialect.out_of_memory = abi::kOutOfMemory;
  runtime->dialect.not_ready = abi::kNotReady;
  runtime->dialect.stream_flags = abi::kStreamNonBlocking;
  runtime->dialect.version_text = version_text;
  runtime->table = table;
  runtime->device_name = [get_properties](int index) -> std::string {
    // Aligned as the structure is, and larger than it in any version so far.
    alignas(16) std::array<char, abi::kPropertiesBytes> properties{};
    if (get_properties == nullptr || get_properties(properties.data(), index) != 0) return "";
    properties[abi::kPropertiesNameBytes - 1] = '\0';
    return properties.data();
  };
  return gpu::make_platform(std::move(runtime));
}

}  // namespace fxload::cuda
