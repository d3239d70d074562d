#include "runtime/device_activity.h"

#include "runtime/config.h"

namespace deft {

namespace detail {  // kernels/cuda/device/activity.cpp; only there in builds with CUDA
std::string start_cuda_activity();
std::vector<DeviceActivity> stop_cuda_activity(int64_t& dropped);
}  // namespace detail

std::string start_device_activity() {
  if constexpr (kHasCuda) return detail::start_cuda_activity();
  return "this build has no GPU";
}

std::vector<DeviceActivity> stop_device_activity(int64_t& dropped) {
  dropped = 0;
  if constexpr (kHasCuda) return detail::stop_cuda_activity(dropped);
  return {};
}

}  // namespace deft
