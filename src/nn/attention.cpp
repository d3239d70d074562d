#include "nn/attention.h"

#include <cmath>

#include "base/check.h"
#include "core/describe.h"
#include "nn/init.h"
#include "nn/watched_call.h"
#include "ops/attention.h"
#include "ops/binary.h"
#include "ops/creation.h"
#include "ops/gather_scatter.h"
#include "ops/matmul.h"
#include "ops/random.h"
#include "ops/reduce.h"
#include "ops/resize.h"
#include "ops/shape_ops.h"
#include "ops/softmax.h"
#include "ops/ternary.h"
#include "ops/unary.h"

namespace deft::nn {

namespace {

Tensor empty_if(bool there, IntList sizes) { return there ? empty(sizes) : Tensor(); }
bool is_packed(int64_t embed, const MultiheadAttentionOptions& o) {
  return (o.kdim == 0 || o.kdim == embed) && (o.vdim == 0 || o.vdim == embed);
}

// The mask of scaled_dot_product_attention: true for keys that take part, or numbers to add in `dtype`.
Tensor as_op_mask(const Tensor& mask, DType dtype) {
  return mask.dtype() == DType::boolean ? logical_not(mask) : mask.to(dtype);
}

Tensor both(const Tensor& a, const Tensor& b, DType dtype) {
  if (!a.defined()) return b;
  if (a.dtype() == DType::boolean && b.dtype() == DType::boolean) return logical_and(a, b);
  auto numbers = [&](const Tensor& t) {
    if (t.dtype() != DType::boolean) return t;
    return zeros(t.sizes(), {dtype, t.device()}).masked_fill(logical_not(t), -INFINITY);
  };
  return numbers(a) + numbers(b);
}

}  // namespace

MultiheadAttention::MultiheadAttention(int64_t embed_dim, int64_t num_heads, const MultiheadAttentionOptions& options)
    : in_proj_weight(parameter("in_proj_weight", empty_if(is_packed(embed_dim, options), {3 * embed_dim, embed_dim}))),
      q_proj_weight(parameter("q_proj_weight", empty_if(!is_packed(embed_dim, options), {embed_dim, embed_dim}))),
      k_proj_weight(parameter("k_proj_weight", empty_if(!is_packed(embed_dim, options),
                                                        {embed_dim, options.kdim ? options.kdim : embed_dim}))),
      v_proj_weight(parameter("v_proj_weight", empty_if(!is_packed(embed_dim, options),
                                                        {embed_dim, options.vdim ? options.vdim : embed_dim}))),
      in_proj_bias(parameter("in_proj_bias", options.bias ? zeros({3 * embed_dim}) : Tensor())),
      bias_k(parameter("bias_k", empty_if(options.add_bias_kv, {1, 1, embed_dim}))),
      bias_v(parameter("bias_v", empty_if(options.add_bias_kv, {1, 1, embed_dim}))),
      out_proj(add<Linear>("out_proj", embed_dim, embed_dim, options.bias)),
      embed_dim_(embed_dim),
      num_heads_(num_heads),
      options_(options) {
  DEFT_CHECK(num_heads > 0 && embed_dim % num_heads == 0, ValueError,
             "MultiheadAttention: {} features cannot be cut into {} heads; choose a number that divides them",
             embed_dim, num_heads);
  for (Tensor* w : {&in_proj_weight, &q_proj_weight, &k_proj_weight, &v_proj_weight})
    if (w->defined()) init::xavier_uniform_(*w);
  for (Tensor* b : {&bias_k, &bias_v})
    if (b->defined()) init::xavier_normal_(*b);
  if (options.bias) init::zeros_(out_proj.bias);
}

Tensor MultiheadAttention::split_heads(const Tensor& x) const {
  Tensor split = x.view({x.size(0), x.size(1), num_heads_, embed_dim_ / num_heads_});
  return options_.batch_first ? split.permute({0, 2, 1, 3}) : split.permute({1, 2, 0, 3});
}

// Keys or values with the learned row and the row of zeros, as far as there are any.
Tensor MultiheadAttention::with_more_rows(const Tensor& heads, const Tensor& bias) const {
  if (!bias.defined() && !options_.add_zero_attn) return heads;
  int64_t batch = heads.size(0), features = heads.size(3);
  std::vector<Tensor> rows{heads};
  if (bias.defined())
    rows.push_back(bias.to(heads.dtype()).view({1, num_heads_, 1, features}).expand({batch, num_heads_, 1, features}));
  if (options_.add_zero_attn) rows.push_back(zeros({batch, num_heads_, 1, features}, {heads.dtype(), heads.device()}));
  return cat(rows, 2);
}

Tensor MultiheadAttention::join_heads(const Tensor& x, bool batched) {
  Tensor joined = options_.batch_first ? x.permute({0, 2, 1, 3}) : x.permute({2, 0, 1, 3});
  Tensor y = out_proj(joined.flatten(2));
  return batched ? y : y.squeeze(options_.batch_first ? 0 : 1);
}

MultiheadAttention::Heads MultiheadAttention::project(const Tensor& query, const Tensor& key,
                                                      const Tensor& value) const {
  Heads h = project_inputs(query, key, value);
  return {h.q, with_more_rows(h.k, bias_k), with_more_rows(h.v, bias_v), h.batched};
}

MultiheadAttention::Heads MultiheadAttention::project_inputs(const Tensor& query, const Tensor& key,
                                                             const Tensor& value) const {
  DEFT_CHECK(query.defined() && key.defined() && value.defined(), ValueError,
             "{}: query, key or value is an undefined tensor", describe());
  bool batched = query.dim() == 3;
  DEFT_CHECK((batched || query.dim() == 2) && key.dim() == query.dim() && value.dim() == query.dim(), ShapeError,
             "{}: query {}, key {} and value {} need 3 dimensions each, or 2 without a batch", describe(),
             deft::to_string(query.sizes()), deft::to_string(key.sizes()), deft::to_string(value.sizes()));
  auto with_batch = [&](const Tensor& t) { return batched ? t : t.unsqueeze(options_.batch_first ? 0 : 1); };
  auto heads = [&](const Tensor& t) { return split_heads(t); };
  auto bias_rows = [&](int64_t first, int64_t count) {
    return in_proj_bias.defined() ? in_proj_bias.narrow(0, first * embed_dim_, count * embed_dim_) : Tensor();
  };
  Tensor q = with_batch(query);
  if (!in_proj_weight.defined())
    return {heads(linear(q, q_proj_weight, bias_rows(0, 1))),
            heads(linear(with_batch(key), k_proj_weight, bias_rows(1, 1))),
            heads(linear(with_batch(value), v_proj_weight, bias_rows(2, 1))), batched};
  auto rows = [&](int64_t first, int64_t count) {
    return in_proj_weight.narrow(0, first * embed_dim_, count * embed_dim_);
  };
  // One matmul where inputs are the same.
  if (key.is_same(value) && query.is_same(key)) {
    std::vector<Tensor> all = linear(q, in_proj_weight, in_proj_bias).chunk(3, -1);
    return {heads(all[0]), heads(all[1]), heads(all[2]), batched};
  }
  Tensor projected = linear(q, rows(0, 1), bias_rows(0, 1));
  if (key.is_same(value)) {
    std::vector<Tensor> two = linear(with_batch(key), rows(1, 2), bias_rows(1, 2)).chunk(2, -1);
    return {heads(projected), heads(two[0]), heads(two[1]), batched};
  }
  return {heads(projected), heads(linear(with_batch(key), rows(1, 1), bias_rows(1, 1))),
          heads(linear(with_batch(value), rows(2, 1), bias_rows(2, 1))), batched};
}

// Undefined if there is none; a causal one alone is left to the op unless `expand_causal`.
Tensor MultiheadAttention::combined_mask(const AttentionMasks& masks, const Heads& heads, bool expand_causal) const {
  int64_t more = (options_.add_bias_kv ? 1 : 0) + (options_.add_zero_attn ? 1 : 0);
  int64_t batch = heads.q.size(0), queries = heads.q.size(2), keys = heads.k.size(2) - more;
  DType dtype = heads.q.dtype();
  Tensor mask;
  if (const Tensor& m = masks.attn_mask; m.defined()) {
    bool fits = m.sizes() == Shape{queries, keys} || m.sizes() == Shape{batch * num_heads_, queries, keys};
    DEFT_CHECK(fits, ShapeError, "{}: attn_mask has shape {}, expected [{}, {}] or [{}, {}, {}]", describe(),
               deft::to_string(m.sizes()), queries, keys, batch * num_heads_, queries, keys);
    mask = as_op_mask(m.dim() == 3 ? m.reshape({batch, num_heads_, queries, keys}) : m, dtype);
  }
  if (const Tensor& m = masks.key_padding_mask; m.defined()) {
    bool fits = m.sizes() == Shape{batch, keys} || (!heads.batched && m.sizes() == Shape{keys});
    DEFT_CHECK(fits, ShapeError, "{}: key_padding_mask has shape {}, expected [{}, {}]", describe(),
               deft::to_string(m.sizes()), batch, keys);
    mask = both(mask, as_op_mask(m.reshape({batch, 1, 1, keys}), dtype), dtype);
  }
  if (masks.causal && (mask.defined() || expand_causal || more > 0))
    mask = both(mask, tril(ones({queries, keys}, {DType::boolean, heads.q.device()})), dtype);
  // All queries see the added rows.
  if (more > 0 && mask.defined()) mask = pad(mask, {0, more}, PadMode::constant, mask.dtype() == DType::boolean);
  return mask;
}

Tensor MultiheadAttention::forward(const Tensor& x) { return forward(x, x, x); }

Tensor MultiheadAttention::forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                   const AttentionMasks& masks, Site site) {
  detail::WatchedCall watched(*this, site);
  SiteScope scope(site);
  Heads h = project(query, key, value);
  Tensor mask = combined_mask(masks, h, false);
  double drop = is_training() ? options_.dropout : 0;
  Tensor y = scaled_dot_product_attention(h.q, h.k, h.v, mask, drop, masks.causal && !mask.defined());
  return join_heads(y, h.batched);
}

