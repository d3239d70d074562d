// What the norms share. Internal.
#pragma once

#include "ops/dense.h"
#include "ops/norm.h"

namespace deft::norms {

// Weight or bias, if given: of the wanted shape and of x's type; `wide`: or of its statistics' type.
void check_factor(const Meta& m, const Shape& wanted, const Meta& x, const char* what, const char* op,
                  bool wide = false);
// f32, or f64 for f64.
inline DType statistics_type(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }
// Metas of (dx, dweight, dbias), empty where not wanted; checks that g is like x.
std::array<Meta, 3> backward_metas(const Meta& g, const Meta& x, const Meta& dx, const Shape& factor_sizes,
                                   DType factors, uint8_t wanted, const char* op);
// Which gradients a node needs; input 0 is x, 1 weight, 2 bias.
uint8_t wanted_grads(const VjpContext& c);
// An input that was given, and saved.
bool has_saved_input(const VjpContext& c, int i);
// Writes zeros.
void clear(const Tensor& t);
// Gradients of (x - mean) * rstd * weight + bias over the dims `over`: (dx, dweight, dbias), composed of public ops.
// Weight has the number of dims of x or is undefined; dweight and dbias are not yet summed.
std::vector<Tensor> composed_grads(const Tensor& g, const Tensor& x, const Tensor& weight, IntList over, double eps);

// --- layer_norm and rms_norm on any device ------------------------------------------------------------------------

// Rows and row length of x under `normalized_shape`; checks that its last sizes are those.
struct Rows {
  int64_t rows = 1, n = 1;
  Shape lead;
};
Rows rows_of(const Meta& x, const Shape& normalized, const char* op);

inline Tensor dense_input(const KernelCall& c, int i) { return c.has(i) ? as_dense(c.in(i)) : Tensor(); }
inline const void* data_or_null(const Tensor& t) { return t.defined() ? t.data_ptr() : nullptr; }

// Outputs are (y, mean, rstd) of layer_norm, (y, rstd) of rms_norm. Call is the NormCall of a device.
template <class Call, class F>
void run_forward(KernelCall& c, const LayerNorm::Params& p, bool layer, F&& kernel) {
  Rows r = rows_of(c.in(0).meta(), p.normalized_shape, c.def.info.name);
  Tensor x = as_dense(c.in(0)), weight = dense_input(c, 1), bias = layer ? dense_input(c, 2) : Tensor();
  const Tensor& rstd = c.out(layer ? 2 : 1);
  if (r.n == 0) {
    if (layer) clear(c.out(1));
    clear(rstd);
    return;
  }
  kernel(Call{.dtype = x.dtype(),
              .rows = r.rows,
              .n = r.n,
              .x = x.data_ptr(),
              .gamma = data_or_null(weight),
              .beta = data_or_null(bias),
              .eps = p.eps,
              .y = c.out(0).data_ptr(),
              .mean = layer ? c.out(1).data_ptr() : nullptr,
              .rstd = rstd.data_ptr()});
}
// Inputs are (g, x, weight, mean, rstd) of layer_norm, (g, x, weight, rstd) of rms_norm.
template <class Call, class F>
void run_backward(KernelCall& c, const LayerNormBackward::Params& p, bool layer, F&& kernel) {
  Rows r = rows_of(c.in(1).meta(), p.normalized_shape, c.def.info.name);
  if (r.rows == 0 || r.n == 0) {
    for (int i = 0; i < c.def.info.outputs; ++i) clear(c.out(i));
    return;
  }
  Tensor g = as_dense(c.in(0)), x = as_dense(c.in(1)), weight = dense_input(c, 2);
  Tensor mean = layer ? as_dense(c.in(3)) : Tensor(), rstd = as_dense(c.in(layer ? 4 : 3));
  auto target = [&](int i, uint8_t bit) -> void* { return p.wanted & bit ? c.out(i).data_ptr() : nullptr; };
  kernel(Call{.dtype = x.dtype(),
              .rows = r.rows,
              .n = r.n,
              .g = g.data_ptr(),
              .x = x.data_ptr(),
              .gamma = data_or_null(weight),
              .mean = data_or_null(mean),
              .rstd = rstd.data_ptr(),
              .dx = target(0, kGradX),
              .dgamma = target(1, kGradWeight),
              .dbeta = layer ? target(2, kGradBias) : nullptr});
}

// --- Batch and group norm on any device ---------------------------------------------------------------------------

struct Channels {
  int64_t images, channels, space;
  explicit Channels(const Shape& sizes) : images(sizes[0]), channels(sizes[1]), space(1) {
    for (int i = 2; i < sizes.size(); ++i) space *= sizes[i];
  }
};
// A dense result like x: channels last if x is.
Meta layout_of(const Meta& x);
// `m` is dense as layout_of() makes it. For NHWC data batch norm treats all images as one.
template <class View>
View channels_view(const Meta& m, bool merge_images) {
  Channels s(m.sizes);
  bool last = !m.contiguous || s.space == 1;
  if (last && merge_images) return {m.dtype, 1, s.channels, s.images * s.space, true};
  return {m.dtype, s.images, s.channels, s.space, last};
}
// After batch_norm wrote running statistics.
void mark_written(const Tensor& running);

}  // namespace deft::norms
