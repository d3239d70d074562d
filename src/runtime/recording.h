// Work on a stream, captured once and launched again as a whole: a CUDA graph. A launch costs the host as much as
// that of one or two kernels, however many there are.
#pragma once

#include <memory>

#include "base/function_ref.h"
#include "runtime/device.h"

namespace deft {

// Its addresses are fixed: memory used by it must exist at every launch. Memory that ops allocated for themselves
// belongs to the recording.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void launch() = 0;  // on the stream it was recorded on
};

// Calls `enqueue` once: the work it enqueues is captured instead of run. DeviceError where a part of it cannot be
// captured (the host waits for the device, say); nothing has run then. nullptr on devices without recordings.
std::unique_ptr<Recording> record_work(Device device, uint8_t stream, FunctionRef<void()> enqueue);

namespace detail {
std::unique_ptr<Recording> record_cuda(Device device, uint8_t stream, FunctionRef<void()> enqueue);
}

}  // namespace deft
