// Layer norm and RMS norm; what all norms share.
#include "ops/norm.h"

#include "base/check.h"
#include "core/describe.h"
#include "kernels/cpu/norm/softmax_norm.h"
#include "ops/dense.h"
#include "ops/norm_common.h"
#include "ops/reduce.h"
#include "ops/reduce_common.h"

namespace deft {

namespace norms {

void check_factor(const Meta& m, const Shape& wanted, const Meta& x, const char* what, const char* op, bool wide) {
  if (!m.defined) return;
  DEFT_CHECK(m.sizes == wanted, ShapeError, "{}: the {} has shape {}, expected {}", op, what, to_string(m.sizes),
             to_string(wanted));
  if (wide && m.dtype == statistics_type(x.dtype)) return;
  DEFT_CHECK(m.dtype == x.dtype, DTypeError, "{}: the {} is {} but the input is {}; convert one with to()", op, what,
             name_of(m.dtype), name_of(x.dtype));
}

std::array<Meta, 3> backward_metas(const Meta& g, const Meta& x, const Meta& dx, const Shape& factor_sizes,
                                   DType factors, uint8_t wanted, const char* op) {
  DEFT_CHECK(g.sizes == x.sizes && g.dtype == x.dtype, ShapeError, "{}: the gradient is {}, expected {} like the input",
             op, describe(g), describe(x));
  Meta none = Meta::dense({0}, x.dtype, x.device);
  Meta factor = Meta::dense(factor_sizes, factors, x.device);
  return {wanted & kGradX ? dx : none, wanted & kGradWeight ? factor : none, wanted & kGradBias ? factor : none};
}

uint8_t wanted_grads(const VjpContext& c) {
  return static_cast<uint8_t>((c.needs(0) ? kGradX : 0) | (c.needs(1) ? kGradWeight : 0) |
                              (c.input_count() > 2 && c.needs(2) ? kGradBias : 0));
}

bool has_saved_input(const VjpContext& c, int i) {
  for (int k = 0; k < c.node.saved; ++k) {
    const SavedTensor& s = c.node.saved_tensors()[k];
    if (!s.is_output && s.index == i) return true;
  }
  return false;
}

void clear(const Tensor& t) {
  if (t.numel() > 0) fill_values(t, 0);
}

std::vector<Tensor> composed_grads(const Tensor& g, const Tensor& x, const Tensor& weight, IntList over, double eps) {
  Tensor centered = x - x.mean(over, true);
  Tensor rstd = (centered.square().mean(over, true) + eps).rsqrt();
  Tensor normal = centered * rstd;
  Tensor gw = weight.defined() ? g * weight : g;
  Tensor dx = rstd * (gw - gw.mean(over, true) - normal * (gw * normal).mean(over, true));
  return {dx, g * normal, g};
}

Rows rows_of(const Meta& x, const Shape& normalized, const char* op) {
  DEFT_CHECK(!normalized.empty(), ValueError, "{}: normalized_shape is empty; give the sizes of the last dimensions",
             op);
  int lead = x.rank() - normalized.size();
  bool fits = lead >= 0;
  for (int i = 0; fits && i < normalized.size(); ++i) fits = x.sizes[lead + i] == normalized[i];
  DEFT_CHECK(fits, ShapeError,
             "{}: normalized_shape is {}, but the input has shape {}; its last sizes must be the same", op,
             to_string(normalized), to_string(x.sizes));
  Rows r;
  for (int i = 0; i < x.rank(); ++i) {
    if (i < lead) r.lead.push_back(x.sizes[i]);
    (i < lead ? r.rows : r.n) *= x.sizes[i];
  }
  return r;
}

}  // namespace norms

using namespace norms;

namespace {

Shape last_dims(int count) {
  Shape dims;
  for (int i = -count; i < 0; ++i) dims.push_back(i);
  return dims;
}

}  // namespace

// --- layer_norm ------------------------------------------------------------------------------------------------

std::array<Meta, 3> LayerNorm::infer(const Meta& x, const Meta& weight, const Meta& bias, const Params& p) {
  Rows r = rows_of(x, p.normalized_shape, info.name);
  check_factor(weight, p.normalized_shape, x, "weight", info.name);
  check_factor(bias, p.normalized_shape, x, "bias", info.name);
  Meta statistics = Meta::dense(r.lead, statistics_type(x.dtype), x.device);
  return {Meta::dense(x.sizes, x.dtype, x.device), statistics, statistics};
}

void LayerNorm::cpu(KernelCall& c) { run_forward<cpu::NormCall>(c, c.params<LayerNorm>(), true, cpu::layer_norm); }

void LayerNorm::vjp(VjpContext& c) {
  if (!c.grad(0).defined()) return;
  const Params& p = c.params<LayerNorm>();
  uint8_t wanted = wanted_grads(c);
  Tensor weight, x, mean, rstd;
  if (!(wanted & (kGradX | kGradWeight))) {
    c.grad_in(2) = c.grad(0);  // the engine sums
    return;
  }
  x = c.saved_input(0), mean = c.saved_output(1), rstd = c.saved_output(2);
  if (c.needs(0) && has_saved_input(c, 1)) weight = c.saved_input(1);
  auto grads =
      call<LayerNormBackward>(c.node.site, {p.normalized_shape, p.eps, wanted}, c.grad(0), x, weight, mean, rstd);
  for (int i = 0; i < 3; ++i)
    if (wanted >> i & 1) c.grad_in(i) = grads[static_cast<size_t>(i)];
}

std::array<Meta, 3> LayerNormBackward::infer(const Meta& g, const Meta& x, const Meta&, const Meta&, const Meta&,
                                             const Params& p) {
  rows_of(x, p.normalized_shape, info.name);
  return backward_metas(g, x, Meta::dense(x.sizes, x.dtype, x.device), p.normalized_shape, x.dtype, p.wanted,
                        info.name);
}
void LayerNormBackward::cpu(KernelCall& c) {
  run_backward<cpu::NormBackwardCall>(c, c.params<LayerNormBackward>(), true, cpu::layer_norm_backward);
}
void LayerNormBackward::vjp(VjpContext& c) {
  const Params& p = c.params<LayerNormBackward>();
  reduction::vjp_through(c, 3, [&](const std::vector<Tensor>& in) {
    auto out = composed_grads(in[0], in[1], in[2], last_dims(p.normalized_shape.size()), p.eps);
    for (size_t i = 1; i < 3; ++i) out[i] = sum_to_size(out[i], p.normalized_shape);
    return out;
  });
}

Tensor layer_norm(const Tensor& x, IntList normalized_shape, const Tensor& weight, const Tensor& bias, double eps,
                  Site site) {
  return call<LayerNorm>(site, {Shape(normalized_shape), eps}, x, weight, bias)[0];
}

// --- rms_norm --------------------------------------------------------------------------------------------------

std::array<Meta, 2> RmsNorm::infer(const Meta& x, const Meta& weight, const Params& p) {
  Rows r = rows_of(x, p.normalized_shape, info.name);
  check_factor(weight, p.normalized_shape, x, "weight", info.name);
  return {Meta::dense(x.sizes, x.dtype, x.device), Meta::dense(r.lead, statistics_type(x.dtype), x.device)};
}
void RmsNorm::cpu(KernelCall& c) { run_forward<cpu::NormCall>(c, c.params<RmsNorm>(), false, cpu::rms_norm); }
void RmsNorm::vjp(VjpContext& c) {
  if (!c.grad(0).defined()) return;
  const Params& p = c.params<RmsNorm>();
  uint8_t wanted = wanted_grads(c);
  Tensor weight;
  if (c.needs(0) && has_saved_input(c, 1)) weight = c.saved_input(1);
  auto grads = call<RmsNormBackward>(c.node.site, {p.normalized_shape, p.eps, wanted}, c.grad(0), c.saved_input(0),
                                     weight, c.saved_output(1));
  for (int i = 0; i < 2; ++i)
    if (wanted >> i & 1) c.grad_in(i) = grads[static_cast<size_t>(i)];
}

std::array<Meta, 2> RmsNormBackward::infer(const Meta& g, const Meta& x, const Meta&, const Meta&, const Params& p) {
  rows_of(x, p.normalized_shape, info.name);
  auto m =
      backward_metas(g, x, Meta::dense(x.sizes, x.dtype, x.device), p.normalized_shape, x.dtype, p.wanted, info.name);
  return {m[0], m[1]};
}
void RmsNormBackward::cpu(KernelCall& c) {
  run_backward<cpu::NormBackwardCall>(c, c.params<RmsNormBackward>(), false, cpu::rms_norm_backward);
}
void RmsNormBackward::vjp(VjpContext& c) {
  const Params& p = c.params<RmsNormBackward>();
  Shape over = last_dims(p.normalized_shape.size());
  reduction::vjp_through(c, 3, [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor &g = in[0], &x = in[1], &weight = in[2];
    Tensor rstd = (x.square().mean(over, true) + p.eps).rsqrt();
    Tensor normal = x * rstd;
    Tensor gw = weight.defined() ? g * weight : g;
    return {rstd * (gw - normal * (gw * normal).mean(over, true)), sum_to_size(g * normal, p.normalized_shape)};
  });
}

Tensor rms_norm(const Tensor& x, IntList normalized_shape, const Tensor& weight, double eps, Site site) {
  return call<RmsNorm>(site, {Shape(normalized_shape), eps}, x, weight)[0];
}

}  // namespace deft
