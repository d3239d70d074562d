// Attention.
#pragma once

#include <optional>

#include "core/op.h"
#include "ops/random.h"

namespace deft {

struct OpSamples;

// (query, key, value, mask) -> (result, log_sum), all but the mask broadcast to the same leading dimensions; log_sum
// [..., l] is log2 of the sum of each query's exponentials. Dropout of the weights is that of Dropout on them, elements
// numbered row-major over the broadcast heads; it is drawn again in backward, never kept. On the CPU, and
// on CUDA for 16-bit floats of up to 128 features: otherwise scaled_dot_product_attention() is a composition of other
// ops, and so is the gradient of the mask everywhere.
struct ScaledDotProductAttention {
  struct Params {
    double scale = 1;
    bool causal = false;
    double drop_p = 0;
    PhiloxState draw;
    Dropout::Params drop() const { return {drop_p, draw}; }
    bool operator==(const Params&) const = default;
  };
  static constexpr uint16_t kSaved = input(0) | input(1) | input(2) | input(3) | output(0) | output(1);
  static constexpr OpInfo info{.name = "scaled_dot_product_attention",
                               .inputs = 4,
                               .outputs = 2,
                               .autocast = Autocast::low,
                               .cost = Cost::compute_bound,
                               .uses = {kSaved, kSaved, kSaved, kSaved}};
  static std::array<Meta, 2> infer(const Meta& q, const Meta& k, const Meta& v, const Meta& mask, const Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};
// (g, query, key, value, mask, result, log_sum) -> (dquery, dkey, dvalue), of the broadcast sizes.
struct ScaledDotProductAttentionBackward {
  struct Params {
    double scale = 1;
    bool causal = false;
    double drop_p = 0;
    PhiloxState draw;
    uint8_t wanted = 7;  // bit i: output i; the others come back empty
    Dropout::Params drop() const { return {drop_p, draw}; }
    bool operator==(const Params&) const = default;
  };
  static constexpr uint16_t kSaved = input(0) | input(1) | input(2) | input(3) | input(4);
  static constexpr OpInfo info{.name = "scaled_dot_product_attention_backward",
                               .inputs = 7,
                               .outputs = 3,
                               .cost = Cost::compute_bound,
                               .uses = {kSaved, kSaved, kSaved, kSaved, kSaved, 0}};
  static std::array<Meta, 3> infer(const Meta& g, const Meta& q, const Meta& k, const Meta& v, const Meta& mask,
                                   const Meta& result, const Meta& log_sum, const Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
};

// softmax(query x key^T * scale + mask) x value, for query [..., l, e], key [..., s, e], value [..., s, ev]; leading
// dimensions broadcast. attn_mask [..., l, s] is bool (true: the key takes part) or of the inputs' type (added to the
// scores); is_causal lets query i see keys 0 to i and takes no attn_mask besides. `scale` is 1 / sqrt(e) if not given.
// A query that sees no key gets zeros, and so do its gradients. Keys that a bool mask [..., 1, s] hides from all of
// several queries may hold anything, NaN too. With enable_gqa there may be fewer heads (dim -3) of keys and of values:
// each serves as many neighbouring heads of queries.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask = {}, double dropout_p = 0, bool is_causal = false,
                                    std::optional<double> scale = {}, bool enable_gqa = false,
                                    Site site = Site::current());

}  // namespace deft
