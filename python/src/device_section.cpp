#include "device_section.h"

#include <dlfcn.h>

#include <array>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "runtime/limits.h"

namespace deft::python {

namespace {

// CUDA's driver, which every process that uses a GPU has loaded. Its functions keep their form from version to version,
// so that this needs neither CUDA's headers nor the runtime that the other library was built with.
struct Driver {
  using Handle = void*;
  int (*device_get)(int* device, int index) = nullptr;
  int (*retain_context)(Handle* context, int device) = nullptr;
  int (*push_context)(Handle context) = nullptr;
  int (*pop_context)(Handle* context) = nullptr;
  int (*create_event)(Handle* event, unsigned flags) = nullptr;
  int (*record_event)(Handle event, Handle stream) = nullptr;
  int (*wait_event)(Handle stream, Handle event, unsigned flags) = nullptr;

  Driver() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    DEFT_CHECK(library, DeviceError, "bridge: libcuda.so.1 cannot be loaded, though there are tensors on a GPU");
    auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      DEFT_CHECK(function, DeviceError, "bridge: the driver has no function {}", name);
    };
    find(device_get, "cuDeviceGet");
    find(retain_context, "cuDevicePrimaryCtxRetain");
    find(push_context, "cuCtxPushCurrent_v2");
    find(pop_context, "cuCtxPopCurrent_v2");
    find(create_event, "cuEventCreate");
    find(record_event, "cuEventRecord");
    find(wait_event, "cuStreamWaitEvent");
  }
};
const Driver& driver() {
  static const Driver& d = *new Driver;
  return d;
}
void check(int status, const char* what) {
  DEFT_CHECK(status == 0, DeviceError, "bridge: {} failed with the driver's error {}", what, status);
}

// What is kept for a GPU.
struct PerGpu {
  std::mutex mutex;
  std::optional<Stream>
      stream;  // ours, for nothing but this: memory freed by the other library is only handed out again in a section
  void* context = nullptr;
  std::vector<void*> events;  // that nobody uses
};
PerGpu& of(Device device) {
  static auto& all = *new std::array<PerGpu, kMaxDevices>;
  return all.at(static_cast<size_t>(device.index));
}

Stream stream_for(Device device) {
  PerGpu& s = of(device);
  std::lock_guard lock(s.mutex);
  if (!s.stream) s.stream = Stream::create(device);
  return *s.stream;
}

void* context_of(Device device, PerGpu& s) {
  if (s.context) return s.context;
  int number = 0;
  check(driver().device_get(&number, device.index), "asking for a device");
  check(driver().retain_context(&s.context, number), "asking for a device's context");
  return s.context;
}

// Work given to `waiting` from now on starts after what `on` holds.
void order(Device device, void* waiting, void* on) {
  const Driver& d = driver();
  PerGpu& s = of(device);
  std::lock_guard lock(s.mutex);
  check(d.push_context(context_of(device, s)), "choosing a device");
  void* event = nullptr;
  constexpr unsigned kNoTiming = 2;
  int status = 0;
  if (s.events.empty())
    status = d.create_event(&event, kNoTiming);
  else
    event = s.events.back(), s.events.pop_back();
  if (status == 0) status = d.record_event(event, on);
  if (status == 0) status = d.wait_event(waiting, event, 0);
  if (event) s.events.push_back(event);  // what waits for it holds the point it was recorded at
  void* outer = nullptr;
  d.pop_context(&outer);
  check(status, "ordering two streams");
}

}  // namespace

DeviceSection::DeviceSection(Device device, void* theirs) : device_(device), theirs_(theirs) {
  if (device.is_cpu()) return;
  const Stream ours = stream_for(device);
  guard_.emplace(ours);
  order(device_, ours.native(), theirs_);
}

DeviceSection::~DeviceSection() {
  if (device_.is_cpu()) return;
  try {
    order(device_, theirs_, stream_for(device_).native());
  } catch (const Error&) {  // a device that fails says so in whatever is asked of it next
  }
}

}  // namespace deft::python
