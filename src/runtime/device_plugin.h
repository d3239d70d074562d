// libdeft_cuda.so, the plug-in that serves CUDA devices. libdeft.so knows nothing of CUDA's libraries: it looks for the
// plug-in when a CUDA device is first asked for, and loads it if it was made with this very library.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "runtime/backend.h"
#include "runtime/device_activity.h"
#include "runtime/recording.h"

namespace deft {

struct DevicePlugin {
  Backend* backend;
  std::unique_ptr<Recording> (*record)(Device device, uint8_t stream, FunctionRef<void()> enqueue);
  std::string (*start_activity)();
  std::vector<DeviceActivity> (*stop_activity)(int64_t& dropped);
};

// Loads it at the first call; nullptr where that was not possible.
const DevicePlugin* cuda_plugin();
// The same, but nullptr where nothing asked for it so far.
const DevicePlugin* cuda_plugin_if_loaded();

struct PluginReport {
  bool loaded = false;
  std::string path;      // where it is, or would be
  std::string why_not;   // half a sentence, "" if it is loaded
  std::string identity;  // of this library: a plug-in has the same
};
// Loads it, too.
PluginReport cuda_plugin_report();

namespace detail {
// For programs that have the CUDA backend linked into them: before a CUDA device is used.
void use_linked_plugin(const DevicePlugin* plugin);
}  // namespace detail

}  // namespace deft

// What a plug-in exports. It fills in the CUDA kernels of all ops (ops/cuda_ops.h).
extern "C" const deft::DevicePlugin* deft_cuda_plugin();
