// Attention.
#pragma once

#include <optional>

#include "core/op.h"

namespace deft {

struct OpSamples;

// A composition of other ops.
struct ScaledDotProductAttention {
  static constexpr OpInfo info{.name = "scaled_dot_product_attention", .inputs = 4, .cost = Cost::compute_bound};
  static OpSamples samples();
};

// softmax(query x key^T * scale + mask) x value, for query [..., l, e], key [..., s, e], value [..., s, ev]; leading
// dimensions broadcast. attn_mask [..., l, s] is bool (true: the key takes part) or of the inputs' type (added to the
// scores); is_causal lets query i see keys 0 to i and takes no attn_mask besides. `scale` is 1 / sqrt(e) if not given.
// A query that sees no key gets zeros, and so do its gradients.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask = {}, double dropout_p = 0, bool is_causal = false,
                                    std::optional<double> scale = {}, Site site = Site::current());

}  // namespace deft
