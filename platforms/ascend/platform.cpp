#include "platforms/ascend/platform.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <optional>

#include "device/checks.h"
#include "device/pci.h"
#include "platforms/ascend/device.h"
#include "platforms/ascend/npu_smi.h"

namespace fxload::ascend {

namespace {

// The tool asks every device of the host, which takes it a second or two.
constexpr double kToolTimeoutS = 5;
// The runtime's words can be pages of them.
constexpr size_t kLongestText = 500;

RuntimeSearch search_in(std::span<const std::string> folders) {
  static constexpr std::array kVariables{"ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH"};
  static constexpr std::array kBelow{"lib64"};
  RuntimeSearch search;
  search.vendor = "Ascend (CANN)";
  search.stem = "libascendcl";
  search.names = {"libascendcl.so"};
  search.folders.assign(folders.begin(), folders.end());
  search.toolkit = folders_from_environment(kVariables, kBelow);
  search.toolkit.insert(search.toolkit.end(), {"/usr/local/Ascend/ascend-toolkit/latest/lib64",
                                               "/usr/local/Ascend/cann/lib64"});
  return search;
}

bool absent(int status) { return status == abi::kNoDevice || status == abi::kDriverInternalError; }

// On one line, and not without end.
std::string one_line(const char* text) {
  std::string line;
  for (; text != nullptr && *text != '\0' && line.size() < kLongestText; ++text) {
    const bool blank = static_cast<unsigned char>(*text) <= ' ';
    if (!blank) {
      line += *text;
    } else if (!line.empty() && line.back() != ' ') {
      line += ' ';
    }
  }
  if (!line.empty() && line.back() == ' ') line.pop_back();
  return line.empty() ? "no reason given" : line;
}

// The n-th number of "4,5,6"; `n` itself where nothing limits what is visible.
int nth_visible(const char* list, int n) {
  if (list == nullptr || *list == '\0') return n;
  std::string_view rest = list;
  for (int at = 0; !rest.empty(); ++at) {
    const std::string_view item = rest.substr(0, rest.find(','));
    int number = -1;
    std::from_chars(item.data(), item.data() + item.size(), number);
    if (at == n) return number;
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
  }
  return -1;
}

class AscendPlatform : public Platform {
 public:
  explicit AscendPlatform(std::shared_ptr<const Runtime> runtime) : runtime_(std::move(runtime)) {}

  std::string_view name() const override { return "ascend"; }
  const std::string& library() const override { return runtime_->library.path(); }
  const std::string& found_by() const override { return runtime_->library.found_by(); }
  std::string version() const override;
  Result<int> device_count() override;
  Result<std::shared_ptr<Device>> open(int index) override;

 private:
  DeviceInfo describe(int index);
  int physical_id(int index) const;
  // What the tool prints, asked for once.
  const std::string& tool_output();

