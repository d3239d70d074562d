#include "runtime/recording.h"

#include "runtime/device_plugin.h"

namespace deft {

std::unique_ptr<Recording> record_work(Device device, uint8_t stream, FunctionRef<void()> enqueue) {
  const DevicePlugin* plugin = device.type == DeviceType::cuda ? cuda_plugin() : nullptr;
  return plugin ? plugin->record(device, stream, enqueue) : nullptr;
}

}  // namespace deft
