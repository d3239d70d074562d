#include "ops/attention.h"

#include <cmath>

#include "base/check.h"
#include "core/describe.h"
#include "ops/binary.h"
#include "ops/creation.h"
#include "ops/matmul.h"
#include "ops/random.h"
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

void check_mask(const Tensor& mask, const Tensor& scores) {
  DEFT_CHECK(mask.dtype() == DType::boolean || mask.dtype() == scores.dtype(), DTypeError,
             "{}: the mask is {}, expected bool or the inputs' {}", kName, name_of(mask.dtype()),
             name_of(scores.dtype()));
  DEFT_CHECK(broadcast_shapes(mask.sizes(), scores.sizes(), kName) == scores.sizes(), ShapeError,
             "{}: a mask of shape {} does not broadcast to the scores' {}", kName, to_string(mask.sizes()),
             to_string(scores.sizes()));
}

// [..., l, 1], true for queries that the mask keeps from every key.
Tensor blind_queries(const Tensor& mask) {
  Tensor rows = mask.dim() ? mask : mask.unsqueeze(0);
  if (mask.dtype() == DType::boolean) return logical_not(rows.any({-1}, true));
  return eq(rows.detach().amax({-1}, true), -INFINITY);
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask, double dropout_p, bool is_causal,
                                    std::optional<double> scale, Site site) {
  SiteScope scope(site);
  check_inputs(query, key, value);
  DEFT_CHECK(dropout_p >= 0 && dropout_p <= 1, ValueError, "{}: dropout_p must lie in [0, 1], found {}", kName,
             dropout_p);
  DEFT_CHECK(!(attn_mask.defined() && is_causal), ValueError, "{}: give attn_mask or is_causal, not both", kName);
  double factor = scale.value_or(1 / std::sqrt(static_cast<double>(query.sizes().back())));
  // Scaling the query is cheaper than scaling the scores, and 16-bit floats overflow later.
  Tensor scores = matmul(mul(query, factor), key.t());
  int64_t keys = scores.sizes().back();
  Tensor blind;
  if (is_causal) {
    TensorOptions positions(DType::i64, scores.device());
    Tensor hidden = lt(arange(0, scores.size(-2), 1, positions).unsqueeze(1), arange(0, keys, 1, positions));
    scores = scores.masked_fill(hidden, -INFINITY);
  } else if (attn_mask.defined()) {
    check_mask(attn_mask, scores);
    scores = attn_mask.dtype() == DType::boolean ? scores.masked_fill(logical_not(attn_mask), -INFINITY)
                                                 : add(scores, attn_mask);
    // Equal weights instead of NaN, until they are cleared below: NaN would stay in the gradient.
    if (keys > 0) {
      blind = blind_queries(attn_mask);
      scores = scores.masked_fill(blind, 0);
    }
  }
  Tensor weights = scores.softmax(-1);
  if (blind.defined()) weights = weights.masked_fill(blind, 0);
  if (dropout_p > 0) weights = dropout(weights, dropout_p);
  return matmul(weights, value);
}

}  // namespace deft
