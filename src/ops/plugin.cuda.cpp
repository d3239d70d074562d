// The entry of libdeft_cuda.so.
#include "ops/all_ops.h"
#include "ops/cuda_ops.h"
#include "runtime/device_plugin.h"
#include "runtime/identity.h"
#include "runtime/plugin_file.h"

namespace deft {

namespace detail {  // kernels/cuda/device/activity.cpp
std::string start_cuda_activity();
std::vector<DeviceActivity> stop_cuda_activity(int64_t& dropped);
}  // namespace detail

namespace {

__attribute__((section(".note.deft"), used, aligned(4))) constexpr IdentityNote kNote{.identity = DEFT_BUILD_IDENTITY};

template <class Op>
void add_kernel() {
  if constexpr (requires { &Op::cuda; }) CudaKernel<Op>::fn = &Op::cuda;
}

void add_kernels() {
#define DEFT_OP(Type) add_kernel<Type>();
#include "ops/all_ops.def"
#include "ops/inner_ops.def"
#undef DEFT_OP
  elementwise::cuda_kernel_slot = &elementwise::cuda_kernel;
  unary_cuda = {&unary_cuda_table, &unary_cuda_grad_table};
  activation_cuda = {&activation_cuda_table, &activation_cuda_grad_table};
  binary_cuda = {&binary_cuda_table, nullptr};
  ternary_cuda = {&ternary_cuda_table, nullptr};
}

}  // namespace

}  // namespace deft

const deft::DevicePlugin* deft_cuda_plugin() {
  using namespace deft;
  using namespace deft::detail;
  add_kernels();
  cuda_ops = {.copy = &cuda_copy,
              .fill = &cuda_fill,
              .zero = &cuda_zero,
              .arange_whole = &cuda_arange,
              .arange = &cuda_arange,
              .linspace = &cuda_linspace,
              .eye = &cuda_eye,
              .elementwise_fast = &elementwise::cuda_fast,
              .elementwise_gradient = &elementwise::cuda_gradient,
              .fuses_chains = &ElementwiseChain::cuda_ready,
              .update = {&cuda_update, &cuda_update, &cuda_update, &cuda_update, &cuda_update},
              .lerp = &cuda_lerp,
              .l2_norm = &cuda_l2_norm,
              .clip_norm = &cuda_clip_norm,
              .first_not_finite = &cuda_first_not_finite,
              .scale = &cuda_scale};
  static const DevicePlugin plugin{cuda_backend(), &record_cuda, &start_cuda_activity, &stop_cuda_activity};
  return &plugin;
}
