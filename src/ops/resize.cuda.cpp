#include "ops/resize.h"

#include "kernels/cuda/conv/unfold.h"
#include "kernels/cuda/image/resize.h"
#include "ops/dense.h"

namespace deft {

namespace {

cuda::InterpolateCall interpolate_call(const Interpolate::Params& p, const Meta& x, bool channels_last) {
  constexpr cuda::InterpolateKind kinds[] = {cuda::InterpolateKind::nearest, cuda::InterpolateKind::nearest_exact,
                                             cuda::InterpolateKind::linear, cuda::InterpolateKind::cubic};
  cuda::InterpolateCall c{};
  c.dtype = x.dtype;
  c.kind = kinds[static_cast<int>(p.mode)];
  c.spatial = x.rank() - 2;
  c.outer = channels_last ? x.sizes[0] : x.sizes[0] * x.sizes[1];
  c.inner = channels_last ? x.sizes[1] : 1;
  c.align_corners = p.align_corners;
  for (size_t i = 0; i < static_cast<size_t>(c.spatial); ++i) {
    c.in[i] = p.in[i];
    c.out[i] = p.out[i];
    c.scale[i] = p.scale[i];
  }
  return c;
}

cuda::PadCall pad_call(const Pad::Params& p, const Shape& sizes, bool channels_last, DType dtype) {
  constexpr cuda::PadKind kinds[] = {cuda::PadKind::constant, cuda::PadKind::reflect, cuda::PadKind::replicate,
                                     cuda::PadKind::circular};
  cuda::PadCall c{};
  c.dtype = dtype;
  c.kind = kinds[static_cast<int>(p.mode)];
  c.ndim = sizes.size();
  for (int i = 0; i < c.ndim; ++i) {
    const int d = Pad::dim_in_memory(i, c.ndim, channels_last);
    c.sizes[i] = sizes[d];
    c.before[i] = p.before[d];
    c.after[i] = p.after[d];
  }
  return c;
}

cuda::UnfoldCall unfold_call(const Unfold::Params& p, DType dtype, int64_t planes) {
  cuda::UnfoldCall c{};
  c.dtype = dtype;
  c.planes = planes;
  for (size_t i = 0; i < 2; ++i) {
    c.in[i] = p.in[i];
    c.kernel[i] = p.kernel[i];
    c.out[i] = p.out[i];
    c.stride[i] = p.stride[i];
    c.pad[i] = p.pad[i];
    c.dilation[i] = p.dilation[i];
  }
  return c;
}

}  // namespace

void Interpolate::cuda(KernelCall& c) {
  cuda::Encoder e(c.out().device(), c.def.info.name);
  bool last = keeps_channels_last(c.in().meta());
  Tensor x = as_dense(c.in(), last);
  if (x.numel() == 0) return;
  cuda::interpolate_forward(e, interpolate_call(c.params<Interpolate>(), x.meta(), last), x.data_ptr(),
                            c.out().data_ptr());
}
void InterpolateBackward::cuda(KernelCall& c) {
  cuda::Encoder e(c.out().device(), c.def.info.name);
  bool last = Interpolate::keeps_channels_last(c.in().meta());
  Tensor g = as_dense(c.in(), last);
  if (g.numel() == 0) return;
  cuda::interpolate_backward(e, interpolate_call(c.params<InterpolateBackward>(), g.meta(), last), g.data_ptr(),
                             c.out().data_ptr());
}

void Pad::cuda(KernelCall& c) {
  cuda::Encoder e(c.out().device(), c.def.info.name);
  const Params& p = c.params<Pad>();
  const Tensor& x = c.in();
  const bool last = Interpolate::keeps_channels_last(x.meta());
  cuda::PadCall call = pad_call(p, x.sizes(), last, x.dtype());
  for (int i = 0; i < x.dim(); ++i) call.strides[i] = x.strides()[dim_in_memory(i, x.dim(), last)];
  call.value = value_bits(p, x.dtype());
  cuda::pad_forward(e, call, x.data_ptr(), c.out().data_ptr());
}
void PadBackward::cuda(KernelCall& c) {
  cuda::Encoder e(c.out().device(), c.def.info.name);
  bool last = Interpolate::keeps_channels_last(c.in().meta());
  Tensor g = as_dense(c.in(), last);
  cuda::pad_backward(e, pad_call(c.params<PadBackward>(), c.out().sizes(), last, g.dtype()), g.data_ptr(),
                     c.out().data_ptr());
}

void Unfold::cuda(KernelCall& c) {
  cuda::Encoder e(c.out().device(), c.def.info.name);
  Tensor x = as_dense(c.in());
  cuda::unfold(e, unfold_call(c.params<Unfold>(), x.dtype(), x.sizes()[0] * x.sizes()[1]), x.data_ptr(),
               c.out().data_ptr());
}
void Fold::cuda(KernelCall& c) {
  cuda::Encoder e(c.out().device(), c.def.info.name);
  Tensor columns = as_dense(c.in());
  const Shape& out = c.out().sizes();
  cuda::fold(e, unfold_call(c.params<Fold>(), columns.dtype(), out[0] * out[1]), columns.data_ptr(),
             c.out().data_ptr());
}

}  // namespace deft
