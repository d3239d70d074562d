#include "runtime/device_activity.h"

#include "runtime/device_plugin.h"

namespace deft {

std::string start_device_activity() {
  const DevicePlugin* plugin = cuda_plugin();
  return plugin ? plugin->start_activity() : cuda_plugin_report().why_not;
}

std::vector<DeviceActivity> stop_device_activity(int64_t& dropped) {
  dropped = 0;
  const DevicePlugin* plugin = cuda_plugin_if_loaded();
  return plugin ? plugin->stop_activity(dropped) : std::vector<DeviceActivity>();
}

}  // namespace deft
