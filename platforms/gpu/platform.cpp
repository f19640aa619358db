#include "platforms/gpu/platform.h"

#include <algorithm>
#include <array>

#include "device/checks.h"
#include "device/pci.h"
#include "platforms/gpu/device.h"

namespace fxload::gpu {

Status Runtime::failed(const std::string& function, int status) const {
  const char* text = table.get_error_string(status);
  (void)table.get_last_error();
  return Status::error(Code::kDevice, dialect.prefix + function + " failed with status " +
                                          std::to_string(status) + ": " +
                                          (text != nullptr ? text : "no reason given"));
}

bool Runtime::absent(int status) const {
  return std::find(dialect.absent.begin(), dialect.absent.end(), status) != dialect.absent.end();
}

namespace {

class GpuPlatform : public Platform {
 public:
  explicit GpuPlatform(std::shared_ptr<const Runtime> runtime) : runtime_(std::move(runtime)) {}

  std::string_view name() const override { return runtime_->dialect.platform; }
  const std::string& library() const override { return runtime_->library.path(); }
  const std::string& found_by() const override { return runtime_->library.found_by(); }
  std::string version() const override {
    int number = 0;
    if (runtime_->table.runtime_get_version == nullptr ||
        runtime_->table.runtime_get_version(&number) != 0 || number <= 0) {
      return "";
    }
    return runtime_->dialect.version_text(number);
  }
  Result<int> device_count() override;
  Result<std::shared_ptr<Device>> open(int index) override;

 private:
  DeviceInfo describe(int index) const;

  std::shared_ptr<const Runtime> runtime_;
  OwnProcess process_;
};

Result<int> GpuPlatform::device_count() {
  if (Status status = process_.check(runtime_->dialect.platform); !status.ok()) return status;
  int count = 0;
  const int status = runtime_->table.get_device_count(&count);
  if (runtime_->absent(status)) {
    (void)runtime_->table.get_last_error();
    return 0;
  }
  if (status != 0) return runtime_->failed("GetDeviceCount", status);
  return count;
}

Result<std::shared_ptr<Device>> GpuPlatform::open(int index) {
  Result<int> count = device_count();
  if (!count.ok()) return count.status();
  if (Status status = check_index(runtime_->dialect.platform, index, *count); !status.ok()) {
    return status;
  }
  return std::shared_ptr<Device>(std::make_shared<GpuDevice>(runtime_, index, describe(index)));
}

DeviceInfo GpuPlatform::describe(int index) const {
  DeviceInfo info;
  info.name = runtime_->device_name(index);
  std::array<char, 64> bus{};
  if (runtime_->table.device_get_pci_bus_id != nullptr &&
      runtime_->table.device_get_pci_bus_id(bus.data(), bus.size() - 1, index) == 0) {
    info.pci_bus = normal_pci_bus(bus.data());
    info.numa_node = pci_numa_node(info.pci_bus);
  }
  (void)runtime_->table.get_last_error();
  return info;
}

}  // namespace

Result<std::shared_ptr<Platform>> make_platform(std::shared_ptr<const Runtime> runtime) {
  auto platform = std::make_shared<GpuPlatform>(runtime);
  Result<int> count = platform->device_count();
  if (!count.ok()) return count.status();
  if (*count == 0) {
    return Status::error(Code::kUnsupported, "the " + runtime->dialect.vendor +
                                                 " runtime finds no device; check the driver, and "
                                                 "that this process may see one")
        .at(runtime->library.path());
  }
  return std::shared_ptr<Platform>(std::move(platform));
}

}  // namespace fxload::gpu
