// Kernels that are compiled while the program runs: kernels/cuda/device/kernel_image.h.
#pragma once

#include <string>

#include "kernels/cuda/device/encoder.h"

namespace deft::cuda {

// On the GPU that is current when it is made; stays loaded, since captured graphs may hold it.
class RuntimeKernel {
 public:
  // DeviceError where the driver does not take the image.
  RuntimeKernel(const std::string& image, const char* name);
  // One argument, by value. Nothing is allocated and nothing waits, so it may be captured.
  void launch(Encoder& e, unsigned blocks, unsigned threads, void* argument) const;

 private:
  struct CUfunc_st* function_ = nullptr;
};

}  // namespace deft::cuda
