// Convolutions on CUDA devices.
#include "kernels/cuda/conv/conv.h"
#include "core/tensor_impl.h"
#include "kernels/cuda/conv/conv_deepen.h"
#include "kernels/cuda/conv/conv_direct.h"
#include "ops/conv.h"
#include "ops/conv_common.h"
#include "ops/dense.h"
#include "runtime/numerics.h"

namespace deft {

namespace {

using cuda::ConvKind;

// The same order in both.
static_assert(static_cast<int>(FusedActivation::tanh) == static_cast<int>(cuda::Activation::tanh));
static_assert(static_cast<int>(FusedActivation::gelu_tanh) == static_cast<int>(cuda::Activation::gelu_tanh));

// x, w and y of a convolution, one of which is the result. All are dense in the geometry's memory order.
struct Operands {
  ConvKind kind;
  ConvGeometry geometry;
  Tensor x, w, y, bias;
  Tensor residual = {};
  cuda::Activation activation = cuda::Activation::none;
  bool timed = false;

  Tensor& result() { return kind == ConvKind::forward ? y : kind == ConvKind::backward_input ? x : w; }
};

Tensor empty_like(const Tensor& t, bool channels_last) {
  Meta m = Meta::dense(t.sizes(), t.dtype(), t.device());
  if (channels_last) m.set_strides(channels_last_strides(m.sizes));
  return Tensor(make_tensor(m));
}

cuda::ConvCall call_of(const Operands& o) {
  auto k = conv_call<cuda::ConvCall>(o.geometry, o.x.meta(), o.y.meta(), o.w.sizes().data() + 2);
  k.w_channels_last = o.geometry.channels_last;
  k.x = o.x.data_ptr();
  k.w = o.w.data_ptr();
  k.y = o.y.data_ptr();
  k.bias = o.bias.defined() ? o.bias.data_ptr() : nullptr;
  k.residual = o.residual.defined() ? o.residual.data_ptr() : nullptr;
  k.activation = o.activation;
  k.timed = o.timed;
  return k;
}

// cuDNN has fewer kernels for channels_last, f32 above all: a copy into the plain order may still be its way.
bool run_in_plain_order(cuda::Encoder& e, const Operands& o) {
  Operands plain = o;
  plain.geometry.channels_last = false;
  Tensor& result = plain.result();
  result = empty_like(result, false);
  for (Tensor* t : {&plain.x, &plain.w, &plain.y, &plain.residual})
    if (t != &result && t->defined()) *t = as_dense(*t);
  if (!cuda::conv_library(e, plain.kind, call_of(plain))) return false;
  copy_values(result, Operands(o).result());
  return true;
}

void run(cuda::Encoder& e, const Operands& o) {
  cuda::ConvCall call = call_of(o);
  if (cuda::conv_library(e, o.kind, call)) return;
  if (o.geometry.channels_last && run_in_plain_order(e, o)) return;
  cuda::ResidualApart apart(e, call);
  cuda::conv_direct(e, o.kind, call);
  if (o.kind != ConvKind::forward) return;
  const int64_t channels = call.c_out;
  cuda::run_epilogue(e, {call.dtype, call.n, channels, o.y.numel() / (call.n * channels), call.channels_last, call.y,
                         nullptr, call.residual, call.activation});
}

// Few channels and stride 2, with x and w as they come: see conv_deepen.h. False: another way is needed.
bool run_deepened(cuda::Encoder& e, const Operands& o) {
  const cuda::ConvCall call = call_of(o);
  if (!cuda::can_deepen(call)) return false;
  cuda::ConvCall deep = cuda::deepened(call);
  const size_t bytes = size_of(call.dtype);
  cuda::Workspace x(e, static_cast<size_t>(deep.n * deep.in[0] * deep.in[1] * deep.c_in) * bytes);
  cuda::Workspace w(e, static_cast<size_t>(deep.c_out * deep.kernel[0] * deep.kernel[1] * deep.c_in) * bytes);
  deep.x = x.as(), deep.w = w.as();
  cuda::deepen(e, call, o.x.strides().data(), o.w.strides().data(), deep);
  return cuda::conv_library(e, o.kind, deep);
}

}  // namespace

void Convolution::cuda(KernelCall& c) {
  if (c.out().meta().numel == 0) return;
  const Params& p = c.params<Convolution>();
  cuda::Encoder e(c.out().device(), c.def.info.name);
  run(e, {ConvKind::forward, p, as_dense(c.in(0), p.channels_last), as_dense(c.in(1), p.channels_last), c.out(),
          c.has(2) ? as_dense(c.in(2)) : Tensor()});
}

void FusedConvolution::cuda(KernelCall& c) {
  const Tensor& out = c.out();
  if (out.meta().numel == 0) return;
  const Params& p = c.params<FusedConvolution>();
  const bool channels_last = p.geometry.channels_last;
  cuda::Encoder e(out.device(), c.def.info.name);
  Operands o{ConvKind::forward, p.geometry, c.in(0), c.in(1), out, c.has(2) ? as_dense(c.in(2)) : Tensor()};
  if (c.has(3)) o.residual = as_dense(c.in(3), channels_last);
  o.activation = static_cast<cuda::Activation>(p.activation);
  o.timed = !deterministic();
  if (run_deepened(e, o)) return;
  o.x = as_dense(o.x, channels_last);
  o.w = as_dense(o.w, channels_last);
  run(e, o);
}

void ConvTranspose::cuda(KernelCall& c) {
  if (c.out().meta().numel == 0) return;
  const ConvGeometry& p = c.params<ConvTranspose>().geometry;
  cuda::Encoder e(c.out().device(), c.def.info.name);
  run(e, {ConvKind::backward_input, p, c.out(), as_dense(c.in(1), p.channels_last), as_dense(c.in(0), p.channels_last),
          c.has(2) ? as_dense(c.in(2)) : Tensor()});
}

void ConvBackwardWeight::cuda(KernelCall& c) {
  const Tensor& out = c.out();
  if (out.meta().numel == 0) return;
  cuda::Encoder e(out.device(), c.def.info.name);
  if (c.in(0).numel() == 0 || c.in(1).numel() == 0)
    return e.zero(out.data_ptr(), static_cast<size_t>(out.numel()) * size_of(out.dtype()));
  ConvGeometry p = weight_geometry(c.params<ConvBackwardWeight>().geometry, c.in(0).meta());
  // The result is row-major; where that is another order than channels_last, it is put there from a copy.
  bool direct = !p.channels_last || out.meta().is_channels_last();
  Tensor w = direct ? out : empty_like(out, true);
  run(e, {ConvKind::backward_weight, p, as_dense(c.in(0), p.channels_last), w, as_dense(c.in(1), p.channels_last), {}});
  if (!direct) copy_values(w, out);
}

}  // namespace deft
