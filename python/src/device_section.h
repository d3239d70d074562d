// A stretch of work on a GPU for another library: ordered behind what that library's stream holds already, and before
// whatever it is given next.
#pragma once

#include <optional>

#include "runtime/stream.h"

namespace deft::python {

class DeviceSection {
 public:
  // Nothing on the CPU. `theirs`: the other library's stream, a CUstream (0: CUDA's default stream).
  DeviceSection(Device device, void* theirs);
  ~DeviceSection();
  DeviceSection(const DeviceSection&) = delete;
  DeviceSection& operator=(const DeviceSection&) = delete;

 private:
  Device device_;
  void* theirs_;
  std::optional<StreamGuard> guard_;
};

}  // namespace deft::python
