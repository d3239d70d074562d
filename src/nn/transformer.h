// Transformer encoder and decoder, with PyTorch's parameters.
#pragma once

#include <vector>

#include "nn/attention.h"
#include "nn/containers.h"
#include "nn/dropout.h"
#include "nn/norm.h"

namespace deft::nn {

enum class FeedForward : uint8_t { relu, gelu };

struct TransformerOptions {
  int64_t dim_feedforward = 2048;
  double dropout = 0.1;
  FeedForward activation = FeedForward::relu;
  double layer_norm_eps = 1e-5;
  bool batch_first = false;
  bool norm_first = false;  // normalise the input of each part instead of the sum after it
};

class TransformerEncoderLayer : public Layer {
 public:
  TransformerEncoderLayer(int64_t d_model, int64_t nhead, const TransformerOptions& options = {});
  Tensor forward(const Tensor& x) override { return forward(x, {}); }
  Tensor forward(const Tensor& x, const AttentionMasks& masks, Site site = Site::current());
  Tensor operator()(const Tensor& x, const AttentionMasks& masks = {}, Site site = Site::current()) {
    return forward(x, masks, site);
  }
  std::string describe() const override;

  MultiheadAttention& self_attn;
  Linear& linear1;
  Dropout& dropout;
  Linear& linear2;
  LayerNorm &norm1, &norm2;
  Dropout &dropout1, &dropout2;

 private:
  Tensor attend(const Tensor& x, const AttentionMasks& masks);
  Tensor feed_forward(const Tensor& x);
  TransformerOptions options_;
};

class TransformerDecoderLayer : public Layer {
 public:
  TransformerDecoderLayer(int64_t d_model, int64_t nhead, const TransformerOptions& options = {});
  // `masks` for the self-attention of the target, `memory_masks` for its cross-attention to the encoder's result.
  using Layer::forward;
  Tensor forward(const Tensor& target, const Tensor& memory, const AttentionMasks& masks = {},
                 const AttentionMasks& memory_masks = {}, Site site = Site::current());
  Tensor operator()(const Tensor& target, const Tensor& memory, const AttentionMasks& masks = {},
                    const AttentionMasks& memory_masks = {}, Site site = Site::current()) {
    return forward(target, memory, masks, memory_masks, site);
  }
  std::string describe() const override;

  MultiheadAttention &self_attn, &multihead_attn;
  Linear& linear1;
  Dropout& dropout;
  Linear& linear2;
  LayerNorm &norm1, &norm2, &norm3;
  Dropout &dropout1, &dropout2, &dropout3;

 private:
  Tensor attend_self(const Tensor& x, const AttentionMasks& masks);
  Tensor attend_memory(const Tensor& x, const Tensor& memory, const AttentionMasks& masks);
  Tensor feed_forward(const Tensor& x);
  TransformerOptions options_;
};

// Layers one after the other, each with its own first values, and a last LayerNorm if `final_norm`.
class TransformerEncoder : public Layer {
 public:
  TransformerEncoder(int64_t d_model, int64_t nhead, int64_t num_layers, const TransformerOptions& options = {},
                     bool final_norm = false);
  Tensor forward(const Tensor& x) override { return forward(x, {}); }
  Tensor forward(const Tensor& x, const AttentionMasks& masks, Site site = Site::current());
  Tensor operator()(const Tensor& x, const AttentionMasks& masks = {}, Site site = Site::current()) {
    return forward(x, masks, site);
  }

  ModuleList& layers;
  LayerNorm* norm = nullptr;
};

class TransformerDecoder : public Layer {
 public:
  TransformerDecoder(int64_t d_model, int64_t nhead, int64_t num_layers, const TransformerOptions& options = {},
                     bool final_norm = false);
  using Layer::forward;
  Tensor forward(const Tensor& target, const Tensor& memory, const AttentionMasks& masks = {},
                 const AttentionMasks& memory_masks = {}, Site site = Site::current());
  Tensor operator()(const Tensor& target, const Tensor& memory, const AttentionMasks& masks = {},
                    const AttentionMasks& memory_masks = {}, Site site = Site::current()) {
    return forward(target, memory, masks, memory_masks, site);
  }

  ModuleList& layers;
  LayerNorm* norm = nullptr;
};

}  // namespace deft::nn
