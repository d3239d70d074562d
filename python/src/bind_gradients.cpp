// Gradients of layers and what they read, as ops with names of their own: torch's graphs of backward passes are lists
// of such. Private: deft/torch calls them.
#include "bind_op.h"
#include "ops/all_ops.h"
#include "ops/elementwise_gradient.h"
#include "ops/op_table.h"

namespace deft::python {

namespace {

constexpr const char* kNorm = "layer_norm";

uint8_t mask_of(const Ints& wanted) {
  uint8_t mask = 0;
  for (size_t i = 0; i < wanted.size(); ++i) mask |= static_cast<uint8_t>((wanted[i] != 0) << i);
  return mask;
}

void bind_norm_gradients() {
  bind(
      "_layer_norm(input, normalized_shape, weight, bias, eps)", kPrivate,
      [](const Tensor& x, Ints shape, Tensor w, Tensor b, double eps, Site s) {
        return call<LayerNorm>(s, {Shape(shape.list()), eps}, x, w, b);
      },
      kNorm, "(result, mean, rstd)");
  bind(
      "_layer_norm_backward(grad, input, normalized_shape, weight, mean, rstd, wanted)", kPrivate,
      [](const Tensor& g, const Tensor& x, Ints shape, Tensor w, const Tensor& mean, const Tensor& rstd, Ints wanted,
         Site s) {
        return call<LayerNormBackward>(s, {Shape(shape.list()), 0, mask_of(wanted)}, g, x, w, mean, rstd);
      },
      "layer_norm_backward");
  bind(
      "_group_norm(input, groups, weight, bias, eps)", kPrivate,
      [](const Tensor& x, int64_t groups, Tensor w, Tensor b, double eps, Site s) {
        return call<GroupNorm>(s, {groups, eps}, x, w, b);
      },
      "group_norm", "(result, mean, rstd)");
  bind(
      "_group_norm_backward(grad, input, groups, weight, mean, rstd, wanted)", kPrivate,
      [](const Tensor& g, const Tensor& x, int64_t groups, Tensor w, const Tensor& mean, const Tensor& rstd,
         Ints wanted, Site s) {
        return call<GroupNormBackward>(s, {groups, 0, mask_of(wanted)}, g, x, w, mean, rstd);
      },
      "group_norm_backward");
  bind(
      "_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)", kPrivate,
      [](const Tensor& x, Tensor w, Tensor b, Tensor mean, Tensor var, bool training, double momentum, double eps,
         Site s) {
        return call<BatchNorm>(s, {training, momentum, eps}, x, w, b, mean, var);
      },
      "batch_norm", "(result, mean, rstd); training moves the running statistics");
  bind(
      "_batch_norm_backward(grad, input, weight, mean, rstd, training, wanted, factors)", kPrivate,
      [](const Tensor& g, const Tensor& x, Tensor w, const Tensor& mean, const Tensor& rstd, bool training, Ints wanted,
         DType factors, Site s) {
        return call<BatchNormBackward>(s, {training, 0, mask_of(wanted), factors}, g, x, w, mean, rstd);
      },
      "batch_norm_backward");
}

void bind_softmax_gradients() {
  bind(
      "_softmax_backward(grad, result, dim)", kPrivate,
      [](const Tensor& g, const Tensor& y, int64_t dim, Site s) { return call<SoftmaxBackward>(s, {dim}, g, y); },
      "softmax_backward");
  bind(
      "_log_softmax_backward(grad, result, dim)", kPrivate,
      [](const Tensor& g, const Tensor& y, int64_t dim, Site s) { return call<LogSoftmaxBackward>(s, {dim}, g, y); },
      "log_softmax_backward");
}

void bind_relu_gradient() {
  bind(
      "_relu_backward(grad, result)", kPrivate,
      [](const Tensor& g, const Tensor& y, Site s) {
        return call<ElementwiseGradient>(s, {op_index(*find_op("relu")), y.dtype(), {}}, g, g, y);
      },
      "elementwise_gradient");
}

void bind_attention() {
  bind(
      "_attention(query, key, value, mask, causal, scale)", kPrivate,
      [](const Tensor& q, const Tensor& k, const Tensor& v, Tensor mask, bool causal, double scale, Site s) {
        return call<ScaledDotProductAttention>(s, {scale, causal, 0, {}}, q, k, v, mask);
      },
      "scaled_dot_product_attention", "(result, log2 of the sums of exponentials)");
  bind(
      "_attention_backward(grad, query, key, value, mask, result, log_sum, causal, scale)", kPrivate,
      [](const Tensor& g, const Tensor& q, const Tensor& k, const Tensor& v, Tensor mask, const Tensor& y,
         const Tensor& sums, bool causal, double scale, Site s) {
        return call<ScaledDotProductAttentionBackward>(s, {scale, causal, 0, {}, 7}, g, q, k, v, mask, y, sums);
      },
      "scaled_dot_product_attention_backward");
}

// --- Convolutions

std::array<int64_t, 3> three(const Ints& list, int n, int64_t rest) {
  std::array<int64_t, 3> r{rest, rest, rest};
  for (int i = 0; i < n; ++i) r[static_cast<size_t>(i)] = list[list.size() == 1 ? 0 : static_cast<size_t>(i)];
  return r;
}
ConvGeometry geometry_of(const Tensor& x, const Ints& stride, const Ints& padding, const Ints& dilation,
                         int64_t groups) {
  ConvGeometry g;
  g.spatial = x.dim() - 2;
  g.stride = three(stride, g.spatial, 1), g.padding = three(padding, g.spatial, 0);
  g.dilation = three(dilation, g.spatial, 1), g.groups = groups;
  return g;
}
// What the last step of the kernel left over.
std::array<int64_t, 3> left_over(const ConvGeometry& p, const Shape& x, const Shape& w) {
  std::array<int64_t, 3> r{};
  for (size_t i = 0; i < static_cast<size_t>(p.spatial); ++i) {
    int d = static_cast<int>(i) + 2;
    r[i] = (x[d] + 2 * p.padding[i] - p.dilation[i] * (w[d] - 1) - 1) % p.stride[i];
  }
  return r;
}

void bind_convolution_gradients() {
  bind(
      "_conv_backward_input(grad, input_size, weight, stride, padding, dilation, groups)", kPrivate,
      [](const Tensor& g, Ints size, const Tensor& w, Ints stride, Ints padding, Ints dilation, int64_t groups,
         Site s) {
        ConvGeometry p = geometry_of(g, stride, padding, dilation, groups);
        return call<ConvTranspose>(s, {p, left_over(p, Shape(size.list()), w.sizes())}, g, w, Tensor());
      },
      "conv_transpose");
  bind(
      "_conv_backward_weight(input, grad, kernel, stride, padding, dilation, groups)", kPrivate,
      [](const Tensor& x, const Tensor& g, Ints kernel, Ints stride, Ints padding, Ints dilation, int64_t groups,
         Site s) {
        ConvGeometry p = geometry_of(x, stride, padding, dilation, groups);
        return call<ConvBackwardWeight>(s, {p, three(kernel, p.spatial, 1)}, x, g);
      },
      "convolution");
}

// --- Pools

PoolParams window_of(const Tensor& x, const Ints& kernel, const Ints& stride, const Ints& padding, bool ceil_mode) {
  PoolParams p;
  p.spatial = static_cast<int64_t>(kernel.size());
  const int n = static_cast<int>(kernel.size());
  p.kernel = three(kernel, n, 1), p.stride = stride.size() ? three(stride, n, 1) : p.kernel;
  p.pad = three(padding, n, 0), p.ceil_mode = ceil_mode;
  DEFT_CHECK(x.dim() == n + 2, ShapeError, "pooling: found {} dimensions, expected {}", x.dim(), n + 2);
  return p;
}

void bind_pool_gradients() {
  bind(
      "_max_pool_backward(grad, input, indices, kernel, stride, padding, dilation, ceil_mode)", kPrivate,
      [](const Tensor& g, const Tensor& x, const Tensor& indices, Ints kernel, Ints stride, Ints padding, Ints dilation,
         bool ceil_mode, Site s) {
        PoolParams p = window_of(x, kernel, stride, padding, ceil_mode);
        p.dilation = three(dilation, static_cast<int>(p.spatial), 1);
        MaxPool::infer(x.meta(), p);  // completes the parameters
        return call<MaxPoolBackward>(s, p, g, indices);
      },
      "max_pool_backward");
  bind(
      "_avg_pool_backward(grad, input, kernel, stride, padding, ceil_mode, count_include_pad, divisor)", kPrivate,
      [](const Tensor& g, const Tensor& x, Ints kernel, Ints stride, Ints padding, bool ceil_mode, bool include,
         std::optional<int64_t> divisor, Site s) {
        PoolParams p = window_of(x, kernel, stride, padding, ceil_mode);
        p.count_include_pad = include, p.divisor = divisor.value_or(0);
        AvgPool::infer(x.meta(), p);
        return call<AvgPoolBackward>(s, p, g);
      },
      "avg_pool_backward");
  bind(
      "_adaptive_avg_pool_backward(grad, input, output_size)", kPrivate,
      [](const Tensor& g, const Tensor& x, Ints output, Site s) {
        PoolParams p;
        p.spatial = static_cast<int64_t>(output.size()), p.adaptive = true;
        p.out = three(output, static_cast<int>(output.size()), 1);
        AvgPool::infer(x.meta(), p);
        return call<AvgPoolBackward>(s, p, g);
      },
      "avg_pool_backward");
}

void bind_embedding_gradient() {
  bind(
      "_embedding_backward(grad, indices, rows, padding_index)", kPrivate,
      [](const Tensor& g, const Tensor& index, int64_t rows, int64_t padding, Site s) {
        return call<EmbeddingBackward>(s, {rows, padding}, g, index);
      },
      "embedding_backward");
}

}  // namespace

void bind_gradient_ops() {
  bind_norm_gradients();
  bind_softmax_gradients();
  bind_relu_gradient();
  bind_attention();
  bind_convolution_gradients();
  bind_pool_gradients();
  bind_embedding_gradient();
}

}  // namespace deft::python