MultiheadAttention::WithWeights MultiheadAttention::forward_with_weights(const Tensor& query, const Tensor& key,
                                                                         const Tensor& value,
                                                                         const AttentionMasks& masks, bool average,
                                                                         Site site) {
  detail::WatchedCall watched(*this, site);
  SiteScope scope(site);
  Heads h = project(query, key, value);
  Tensor mask = combined_mask(masks, h, true);
  Tensor scores = matmul(h.q * (1 / std::sqrt(static_cast<double>(h.q.size(-1)))), h.k.transpose(-2, -1));
  Tensor weights;
  if (mask.defined()) {
    scores = mask.dtype() == DType::boolean ? scores.masked_fill(logical_not(mask), -INFINITY) : scores + mask;
    // Softmax of a row that sees nothing would be NaN, and stay NaN in the gradient.
    Tensor blind = eq(scores.detach().amax({-1}, true), -INFINITY);
    weights = scores.masked_fill(blind, 0).softmax(-1).masked_fill(blind, 0);
  } else {
    weights = scores.softmax(-1);
  }
  weights = dropout(weights, options_.dropout, is_training());
  Tensor y = join_heads(matmul(weights, h.v), h.batched);
  if (average) weights = weights.mean({1});
  return {y, h.batched ? weights : weights.squeeze(0)};
}

std::string MultiheadAttention::describe() const {
  std::string text = fmt::format("MultiheadAttention(features={}, heads={}", embed_dim_, num_heads_);
  if (options_.dropout > 0) text += fmt::format(", dropout={}", options_.dropout);
  if (options_.batch_first) text += ", batch_first";
  return text + ")";
}

}  // namespace deft::nn
