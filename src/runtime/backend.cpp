#include "runtime/backend.h"

#include "base/check.h"
#include "runtime/device_plugin.h"

namespace deft {

Backend* backend(DeviceType type) {
  if (type != DeviceType::cuda) return nullptr;
  const DevicePlugin* plugin = cuda_plugin();
  return plugin ? plugin->backend : nullptr;
}

int device_count(DeviceType type) {
  if (type == DeviceType::cpu) return 1;
  Backend* b = backend(type);
  return b ? b->device_count() : 0;
}

namespace {

[[noreturn, gnu::cold]] void fail_no_device(Device device, const char* op) {
  if (!backend(device.type)) {
    const PluginReport report = cuda_plugin_report();
    DEFT_FAIL(DeviceError, "{}: there is no device {}; devices present: cpu, since {} could not be loaded: {}", op,
              to_string(device), report.path, report.why_not);
  }
  int count = device_count(device.type);
  std::string present = "cpu";
  for (int i = 0; i < count; ++i) present += ", " + to_string(Device{device.type, static_cast<int8_t>(i)});
  DEFT_FAIL(DeviceError, "{}: there is no device {}; devices present: {}; use one of them", op, to_string(device),
            present);
}

}  // namespace

Backend& require_backend(Device device, const char* op) {
  Backend* b = backend(device.type);
  if (!b || device.index < 0 || device.index >= b->device_count()) [[unlikely]]
    fail_no_device(device, op);
  return *b;
}

DeviceProperties device_properties(Device device) {
  return require_backend(device, "device_properties").properties(device.index);
}
DeviceMemoryUse device_memory_use(Device device) {
  return require_backend(device, "device_memory_use").memory_use(device);
}
void reset_peak_memory(Device device) { require_backend(device, "reset_peak_memory").reset_peak(device); }
void set_device_memory_limit(Device device, size_t bytes) {
  require_backend(device, "set_device_memory_limit").set_memory_limit(device, bytes);
}
void set_guard_words(bool on) {
  if (Backend* b = backend(DeviceType::cuda)) b->set_guard_words(on);
}
int64_t check_guard_words() {
  Backend* b = backend(DeviceType::cuda);
  return b ? b->check_guard_words() : 0;
}
size_t trim_device_memory(Device device) {
  if (!device.is_cpu()) return require_backend(device, "trim_device_memory").trim(device);
  const DevicePlugin* plugin = cuda_plugin_if_loaded();  // without it nothing was pinned
  return plugin && plugin->backend->device_count() > 0 ? plugin->backend->trim(device) : 0;
}

}  // namespace deft
