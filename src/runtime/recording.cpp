#include "runtime/recording.h"

#include "runtime/config.h"

namespace deft {

std::unique_ptr<Recording> record_work(Device device, uint8_t stream, FunctionRef<void()> enqueue) {
  if constexpr (kHasCuda) {
    if (device.type == DeviceType::cuda) return detail::record_cuda(device, stream, enqueue);
  }
  (void)stream;
  (void)enqueue;
  return nullptr;
}

}  // namespace deft
