#include "ops/product_flops.h"

#include <algorithm>

#include "ops/attention.h"
#include "ops/conv.h"
#include "ops/matmul.h"
#include "ops/packed_linear.h"

namespace deft {

namespace {

double number(int64_t n) { return static_cast<double>(n); }

// Elements behind one entry of the first dimension.
double per_entry(const Meta& m) { return m.sizes[0] ? number(m.numel / m.sizes[0]) : 0; }

// Pairs of a query and a key it sees, over all heads.
double pairs(const Meta& q, const Meta& k, bool causal, double heads) {
  const double queries = number(q.sizes[q.rank() - 2]), keys = number(k.sizes[k.rank() - 2]);
  if (!causal) return heads * queries * keys;
  const double both = std::min(queries, keys);
  return heads * (both * (both + 1) / 2 + (queries - both) * keys);
}

double attention_flops(const Meta* const* in, const Meta& result, const void* params) {
  const Meta &q = *in[0], &k = *in[1], &v = *in[2];
  const double rows = number(q.sizes[q.rank() - 2] * v.sizes.back());
  const double heads = rows > 0 ? number(result.numel) / rows : 0;
  const bool causal = static_cast<const ScaledDotProductAttention::Params*>(params)->causal;
  return 2 * pairs(q, k, causal, heads) * number(q.sizes.back() + v.sizes.back());
}

// Up to five matmuls: the scores again, the gradient of the weights, and from these one for each input.
double attention_backward_flops(const Meta* const* in, const void* params) {
  const Meta &g = *in[0], &q = *in[1], &k = *in[2], &v = *in[3];
  const auto& p = *static_cast<const ScaledDotProductAttentionBackward::Params*>(params);
  const double rows = number(q.sizes[q.rank() - 2] * v.sizes.back());
  const double heads = rows > 0 ? number(g.numel) / rows : 0;
  const double features = number(q.sizes.back()), value_features = number(v.sizes.back());
  double depth = features;
  if (p.wanted & 3) depth += value_features;
  depth += ((p.wanted & 1) + (p.wanted >> 1 & 1)) * features + (p.wanted >> 2 & 1) * value_features;
  return 2 * pairs(q, k, p.causal, heads) * depth;
}

}  // namespace

double product_flops(const OpDef& def, const Meta* const* in, const Meta& output, const void* params) {
  if (def.info.cost != Cost::compute_bound) return 0;
  if (&def == &op_def<Matmul>) return 2 * number(output.numel) * number(in[0]->sizes.back());
  if (&def == &op_def<Linear> || &def == &op_def<FusedLinear>)
    return 2 * number(output.numel) * number(in[1]->sizes[1]);
  if (&def == &op_def<Convolution> || &def == &op_def<FusedConvolution>)
    return 2 * number(output.numel) * per_entry(*in[1]);
  if (&def == &op_def<ConvTranspose>) return 2 * number(in[0]->numel) * per_entry(*in[1]);
  if (&def == &op_def<ConvBackwardWeight>) return 2 * number(in[1]->numel) * per_entry(output);
  if (&def == &op_def<ScaledDotProductAttention>) return attention_flops(in, output, params);
  if (&def == &op_def<ScaledDotProductAttentionBackward>) return attention_backward_flops(in, params);
  return 0;
}

}  // namespace deft
