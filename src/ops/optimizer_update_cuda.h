// What optimizer_update.cpp and tensor_lists.cpp have done on GPUs; defined in optimizer_update.cu and .cuda.cpp, part
// of the CUDA plug-in: to be called through cuda_ops. Work goes to the current stream of the device. Lists of tensors
// may hold others: those that is_cuda_data() is not true of, or of other devices, are passed over.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "kernels/cpu/elementwise/optimizer.h"

namespace deft::detail {

// As cpu::OptimizerTensor, with gradients and copies of either 16-bit type. Without `param` the copy is the parameter.
struct CudaOptimizerTensor {
  int64_t size;
  float* param;
  const void* grad;
  void* copy;  // null, or where the new parameters are written in 16 bits
  float* state[3];
  DType grad_dtype, copy_dtype;
  bool aligned = false;  // cuda_update() finds out
};
void cuda_update(Device device, const char* op, const CudaOptimizerTensor* tensors, int64_t count,
                 const cpu::SgdOptions& options);
void cuda_update(Device device, const char* op, const CudaOptimizerTensor* tensors, int64_t count,
                 const cpu::AdamOptions& options);
void cuda_update(Device device, const char* op, const CudaOptimizerTensor* tensors, int64_t count,
                 const cpu::RmspropOptions& options);
void cuda_update(Device device, const char* op, const CudaOptimizerTensor* tensors, int64_t count,
                 const cpu::AdagradOptions& options);
void cuda_update(Device device, const char* op, const CudaOptimizerTensor* tensors, int64_t count,
                 const cpu::LambOptions& options);

// to += weight (from - to), with the formula of lerp.
struct CudaLerp {
  int64_t size;
  float* to;
  const void* from;
  DType from_dtype;
  bool aligned = false;  // cuda_lerp() finds out
};
void cuda_lerp(Device device, const char* op, const CudaLerp* tensors, int64_t count, double weight);

inline bool is_cuda_dtype(DType t) { return t == DType::f32 || t == DType::bf16 || t == DType::f16; }
inline bool is_cuda_data(const Tensor& t) {
  return !t.device().is_cpu() && is_cuda_dtype(t.dtype()) && t.meta().is_dense();
}
// Each waits for the device once, at its end.
double cuda_l2_norm(Device device, std::span<const Tensor> tensors, const Site& site);
double cuda_clip_norm(Device device, std::span<const Tensor> tensors, double max_norm, const Site& site);
// The first that is not finite, or -1; then x *= factor.
int64_t cuda_first_not_finite(Device device, std::span<const Tensor> tensors, double factor, const Site& site);
// Does not wait.
void cuda_scale(Device device, std::span<const Tensor> tensors, double factor);

}  // namespace deft::detail
