// Attention over several heads, with PyTorch's parameters.
#pragma once

#include "nn/linear.h"
#include "nn/module.h"

namespace deft::nn {

// The keys a query may not attend to. As in PyTorch's module, true means hidden (in the op scaled_dot_product_attention
// it means the opposite); masks of floats are added to the scores. A query that sees no key gets zeros.
struct AttentionMasks {
  Tensor attn_mask = {};         // [queries, keys] or [batch * heads, queries, keys]
  Tensor key_padding_mask = {};  // [batch, keys], or [keys] without a batch
  bool causal = false;           // query i sees keys 0 to i
};

struct MultiheadAttentionOptions {
  double dropout = 0;  // of the attention weights
  bool bias = true;
  int64_t kdim = 0, vdim = 0;  // features of keys and values; 0: embed_dim
  bool batch_first = false;
  bool add_bias_kv = false;    // one learned key and value more, the same in every batch
  bool add_zero_attn = false;  // a key and a value of zeros more
};

// Inputs are [length, batch, features], with batch_first [batch, length, features], or [length, features] without a
// batch.
class MultiheadAttention : public Layer {
 public:
  MultiheadAttention(int64_t embed_dim, int64_t num_heads, const MultiheadAttentionOptions& options = {});
  Tensor forward(const Tensor& x) override;  // attends to itself
  Tensor forward(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionMasks& masks = {},
                 Site site = Site::current());
  using Layer::operator();
  Tensor operator()(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionMasks& masks = {},
                    Site site = Site::current()) {
    return forward(query, key, value, masks, site);
  }
  // Slower: the weights exist only here. They are [batch, queries, keys], averaged over the heads, or
  // [batch, heads, queries, keys].
  struct WithWeights {
    Tensor output, weights;
  };
  WithWeights forward_with_weights(const Tensor& query, const Tensor& key, const Tensor& value,
                                   const AttentionMasks& masks = {}, bool average = true, Site site = Site::current());
  std::string describe() const override;

  Tensor& in_proj_weight;                                 // [3 embed, embed]; undefined with kdim or vdim,
  Tensor &q_proj_weight, &k_proj_weight, &v_proj_weight;  // which have these
  Tensor& in_proj_bias;                                   // [3 embed]; undefined without one
  Tensor &bias_k, &bias_v;                                // [1, 1, embed]; undefined without add_bias_kv
  Linear& out_proj;

 private:
  struct Heads {
    Tensor q, k, v;  // [batch, heads, length, features]
    bool batched;
  };
  Heads project(const Tensor& query, const Tensor& key, const Tensor& value) const;
  Heads project_inputs(const Tensor& query, const Tensor& key, const Tensor& value) const;
  Tensor with_more_rows(const Tensor& heads, const Tensor& bias) const;
  Tensor split_heads(const Tensor& x) const;
  Tensor join_heads(const Tensor& x, bool batched);
  Tensor combined_mask(const AttentionMasks& masks, const Heads& heads, bool expand_causal) const;
  int64_t embed_dim_, num_heads_;
  MultiheadAttentionOptions options_;
};

}  // namespace deft::nn
