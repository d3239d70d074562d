// What the library calls in the CUDA plug-in besides the kernels of ops (CudaKernel in core/op.h). The functions are
// described where they are declared; they are defined in *.cuda.cpp and *.cu, and so are not there for direct calls.
#pragma once

#include <tuple>

#include "kernels/cpu/elementwise/optimizer.h"
#include "ops/elementwise.h"
#include "ops/operand.h"
#include "ops/optimizer_update_cuda.h"

namespace deft {

template <class Options>
using CudaUpdate = void (*)(Device device, const char* op, const detail::CudaOptimizerTensor* tensors, int64_t count,
                            const Options& options);

struct CudaOps {
  decltype(&detail::cuda_copy) copy;
  decltype(&detail::cuda_fill) fill;
  decltype(&detail::cuda_zero) zero;
  void (*arange_whole)(const Tensor& out, int64_t start, int64_t step);
  void (*arange)(const Tensor& out, double start, double step);
  decltype(&detail::cuda_linspace) linspace;
  decltype(&detail::cuda_eye) eye;
  decltype(&elementwise::cuda_fast) elementwise_fast;
  decltype(&elementwise::cuda_gradient) elementwise_gradient;
  bool (*fuses_chains)();
  std::tuple<CudaUpdate<cpu::SgdOptions>, CudaUpdate<cpu::AdamOptions>, CudaUpdate<cpu::RmspropOptions>,
             CudaUpdate<cpu::AdagradOptions>, CudaUpdate<cpu::LambOptions>>
      update;
  decltype(&detail::cuda_lerp) lerp;
  decltype(&detail::cuda_l2_norm) l2_norm;
  decltype(&detail::cuda_clip_norm) clip_norm;
  decltype(&detail::cuda_first_not_finite) first_not_finite;
  decltype(&detail::cuda_scale) scale;
};

// Filled in when the plug-in is loaded, as it is wherever there is a tensor on a CUDA device.
extern CudaOps cuda_ops;

}  // namespace deft
