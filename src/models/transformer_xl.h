// Transformer-XL: attention by relative distance over the segment and a memory of the segments before, and a softmax
// whose rare words live in clusters. Names are those of Hugging Face's weights.
#pragma once

#include <vector>

#include "nn/nn.h"

namespace deft::models {

struct TransformerXLOptions {
  int64_t vocabulary = 267735;
  std::vector<int64_t> cutoffs{20000, 40000, 200000};  // where the clusters of rarer words begin
  int64_t hidden = 410, layers = 16, heads = 10, head_size = 41, intermediate = 2100;
  int64_t memory = 150;  // tokens remembered
  double dropout = 0.1, attention_dropout = 0, norm_eps = 1e-5;
};
inline TransformerXLOptions transformer_xl_base_options() { return {}; }

// log p(class) over a vocabulary in clusters: the frequent classes and the clusters compete in one softmax, the classes
// of a cluster in one of their own that is computed only where it is needed.
class AdaptiveLogSoftmax : public nn::Module {
 public:
  // `weight` [classes, hidden] is shared with the word embeddings.
  AdaptiveLogSoftmax(const Tensor& weight, const std::vector<int64_t>& cutoffs);
  // Minus the log probability of each target: hidden [m, hidden], targets [m] -> [m].
  Tensor loss(const Tensor& hidden, const Tensor& targets);
  // Of all classes: [m, hidden] -> [m, classes].
  Tensor forward(const Tensor& hidden) override;

 private:
  Tensor head(const Tensor& hidden) const;
  Tensor tail(const Tensor& hidden, size_t cluster) const;
  int64_t head_column(size_t cluster) const;
  std::vector<int64_t> edges_;  // 0, cutoffs..., classes
  Tensor *weight_, *bias_;      // of all classes, cluster after cluster
  Tensor *cluster_weight_ = nullptr, *cluster_bias_ = nullptr;
};

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
  nn::Embedding& words_;
  nn::Dropout& dropout_;
  std::vector<TransformerXLLayer*> layers_;
  Tensor *content_bias_, *position_bias_;  // shared by all layers: [heads, head_size]
  AdaptiveLogSoftmax& crit_;
};

}  // namespace deft::models
