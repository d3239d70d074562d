#include "ops/attention.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "core/describe.h"
#include "kernels/cpu/attention.h"
#include "ops/binary.h"
#include "ops/creation.h"
#include "ops/dense.h"
#include "ops/matmul.h"
#include "ops/norm_common.h"
#include "ops/random.h"
#include "ops/reduce_common.h"
#include "ops/unary.h"
#include "runtime/context.h"

namespace deft {

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

// Leading sizes, then two more.
Shape lead_of(const Shape& sizes) {
  Shape lead = sizes;
  lead.resize(sizes.size() - 2);
  return lead;
}
Shape with_last(Shape lead, int64_t rows, int64_t columns) {
  lead.push_back(rows);
  lead.push_back(columns);
  return lead;
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

// Gradient of the scores after scaling.
Tensor composed_grad(const Tensor& weights, const Tensor& g, const Tensor& value) {
  Tensor dw = matmul(g, value.t());
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

// Features next to each other.
Tensor with_dense_rows(const Tensor& t) { return t.size(-1) <= 1 || t.strides().back() == 1 ? t : as_dense(t); }

cpu::HeadsView heads_view(const Tensor& t, const Shape& lead) {
  cpu::Operand o = operand_as(t, with_last(lead, t.size(-2), t.size(-1)));
  cpu::HeadsView v{o.data, {}, o.strides[lead.size()]};
  std::copy_n(o.strides, lead.size(), v.lead);
  return v;
}

// Inputs from `first` on: query, key, value, mask. `kept` holds copies while the kernel runs.
struct Prepared {
  cpu::AttentionCall call{};
  Shape lead;
  Tensor kept[5];

  template <class Params>
  Prepared(KernelCall& c, int first, const Tensor& result, const Tensor& log_sum, const Params& p) {
    for (int i = 0; i < 3; ++i) kept[i] = with_dense_rows(c.in(first + i));
    kept[3] = with_dense_rows(result);
    lead = lead_of(result.sizes());
    call.dtype = result.dtype();
    call.lead_dims = lead.size();
    std::copy_n(lead.data(), lead.size(), call.lead);
    call.queries = kept[0].size(-2);
    call.keys = kept[1].size(-2);
    call.features = kept[0].size(-1);
    call.value_features = kept[2].size(-1);
    call.scale = p.scale;
    call.causal = p.causal;
    call.q = heads_view(kept[0], lead);
    call.k = heads_view(kept[1], lead);
    call.v = heads_view(kept[2], lead);
    call.o = heads_view(kept[3], lead);
    call.log_sum = log_sum.data_ptr();
    if (c.has(first + 3)) set_mask(c.in(first + 3));
  }
  void set_mask(const Tensor& mask) {
    cpu::Operand o = operand_as(mask, with_last(lead, call.queries, call.keys));
    call.mask = {o.data, {}, o.strides[lead.size()]};
    std::copy_n(o.strides, lead.size(), call.mask.lead);
    call.mask_key = o.strides[lead.size() + 1];
    call.mask_dtype = mask.dtype();
  }
};

}  // namespace

std::array<Meta, 2> ScaledDotProductAttention::infer(const Meta& q, const Meta& k, const Meta& v, const Meta&,
                                                     const Params&) {
  Shape lead = broadcast_shapes(broadcast_shapes(lead_of(q.sizes), lead_of(k.sizes), kName), lead_of(v.sizes), kName);
  int64_t queries = q.sizes[q.rank() - 2];
  Meta result = ordered_like(q, with_last(lead, queries, v.sizes.back()), q.dtype);
  lead.push_back(queries);
  return {result, Meta::dense(lead, q.dtype == DType::f64 ? DType::f64 : DType::f32, q.device)};
}
void ScaledDotProductAttention::cpu(KernelCall& c) {
  cpu::attention_forward(Prepared(c, 0, c.out(0), c.out(1), c.params<ScaledDotProductAttention>()).call);
}
void ScaledDotProductAttention::vjp(VjpContext& c) {
  if (!c.grad(0).defined()) return;
  const Params& p = c.params<ScaledDotProductAttention>();
  Tensor q = c.saved_input(0), k = c.saved_input(1), v = c.saved_input(2), mask;
  if (norms::has_saved_input(c, 3)) mask = c.saved_input(3);
  if (c.needs(3)) c.grad_in(3) = composed_grad(composed_weights(q, k, mask, p.causal, p.scale), c.grad(0), v);
  auto wanted = static_cast<uint8_t>(c.needs(0) | c.needs(1) << 1 | c.needs(2) << 2);
  if (!wanted) return;
  // Results carry no gradient of their own here: the formula of the second derivative makes them again.
  Tensor result = c.saved_output(0).detach(), log_sum = c.saved_output(1).detach();
  auto grads = call<ScaledDotProductAttentionBackward>(c.node.site, {p.scale, p.causal, wanted}, c.grad(0), q, k, v,
                                                       mask, result, log_sum);
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
  const Params& p = c.params<ScaledDotProductAttentionBackward>();
  Prepared prepared(c, 1, c.in(5), c.in(6), p);
  Tensor g = with_dense_rows(c.in(0));
  cpu::AttentionGrads grads;
  grads.g = heads_view(g, prepared.lead);
  cpu::HeadsView* out[] = {&grads.dq, &grads.dk, &grads.dv};
  for (int i = 0; i < 3; ++i)
    if (p.wanted >> i & 1) *out[i] = heads_view(c.out(i), prepared.lead);
  cpu::attention_backward(prepared.call, grads);
}
void ScaledDotProductAttentionBackward::vjp(VjpContext& c) {
  const Params& p = c.params<ScaledDotProductAttentionBackward>();
  reduction::vjp_through(c, 5, [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor &g = in[0], &q = in[1], &k = in[2], &v = in[3];
    Tensor w = composed_weights(q, k, in[4], p.causal, p.scale);
    Tensor ds = composed_grad(w, g, v) * p.scale;
    return {matmul(ds, k), matmul(ds.t(), q), matmul(w.t(), g)};
  });
}

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask, double dropout_p, bool is_causal,
                                    std::optional<double> scale, Site site) {
  SiteScope scope(site);
  check_inputs(query, key, value);
  DEFT_CHECK(dropout_p >= 0 && dropout_p <= 1, ValueError, "{}: dropout_p must lie in [0, 1], found {}", kName,
             dropout_p);
  DEFT_CHECK(!(attn_mask.defined() && is_causal), ValueError, "{}: give attn_mask or is_causal, not both", kName);
  if (attn_mask.defined()) {
    Shape lead = broadcast_shapes(lead_of(query.sizes()), lead_of(key.sizes()), kName);
    check_mask(attn_mask, with_last(lead, query.size(-2), key.size(-2)), query.dtype());
  }
  double factor = scale.value_or(1 / std::sqrt(static_cast<double>(query.sizes().back())));
  if (query.device().is_cpu() && dropout_p == 0)
    return call<ScaledDotProductAttention>(site, {factor, is_causal}, query, key, value, attn_mask)[0];
  Tensor weights = composed_weights(query, key, attn_mask, is_causal, factor);
  if (dropout_p > 0) weights = dropout(weights, dropout_p);
  return matmul(weights, value);
}

}  // namespace deft
