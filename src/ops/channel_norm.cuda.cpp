#include "kernels/cuda/norm/channel_norm.h"

#include "ops/norm_common.h"
#include "ops/reduce_common.h"
#include "runtime/stream.h"

namespace deft {

using namespace norms;
using reduction::laid_out_as;

namespace {

DType factors_of(const Tensor& weight, const Tensor& bias) {
  return weight.defined() ? weight.dtype() : bias.defined() ? bias.dtype() : DType::f32;
}

// groups: of an image; 0: batch norm.
void backward(KernelCall& c, int64_t groups, uint8_t wanted, bool moving, DType factors) {
  if (c.in(1).numel() == 0) {
    for (int i = 0; i < c.def.info.outputs; ++i) clear(c.out(i));
    return;
  }
  cuda::Encoder e(c.out().device(), c.def.info.name);
  Meta layout = layout_of(c.in(1).meta());
  Tensor g = laid_out_as(c.in(0), layout), x = laid_out_as(c.in(1), layout);
  Tensor weight = dense_input(c, 2), mean = as_dense(c.in(3)), rstd = as_dense(c.in(4));
  Tensor affine = dense_input(c, 5), y = c.has(6) ? laid_out_as(c.in(6), layout) : Tensor();
  Tensor more = c.has(7) ? laid_out_as(c.in(7), layout) : Tensor();
  auto target = [&](int i, uint8_t bit) -> void* { return wanted & bit ? c.out(i).data_ptr() : nullptr; };
  cuda::channel_norm_backward(e, {.view = channels_view<cuda::ChannelsView>(layout, groups == 0),
                                  .groups = groups,
                                  .moving = moving,
                                  .g = g.data_ptr(),
                                  .x = x.data_ptr(),
                                  .weight = data_or_null(weight),
                                  .factors = weight.defined() ? weight.dtype() : factors,
                                  .mean = mean.data_ptr(),
                                  .rstd = rstd.data_ptr(),
                                  .dx = target(0, kGradX),
                                  .dweight = target(1, kGradWeight),
                                  .dbias = target(2, kGradBias),
                                  .affine = data_or_null(affine),
                                  .y = data_or_null(y),
                                  .more = data_or_null(more),
                                  .masked = y.defined() ? c.out(3).data_ptr() : nullptr});
}

cuda::RunningNumbers running(const cuda::Encoder& e, const KernelCall& c, int i, bool written) {
  if (!c.has(i)) return {};
  const Tensor& t = c.in(i);
  if (written) order_write(*t.impl()->storage->memory, e.stream_id());
  return {t.data_ptr(), t.dtype(), t.strides()[0]};
}

}  // namespace

void GroupNorm::cuda(KernelCall& c) {
  const Params& p = c.params<GroupNorm>();
  cuda::Encoder e(c.out().device(), c.def.info.name);
  Tensor x = laid_out_as(c.in(0), c.out(0).meta()), weight = dense_input(c, 1), bias = dense_input(c, 2);
  cuda::channel_norm(e, {.view = channels_view<cuda::ChannelsView>(c.out(0).meta(), false),
                         .groups = p.groups,
                         .eps = p.eps,
                         .x = x.data_ptr(),
                         .weight = data_or_null(weight),
                         .bias = data_or_null(bias),
                         .factors = factors_of(weight, bias),
                         .y = c.out(0).data_ptr(),
                         .mean = c.out(1).data_ptr(),
                         .rstd = c.out(2).data_ptr()});
}
void GroupNormBackward::cuda(KernelCall& c) {
  const Params& p = c.params<GroupNormBackward>();
  backward(c, p.groups, p.wanted, true, c.in(1).dtype());
}

namespace {

// Outputs are those of batch_norm, or of fused_batch_norm.
void batch_norm_forward(KernelCall& c, const BatchNorm::Params& p) {
  const bool fused = c.def.info.outputs == 4;
  cuda::Encoder e(c.out().device(), c.def.info.name);
  Tensor x = laid_out_as(c.in(0), c.out(0).meta()), weight = dense_input(c, 1), bias = dense_input(c, 2);
  Tensor residual = c.has(5) ? laid_out_as(c.in(5), c.out(0).meta()) : Tensor();
  cuda::channel_norm(e, {.view = channels_view<cuda::ChannelsView>(c.out(0).meta(), true),
                         .groups = 0,
                         .eps = p.eps,
                         .x = x.data_ptr(),
                         .weight = data_or_null(weight),
                         .bias = data_or_null(bias),
                         .factors = factors_of(weight, bias),
                         .y = c.out(0).data_ptr(),
                         .mean = c.out(1).data_ptr(),
                         .rstd = c.out(2).data_ptr(),
                         .training = p.training,
                         .momentum = p.momentum,
                         .running_mean = running(e, c, 3, p.training),
                         .running_var = running(e, c, 4, p.training),
                         .residual = data_or_null(residual),
                         .affine = fused ? c.out(3).data_ptr() : nullptr});
  if (!p.training || !c.has(3) || x.numel() == 0) return;
  mark_written(c.in(3));
  mark_written(c.in(4));
}

}  // namespace

void BatchNorm::cuda(KernelCall& c) { batch_norm_forward(c, c.params<BatchNorm>()); }
void FusedBatchNorm::cuda(KernelCall& c) { batch_norm_forward(c, c.params<FusedBatchNorm>()); }
void BatchNormBackward::cuda(KernelCall& c) {
  const Params& p = c.params<BatchNormBackward>();
  backward(c, 0, p.wanted, p.training, p.factors);
}

void FusedBatchNormBackward::cuda(KernelCall& c) {
  const Params& p = c.params<FusedBatchNormBackward>();
  backward(c, 0, p.wanted, p.training, p.factors);
}

}  // namespace deft
