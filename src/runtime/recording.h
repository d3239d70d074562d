// Work on a stream, written down once and launched again as a whole: a CUDA graph. A launch costs the host as much as
// that of one or two kernels, however many there are.
#pragma once

#include <memory>

#include "base/function_ref.h"
#include "runtime/device.h"

namespace deft {

// The addresses in it stand: memory that was there must be there at every launch. Memory that ops took for themselves
// belongs to the recording.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void launch() = 0;  // on the stream it was recorded on
};

// Calls `enqueue` once: what it gives to the stream is written down instead of done. DeviceError where a part of it
// cannot be (the host waits for the device, say); nothing was done then. nullptr on devices without recordings.
std::unique_ptr<Recording> record_work(Device device, uint8_t stream, FunctionRef<void()> enqueue);

namespace detail {
std::unique_ptr<Recording> record_cuda(Device device, uint8_t stream, FunctionRef<void()> enqueue);
}

}  // namespace deft
