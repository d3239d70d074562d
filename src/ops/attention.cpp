#include "ops/attention.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "core/describe.h"
#include "core/grad_mode.h"
#include "kernels/cpu/attention/attention.h"
#include "ops/attention_common.h"
#include "ops/binary.h"
#include "ops/creation.h"
#include "ops/matmul.h"
#include "ops/norm_common.h"
#include "ops/random.h"
#include "ops/reduce_common.h"
#include "ops/shape_ops.h"
#include "ops/unary.h"
#include "runtime/context.h"

namespace deft {

using heads::lead_of;
using heads::with_last;

namespace {

constexpr const char* kName = ScaledDotProductAttention::info.name;

void check_inputs(const Tensor& q, const Tensor& k, const Tensor& v) {
  for (const Tensor* t : {&q, &k, &v}) {
    detail::check_defined(*t, kName);
    DEFT_CHECK(t->dim() >= 2, ShapeError, "{}: query, key and value need at least 2 dimensions, found shape {}", kName,
               to_string(t->sizes()));
    DEFT_CHECK(is_floating(t->dtype()), DTypeError, "{}: does not take {}; found an input {}, convert it with to()",
               kName, name_of(t->dtype()), describe(t->meta()));
    DEFT_CHECK(t->dtype() == q.dtype(), DTypeError,
               "{}: query, key and value are {}, {} and {}; convert them to one type with to()", kName,
               name_of(q.dtype()), name_of(k.dtype()), name_of(v.dtype()));
  }
  DEFT_CHECK(q.sizes().back() == k.sizes().back(), ShapeError, "{}: query {} and key {} must have the same last size",
             kName, to_string(q.sizes()), to_string(k.sizes()));
  DEFT_CHECK(k.sizes()[k.dim() - 2] == v.sizes()[v.dim() - 2], ShapeError,
             "{}: key {} and value {} must have the same number of rows", kName, to_string(k.sizes()),
             to_string(v.sizes()));
}

void check_mask(const Tensor& mask, const Shape& scores, DType dtype) {
  DEFT_CHECK(mask.dtype() == DType::boolean || mask.dtype() == dtype, DTypeError,
             "{}: the mask is {}, expected bool or the inputs' {}", kName, name_of(mask.dtype()), name_of(dtype));
  DEFT_CHECK(broadcast_shapes(mask.sizes(), scores, kName) == scores, ShapeError,
             "{}: a mask of shape {} does not broadcast to the scores' {}", kName, to_string(mask.sizes()),
             to_string(scores));
}

// ---- Composed of other ops.

// [..., l, 1], true for queries that the mask keeps from every key.
Tensor blind_queries(const Tensor& mask) {
  Tensor rows = mask.dim() ? mask : mask.unsqueeze(0);
  if (mask.dtype() == DType::boolean) return logical_not(rows.any({-1}, true));
  return eq(rows.detach().amax({-1}, true), -INFINITY);
}

Tensor composed_weights(const Tensor& query, const Tensor& key, const Tensor& mask, bool causal, double scale) {
  // Scaling the query is cheaper than scaling the scores, and 16-bit floats overflow later.
  Tensor scores = matmul(mul(query, scale), key.t());
  int64_t keys = scores.sizes().back();
  Tensor blind;
  if (causal) {
    TensorOptions positions(DType::i64, scores.device());
    Tensor hidden = lt(arange(0, scores.size(-2), 1, positions).unsqueeze(1), arange(0, keys, 1, positions));
    scores = scores.masked_fill(hidden, -INFINITY);
  } else if (mask.defined()) {
    scores = mask.dtype() == DType::boolean ? scores.masked_fill(logical_not(mask), -INFINITY) : add(scores, mask);
    // Equal weights instead of NaN, until they are cleared below: NaN would stay in the gradient.
    if (keys > 0) {
      blind = blind_queries(mask);
      scores = scores.masked_fill(blind, 0);
    }
  }
  Tensor weights = scores.softmax(-1);
  return blind.defined() ? weights.masked_fill(blind, 0) : weights;
}

// What dropout leaves of the weights, or of their gradient, spread over all heads first.
Tensor dropped(const Tensor& x, const Dropout::Params& drop, const Shape& lead) {
  if (drop.p == 0) return x;
  return call<Dropout>(Site::current(), drop, x.expand(with_last(lead, x.size(-2), x.size(-1))));
}

// Gradient of the scores after scaling.
Tensor composed_grad(const Tensor& weights, const Tensor& g, const Tensor& value, const Dropout::Params& drop) {
  Tensor dw = dropped(matmul(g, value.t()), drop, lead_of(g.sizes()));
  return weights * (dw - (dw * weights).sum({-1}, true));
}

// ---- In one kernel.

// Dense, with the memory order of x if that is not broadcast: heads of a projection stay next to each other.
Meta ordered_like(const Meta& x, const Shape& sizes, DType dtype) {
  Meta m = Meta::dense(sizes, dtype, x.device);
  int rank = sizes.size();
  if (x.rank() != rank || !(lead_of(x.sizes) == lead_of(sizes)) || m.numel == 0) return m;
  int order[kMaxDims];
  for (int i = 0; i < rank - 1; ++i) order[i] = i;
  std::stable_sort(order, order + rank - 1, [&](int a, int b) { return x.strides[a] > x.strides[b]; });
  Shape strides = m.strides;
  int64_t step = sizes[rank - 1];
  for (int i = rank - 2; i >= 0; --i) {
    strides[order[i]] = step;
    step *= sizes[order[i]];
  }
  m.set_strides(strides);
  return m;
}

// A mask [..., 1, s] hides the same keys from all queries: padding. A weight of 0 does not stop NaN or infinity there,
// so these values and keys become zeros. Other masks are not searched for keys that all queries hide, and a single
// query reads every value only once: it is left as it is.
bool hides_padding(const Tensor& mask, const Tensor& query) {
  return mask.defined() && mask.dtype() == DType::boolean && mask.dim() >= 2 && mask.size(-2) == 1 &&
         query.size(-2) > 1;
}
Tensor without_hidden(const Tensor& x, const Tensor& mask) {
  return x.masked_fill(logical_not(mask.transpose(-2, -1)), 0);
}

// The CUDA kernel takes 16-bit floats and heads that fit into its tiles. It reads zeros for hidden keys by itself.
bool has_cuda_kernel(const Tensor& query, const Tensor& value) {
  constexpr int64_t kMostFeatures = 128;
  const auto fits = [](int64_t features) { return features > 0 && features <= kMostFeatures; };
  return query.device().type == DeviceType::cuda && (query.dtype() == DType::bf16 || query.dtype() == DType::f16) &&
         fits(query.size(-1)) && fits(value.size(-1));
}

}  // namespace

std::array<Meta, 2> ScaledDotProductAttention::infer(const Meta& q, const Meta& k, const Meta& v, const Meta&,
                                                     const Params&) {
  Shape lead = broadcast_shapes(broadcast_shapes(lead_of(q.sizes), lead_of(k.sizes), kName), lead_of(v.sizes), kName);
  int64_t queries = q.sizes[q.rank() - 2];
  Meta result = ordered_like(q, with_last(lead, queries, v.sizes.back()), q.dtype);
  lead.push_back(queries);
  return {result, Meta::dense(lead, q.dtype == DType::f64 ? DType::f64 : DType::f32, q.device)};
}
void ScaledDotProductAttention::cpu(KernelCall& c) { heads::run<cpu::AttentionCall>(c, cpu::attention_forward); }
void ScaledDotProductAttention::vjp(VjpContext& c) {
  if (!c.grad(0).defined()) return;
  const Params& p = c.params<ScaledDotProductAttention>();
  Tensor q = c.saved_input(0), k = c.saved_input(1), v = c.saved_input(2), mask;
  if (norms::has_saved_input(c, 3)) mask = c.saved_input(3);
  if (c.needs(3)) c.grad_in(3) = composed_grad(composed_weights(q, k, mask, p.causal, p.scale), c.grad(0), v, p.drop());
  auto wanted = static_cast<uint8_t>(c.needs(0) | c.needs(1) << 1 | c.needs(2) << 2);
  if (!wanted) return;
  // Results carry no gradient of their own here: the formula of the second derivative makes them again.
  Tensor result = c.saved_output(0).detach(), log_sum = c.saved_output(1).detach();
  auto grads = call<ScaledDotProductAttentionBackward>(c.node.site, {p.scale, p.causal, p.drop_p, p.draw, wanted},
                                                       c.grad(0), q, k, v, mask, result, log_sum);
  for (int i = 0; i < 3; ++i)
    if (wanted >> i & 1) c.grad_in(i) = grads[static_cast<size_t>(i)];
}

std::array<Meta, 3> ScaledDotProductAttentionBackward::infer(const Meta& g, const Meta& q, const Meta& k, const Meta& v,
                                                             const Meta&, const Meta& result, const Meta&,
                                                             const Params& p) {
  DEFT_CHECK(g.sizes == result.sizes && g.dtype == result.dtype, ShapeError,
             "{}: the gradient is {}, expected {} like the result", info.name, describe(g), describe(result));
  Shape lead = lead_of(g.sizes);
  std::array<Meta, 3> out;
  const Meta* in[] = {&q, &k, &v};
  for (size_t i = 0; i < 3; ++i) {
    const Shape& sizes = in[i]->sizes;
    out[i] = p.wanted >> i & 1 ? ordered_like(*in[i], with_last(lead, sizes[sizes.size() - 2], sizes.back()), g.dtype)
                               : Meta::dense({0}, g.dtype, g.device);
  }
  return out;
}
void ScaledDotProductAttentionBackward::cpu(KernelCall& c) {
  heads::run_backward<cpu::AttentionCall, cpu::AttentionGrads>(c, cpu::attention_backward);
}
void ScaledDotProductAttentionBackward::vjp(VjpContext& c) {
  const Params& p = c.params<ScaledDotProductAttentionBackward>();
  reduction::vjp_through(c, 5, [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor &g = in[0], &q = in[1];
    const bool padded = hides_padding(in[4], q);
    Tensor k = padded ? without_hidden(in[2], in[4]) : in[2], v = padded ? without_hidden(in[3], in[4]) : in[3];
    Tensor w = composed_weights(q, k, in[4], p.causal, p.scale);
    Tensor ds = composed_grad(w, g, v, p.drop()) * p.scale;
    return {matmul(ds, k), matmul(ds.t(), q), matmul(dropped(w, p.drop(), lead_of(g.sizes())).t(), g)};
  });
}

namespace {

int64_t heads_of(const Tensor& t) {
  DEFT_CHECK(t.dim() >= 3, ShapeError, "{}: enable_gqa needs a dimension of heads before the last two, found shape {}",
             kName, to_string(t.sizes()));
  return t.size(-3);
}
// Keys or values with each head repeated for the queries it serves.
Tensor for_each_query(const Tensor& query, const Tensor& t) {
  int64_t queries = heads_of(query), heads = heads_of(t);
  DEFT_CHECK(heads > 0 && queries % heads == 0, ShapeError,
             "{}: with enable_gqa the {} heads of queries must be a multiple of those of keys and values, found {}",
             kName, queries, heads);
  return queries == heads ? t : repeat_interleave(t, queries / heads, -3);
}

// Where PyTorch keeps scaled copies, so that query, key and mask may be written in place before backward.
bool keeps_copies(const Tensor& query, const Tensor& value, const Tensor& mask) {
  if (!is_grad_enabled() || context().bits & kCapture) return false;
  return query.dim() == 2 || value.size(-1) != query.size(-1) || (mask.defined() && mask.requires_grad());
}

Tensor attend(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& attn_mask, double dropout_p,
              bool is_causal, std::optional<double> scale, const Site& site) {
  double factor = scale.value_or(1 / std::sqrt(static_cast<double>(query.sizes().back())));
  bool on_cuda = has_cuda_kernel(query, value), padded = !on_cuda && hides_padding(attn_mask, query);
  Tensor v = padded ? without_hidden(value, attn_mask) : value;
  // Scores of hidden keys are replaced; only the gradient of the query reads the keys themselves.
  Tensor k = padded && is_grad_enabled() ? without_hidden(key, attn_mask) : key;
  Dropout::Params drop{.p = dropout_p, .draw = dropout_p > 0 ? generator().next_draw() : PhiloxState{}};
  if (query.device().is_cpu() || on_cuda)
    return call<ScaledDotProductAttention>(site, {factor, is_causal, drop.p, drop.draw}, query, k, v, attn_mask)[0];
  Tensor weights = composed_weights(query, k, attn_mask, is_causal, factor);
  Shape lead = broadcast_shapes(lead_of(weights.sizes()), lead_of(v.sizes()), kName);
  return matmul(dropped(weights, drop, lead), v);
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask, double dropout_p, bool is_causal,
                                    std::optional<double> scale, bool enable_gqa, Site site) {
  SiteScope scope(site);
  check_inputs(query, key, value);
  if (enable_gqa && (heads_of(key) != heads_of(query) || heads_of(value) != heads_of(query)))
    return scaled_dot_product_attention(query, for_each_query(query, key), for_each_query(query, value), attn_mask,
                                        dropout_p, is_causal, scale, false, site);
  DEFT_CHECK(dropout_p >= 0 && dropout_p <= 1, ValueError, "{}: dropout_p must lie in [0, 1], found {}", kName,
             dropout_p);
  DEFT_CHECK(!(attn_mask.defined() && is_causal), ValueError, "{}: give attn_mask or is_causal, not both", kName);
  if (attn_mask.defined()) {
    Shape lead = broadcast_shapes(lead_of(query.sizes()), lead_of(key.sizes()), kName);
    check_mask(attn_mask, with_last(lead, query.size(-2), key.size(-2)), query.dtype());
  }
  if (keeps_copies(query, value, attn_mask)) {
    auto copy = [](const Tensor& t) { return t.defined() && t.requires_grad() ? t.clone() : t; };
    return attend(copy(query), copy(key), value, copy(attn_mask), dropout_p, is_causal, scale, site);
  }
  return attend(query, key, value, attn_mask, dropout_p, is_causal, scale, site);
}

}  // namespace deft
