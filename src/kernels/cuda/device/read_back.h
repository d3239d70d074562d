// The one way a kernel's result may steer the host: ops whose result's size depends on values read a count back.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/encoder.h"

namespace deft::cuda {

// Waits for the work enqueued so far and returns the number it left at `device_value`. The caller has called
// count_sync(), which may refuse.
int64_t read_back(const Encoder& e, const int64_t* device_value);

}  // namespace deft::cuda