  std::shared_ptr<const Runtime> runtime_;
  OwnProcess process_;
  std::mutex mutex_;
  std::optional<std::string> tool_output_;  // guarded by mutex_; not written again
};

std::string AscendPlatform::version() const {
  int32_t major = 0;
  int32_t minor = 0;
  int32_t patch = 0;
  if (runtime_->table.get_version == nullptr ||
      runtime_->table.get_version(&major, &minor, &patch) != abi::kSuccess) {
    return "";
  }
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

Result<int> AscendPlatform::device_count() {
  if (Status status = process_.check("ascend"); !status.ok()) return status;
  uint32_t count = 0;
  const int status = runtime_->table.get_device_count(&count);
  if (absent(status)) return 0;
  if (status != abi::kSuccess) return runtime_->failed("aclrtGetDeviceCount", status);
  return static_cast<int>(count);
}

Result<std::shared_ptr<Device>> AscendPlatform::open(int index) {
  Result<int> count = device_count();
  if (!count.ok()) return count.status();
  if (Status status = check_index("ascend", index, *count); !status.ok()) return status;
  return std::shared_ptr<Device>(std::make_shared<AscendDevice>(runtime_, index, describe(index)));
}

DeviceInfo AscendPlatform::describe(int index) {
  DeviceInfo info;
  const char* name =
      runtime_->table.get_soc_name != nullptr ? runtime_->table.get_soc_name() : nullptr;
  if (name != nullptr) info.name = name;
  // ACL does not tell where a device is attached.
  info.pci_bus = pci_bus_in(tool_output(), physical_id(index));
  info.numa_node = pci_numa_node(info.pci_bus);
  return info;
}

int AscendPlatform::physical_id(int index) const {
  int32_t physical = -1;
  if (runtime_->table.get_physical_id != nullptr &&
      runtime_->table.get_physical_id(index, &physical) == abi::kSuccess) {
    return physical;
  }
  return nth_visible(std::getenv("ASCEND_RT_VISIBLE_DEVICES"), index);
}

const std::string& AscendPlatform::tool_output() {
  const std::lock_guard lock(mutex_);
  if (!tool_output_) {
    tool_output_ = output_of({"npu-smi", "info"}, after_seconds(kToolTimeoutS)).value_or("");
  }
  return *tool_output_;
}

Status no_device(const Runtime& runtime) {
  return Status::error(Code::kUnsupported,
                       "the Ascend runtime finds no device; check the driver (npu-smi info), and "
                       "that this process may see one (ASCEND_RT_VISIBLE_DEVICES)")
      .at(runtime.library.path());
}

}  // namespace

Status Runtime::failed(const char* function, int status) const {
  return Status::error(Code::kDevice, std::string(function) + " failed with status " +
                                          std::to_string(status) + ": " +
                                          one_line(table.get_recent_err_msg()));
}

Result<std::shared_ptr<Platform>> find_platform(std::span<const std::string> folders) {
  Result<RuntimeLibrary> library = RuntimeLibrary::find(search_in(folders));
  if (!library.ok()) return library.status();
  auto runtime = std::make_shared<Runtime>();
  runtime->library = *library;
  Table& table = runtime->table;
  FunctionBinder bind(*library);
  bind.required(&table.init, "aclInit");
  bind.required(&table.get_recent_err_msg, "aclGetRecentErrMsg");
  bind.required(&table.get_device_count, "aclrtGetDeviceCount");
  bind.required(&table.set_device, "aclrtSetDevice");
  bind.required(&table.malloc, "aclrtMalloc");
  bind.required(&table.free, "aclrtFree");
  bind.required(&table.get_mem_info, "aclrtGetMemInfo");
  bind.required(&table.malloc_host, "aclrtMallocHost");
  bind.required(&table.free_host, "aclrtFreeHost");
  bind.required(&table.host_unregister, "aclrtHostUnregister");
  bind.required(&table.create_stream, "aclrtCreateStreamWithConfig");
  bind.required(&table.destroy_stream, "aclrtDestroyStream");
  bind.required(&table.stream_query, "aclrtStreamQuery");
  bind.required(&table.stream_wait_event, "aclrtStreamWaitEvent");
  bind.required(&table.create_event, "aclrtCreateEventExWithFlag");
  bind.required(&table.destroy_event, "aclrtDestroyEvent");
  bind.required(&table.record_event, "aclrtRecordEvent");
  bind.required(&table.query_event_status, "aclrtQueryEventStatus");
  bind.required(&table.event_elapsed_time, "aclrtEventElapsedTime");
  bind.required(&table.memcpy_async, "aclrtMemcpyAsync");
  bind.optional(&table.host_register_v2, "aclrtHostRegisterV2");
  if (table.host_register_v2 != nullptr) {
    bind.optional(&table.host_register, "aclrtHostRegister");
  } else {
    bind.required(&table.host_register, "aclrtHostRegister");
  }
  bind.optional(&table.set_stream_failure_mode, "aclrtSetStreamFailureMode");
  bind.optional(&table.memcpy_batch_async, "aclrtMemcpyBatchAsync");
  bind.optional(&table.get_version, "aclrtGetVersion");
  bind.optional(&table.get_soc_name, "aclrtGetSocName");
  bind.optional(&table.get_physical_id, "aclrtGetPhyDevIdByLogicDevId");
  if (Status status = bind.finish(); !status.ok()) return status;

  // Never undone: torch_npu may share the runtime, and whoever initialised it first.
  const int status = table.init(nullptr);
  if (absent(status)) return no_device(*runtime);
  if (status != abi::kSuccess && status != abi::kRepeatInitialize) {
    return runtime->failed("aclInit", status);
  }
  auto platform = std::make_shared<AscendPlatform>(runtime);
  Result<int> count = platform->device_count();
  if (!count.ok()) return count.status();
  if (*count == 0) return no_device(*runtime);
  return std::shared_ptr<Platform>(std::move(platform));
}

}  // namespace fxload::ascend
