// Word vectors and a softmax for vocabularies in clusters, sorted by frequency: rarer words get shorter vectors. Names
// are those of Hugging Face's Transformer-XL.
#pragma once

#include <vector>

#include "nn/nn.h"

namespace deft::models {

struct AdaptiveOptions {
  int64_t vocabulary;
  std::vector<int64_t> cutoffs;  // where the clusters of rarer words begin
  int64_t hidden;
  int64_t embedding;  // values of a frequent word's vector
  // Each cluster's vectors are this many times shorter than the one's before. With 1 there is one table for all.
  int64_t div_val = 1;
};

// Edges of the clusters and widths of their vectors.
class Clusters {
 public:
  explicit Clusters(const AdaptiveOptions& o);
  size_t count() const { return edges_.size() - 1; }
  size_t tables() const { return one_table_ ? 1 : count(); }
  int64_t begin(size_t cluster) const { return edges_[cluster]; }
  int64_t size(size_t cluster) const { return edges_[cluster + 1] - edges_[cluster]; }
  int64_t width(size_t cluster) const { return widths_[cluster]; }
  int64_t rows_of_table(size_t table) const { return one_table_ ? edges_.back() : size(table); }
  bool one_table() const { return one_table_; }
  bool projected() const { return projected_; }  // vectors are not `hidden` long as they are
  // Positions of the numbers that belong to a cluster.
  Tensor members(const Tensor& words, size_t cluster) const;

 private:
  std::vector<int64_t> edges_;  // 0, cutoffs..., vocabulary
  std::vector<int64_t> widths_;
  bool one_table_, projected_;
};

class AdaptiveEmbedding : public nn::Module {
 public:
  explicit AdaptiveEmbedding(const AdaptiveOptions& options);
  // words i64 [...] -> [..., hidden], times sqrt(hidden).
  Tensor forward(const Tensor& words) override;
  Tensor& table(size_t i) { return tables_[i]->weight; }  // [words, width]
  Tensor& projection(size_t i) { return *projections_[i]; }

 private:
  int64_t hidden_;
  Clusters clusters_;
  std::vector<nn::Embedding*> tables_;
  std::vector<Tensor*> projections_;  // [hidden, width] of each table, where there are any
};

// log p(word): the frequent words and the clusters compete in one softmax, the words of a cluster in one of their own
// that is computed only where it is needed.
class AdaptiveLogSoftmax : public nn::Module {
 public:
  // Shares the tables of `words`, and with share_projections all projections but the first.
  AdaptiveLogSoftmax(AdaptiveEmbedding& words, const AdaptiveOptions& options, bool share_projections);
  // Minus the log probability of each target: hidden [m, hidden], targets [m] -> [m].
  Tensor loss(const Tensor& hidden, const Tensor& targets);
  // Of all words: [m, hidden] -> [m, vocabulary].
  Tensor forward(const Tensor& hidden) override;

 private:
  struct Part {
    Tensor weight, bias;
  };
  Part part(size_t cluster) const;
  Tensor scores(const Tensor& hidden, size_t cluster, const Part& part) const;
  Tensor head(const Tensor& hidden) const;
  Tensor tail(const Tensor& hidden, size_t cluster) const;
  int64_t head_column(size_t cluster) const;
  Clusters clusters_;
  std::vector<Tensor*> weights_, biases_;  // of each table
  std::vector<Tensor*> projections_;       // of each cluster, where there are any
  Tensor *cluster_weight_ = nullptr, *cluster_bias_ = nullptr;
};

}  // namespace deft::models
