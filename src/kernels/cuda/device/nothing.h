// The empty kernel, launched without an Encoder: what a launch costs the driver.
#pragma once

#include <cuda_runtime.h>

namespace deft::cuda {

cudaError_t launch_nothing(cudaStream_t stream);

}  // namespace deft::cuda
