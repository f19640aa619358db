#include "bindings/devices.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <functional>
#include <optional>

#include "bindings/apart.h"
#include "bindings/errors.h"
#include "bindings/files.h"
#include "device/read_back.h"
#include "platforms/platforms.h"

namespace fxload::bindings {

namespace nb = nanobind;

namespace {

std::string name_of(const Device& device) {
  return device.traits().platform + " device " + std::to_string(device.index());
}

// Device memory while it is nobody's yet, or no longer: released where the last who holds it ends,
// which may be the thread of an allocation that its caller has given up.
class LooseMemory {
 public:
  LooseMemory(std::shared_ptr<Device> device, std::byte* address)
      : device_(std::move(device)), address_(address) {}
  LooseMemory(const LooseMemory&) = delete;
  ~LooseMemory() {
    // Nobody can be told: what a broken device does not take back ends with the process.
    if (address_ != nullptr && device_->select().ok()) (void)device_->release(address_);
  }
  std::byte* take() { return std::exchange(address_, nullptr); }

 private:
  std::shared_ptr<Device> device_;
  std::byte* address_;
};

// Device memory of one owner. Thread-safe, as it never changes.
class DeviceBuffer {
 public:
  DeviceBuffer(std::shared_ptr<Device> device, std::shared_ptr<Quarantine> quarantine,
               std::byte* address, size_t size)
      : device_(std::move(device)),
        quarantine_(std::move(quarantine)),
        address_(address),
        size_(size) {}
  DeviceBuffer(const DeviceBuffer&) = delete;
  ~DeviceBuffer() {
    const nb::gil_scoped_release unlocked;
    auto work = FanOut::start(1, 1, quarantine_, [device = device_, address = address_](size_t) {
      const LooseMemory released(device, address);
      return Status();
    });
    if (work.ok()) (void)(*work)->wait(after_seconds(kDeviceTimeoutS));
  }

  std::byte* address() const { return address_; }
  size_t size() const { return size_; }

  nb::bytes to_bytes(size_t offset, std::optional<size_t> asked) const {
    if (offset > size_ || asked.value_or(0) > size_ - offset) {
      raise(Status::error(Code::kUsage, "not within the " + std::to_string(size_) +
                                            " bytes of this device memory"));
    }
    const size_t length = asked.value_or(size_ - offset);
    auto content = std::make_shared<std::vector<std::byte>>();
    try {
      content->resize(length);
    } catch (const std::bad_alloc&) {
      raise(Status::error(Code::kMemory,
                          "no host memory for " + std::to_string(length) + " bytes of the device"));
    }
    run_apart(quarantine_, "copying from " + name_of(*device_),
              [device = device_, content, from = address_ + offset] {
                return read_back(*device, *content, from, after_seconds(kDeviceTimeoutS));
              });
    return nb::bytes(content->data(), content->size());
  }

 private:
  std::shared_ptr<Device> device_;
  std::shared_ptr<Quarantine> quarantine_;
  std::byte* address_;
  size_t size_;
};

// Python's Platform.
struct PlatformHolder {
  std::shared_ptr<Platform> platform;
};

}  // namespace

void bind_devices(nb::module_& module, const std::shared_ptr<Quarantine>& quarantine) {
  nb::class_<DeviceBuffer>(module, "DeviceBuffer")
      .def_prop_ro(
          "address",
          [](const DeviceBuffer& buffer) { return reinterpret_cast<uintptr_t>(buffer.address()); })
      .def("__len__", &DeviceBuffer::size)
      .def("to_bytes", &DeviceBuffer::to_bytes, nb::arg("offset") = 0,
           nb::arg("length") = nb::none());

  nb::class_<DeviceHolder>(module, "Device")
      .def_prop_ro("platform",
                   [](const DeviceHolder& self) { return self.device()->traits().platform; })
      .def_prop_ro("index", [](const DeviceHolder& self) { return self.device()->index(); })
      .def_prop_ro("name", [](const DeviceHolder& self) { return self.device()->info().name; })
      .def_prop_ro("pci_bus",
                   [](const DeviceHolder& self) { return self.device()->info().pci_bus; })
      .def_prop_ro("numa_node",
                   [](const DeviceHolder& self) { return self.device()->info().numa_node; })
      .def_prop_ro("tensor_align",
                   [](const DeviceHolder& self) { return self.device()->traits().tensor_align; })
      .def_prop_ro("copy_align",
                   [](const DeviceHolder& self) { return self.device()->traits().copy_align; })
      .def("memory",
           [quarantine](const DeviceHolder& self) {
             const MemoryInfo info =
                 value_apart(quarantine, "asking for the memory of " + name_of(*self.device()),
                             [device = self.device()]() -> Result<MemoryInfo> {
                               if (Status status = device->select(); !status.ok()) return status;
                               return device->memory();
                             });
             return nb::make_tuple(info.free_bytes, info.total_bytes);
           })
      .def(
          "allocate",
          [quarantine](const DeviceHolder& self, size_t size) {
            using Loose = std::shared_ptr<LooseMemory>;
            const Loose memory =
                value_apart(quarantine, "allocating on " + name_of(*self.device()),
                            [device = self.device(), size]() -> Result<Loose> {
                              if (Status status = device->select(); !status.ok()) return status;
                              Result<std::byte*> address = device->allocate(size);
                              if (!address.ok()) return address.status();
                              return std::make_shared<LooseMemory>(device, *address);
                            });
            return std::make_unique<DeviceBuffer>(self.device(), quarantine, memory->take(), size);
          },
          nb::arg("size_bytes"));

  nb::class_<PlatformHolder>(module, "Platform")
      .def_prop_ro("name",
                   [](const PlatformHolder& self) { return std::string(self.platform->name()); })
      .def_prop_ro("library",
                   [](const PlatformHolder& self) {
                     const std::string& path = self.platform->library();
                     return nb::steal(PyUnicode_DecodeFSDefaultAndSize(
                         path.data(), static_cast<Py_ssize_t>(path.size())));
                   })
      .def_prop_ro("found_by", [](const PlatformHolder& self) { return self.platform->found_by(); })
      .def_prop_ro("version", [](const PlatformHolder& self) { return self.platform->version(); })
      .def_prop_ro("device_count",
                   [quarantine](const PlatformHolder& self) {
                     return value_apart(quarantine, "counting devices", [platform = self.platform] {
                       return platform->device_count();
                     });
                   })
      .def(
          "open",
          [quarantine](const PlatformHolder& self, int index) {
            return std::make_unique<DeviceHolder>(
                value_apart(quarantine, "opening device " + std::to_string(index),
                            [platform = self.platform, index] { return platform->open(index); }));
          },
          nb::arg("index"));

  module.def("platform_names", [] {
    std::vector<std::string> names;
    for (const std::string_view name : platform_names()) names.emplace_back(name);
    return names;
  });
  module.def(
      "find_platform",
      [quarantine](const std::string& name, const nb::sequence& folders) {
        std::vector<std::string> paths;
        for (nb::handle folder : folders) paths.push_back(decode_path(folder));
        return std::make_unique<PlatformHolder>(
            PlatformHolder{value_apart(quarantine, "starting the runtime of platform " + name,
                                       [name, paths] { return find_platform(name, paths); })});
      },
      nb::arg("name"), nb::arg("folders") = nb::make_tuple());
}

}  // namespace fxload::bindings
