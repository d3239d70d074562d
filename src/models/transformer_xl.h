// Transformer-XL: attention by relative distance over the segment and a memory of the segments before, and a softmax
// whose rare words live in clusters. Names are those of Hugging Face's weights.
#pragma once

#include <vector>

#include "models/adaptive_softmax.h"
#include "nn/nn.h"

namespace deft::models {

struct TransformerXLOptions {
  int64_t vocabulary = 267735;
  std::vector<int64_t> cutoffs{20000, 40000, 200000};  // where the clusters of rarer words begin
  int64_t hidden = 410, layers = 16, heads = 10, head_size = 41, intermediate = 2100;
  int64_t memory = 150;           // tokens remembered
  int64_t embedding = 0;          // values of a frequent word's vector; 0: hidden
  int64_t div_val = 1;            // how much shorter the vectors of the next cluster of words are
  bool share_projections = true;  // of such vectors, between embedding and softmax; cluster 0 has two of its own
  bool untie_r = false;           // each layer has biases of its own for content and distance
  double dropout = 0.1, attention_dropout = 0, norm_eps = 1e-5;
};
inline TransformerXLOptions transformer_xl_base_options() { return {}; }

class TransformerXLLayer;

class TransformerXL : public nn::Module {
 public:
  using Memory = std::vector<Tensor>;  // of every layer's input: [n, remembered, hidden], without history
  explicit TransformerXL(const TransformerXLOptions& options = {});
  // tokens i64 [n, length] -> [n, length, hidden]. The memory is read and then replaced by the newest tokens; an empty
  // one is the start of a text.
  Tensor encode(const Tensor& tokens, Memory& memory);
  Tensor forward(const Tensor& tokens) override;
  // The loss of each target, i64 [n, length] -> [n, length].
  Tensor loss(const Tensor& tokens, const Tensor& targets, Memory& memory);
  AdaptiveLogSoftmax& softmax() { return crit_; }
  const TransformerXLOptions& options() const { return options_; }

 private:
  TransformerXLOptions options_;
  AdaptiveEmbedding& words_;
  nn::Dropout& dropout_;
  std::vector<TransformerXLLayer*> layers_;
  Tensor *content_bias_, *position_bias_;  // shared by all layers: [heads, head_size]; null with untie_r
  AdaptiveLogSoftmax& crit_;
};

}  // namespace deft::models
