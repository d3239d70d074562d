// The empty kernel, launched without an Encoder: measures the driver's cost of a launch.
#pragma once

#include <cuda_runtime.h>

namespace deft::cuda {

cudaError_t launch_nothing(cudaStream_t stream);

}  // namespace deft::cuda
