#include "models/adaptive_softmax.h"

#include <cmath>

#include "base/check.h"

namespace deft::models {

Clusters::Clusters(const AdaptiveOptions& o)
    : edges_{0}, one_table_(o.div_val == 1), projected_(o.div_val != 1 || o.embedding != o.hidden) {
  DEFT_CHECK(o.div_val >= 1, ValueError, "AdaptiveSoftmax: div_val must be at least 1, found {}", o.div_val);
  for (int64_t cutoff : o.cutoffs) {
    DEFT_CHECK(cutoff > edges_.back() && cutoff < o.vocabulary, ValueError,
               "AdaptiveSoftmax: cutoffs must rise between 0 and the {} words, found {} after {}", o.vocabulary, cutoff,
               edges_.back());
    edges_.push_back(cutoff);
  }
  edges_.push_back(o.vocabulary);
  for (size_t i = 0; i < count(); ++i) {
    widths_.push_back(i == 0 ? o.embedding : widths_.back() / o.div_val);
    DEFT_CHECK(widths_.back() > 0, ValueError,
               "AdaptiveSoftmax: vectors of {} values are too short to be divided by {} for each of {} clusters",
               o.embedding, o.div_val, o.cutoffs.size());
  }
}

Tensor Clusters::members(const Tensor& words, size_t cluster) const {
  return nonzero((words >= edges_[cluster]) & (words < edges_[cluster + 1])).squeeze(1);
}

AdaptiveEmbedding::AdaptiveEmbedding(const AdaptiveOptions& options) : hidden_(options.hidden), clusters_(options) {
  auto& tables = add<nn::ModuleList>("emb_layers");
  auto& projections = add<nn::Group>("emb_projs");
  for (size_t i = 0; i < clusters_.tables(); ++i) {
    tables_.push_back(&tables.add<nn::Embedding>(clusters_.rows_of_table(i), clusters_.width(i)));
    if (clusters_.projected())
      projections_.push_back(&projections.parameter(std::to_string(i), zeros({hidden_, clusters_.width(i)})));
  }
}

Tensor AdaptiveEmbedding::forward(const Tensor& words) {
  double scale = std::sqrt(static_cast<double>(hidden_));
  if (clusters_.one_table()) {
    Tensor x = (*tables_[0])(words);
    return (clusters_.projected() ? linear(x, *projections_[0]) : x) * scale;
  }
  Tensor flat = words.reshape({-1});
  Tensor result = zeros({flat.numel(), hidden_}, {table(0).dtype(), words.device()});
  // Every word goes through every table, as its first one where it is not there: asking which words are where would
  // make a device wait, and shapes depend on values.
  for (size_t i = 0; i < clusters_.count(); ++i) {
    int64_t begin = clusters_.begin(i);
    Tensor here = (flat >= begin) & (flat < begin + clusters_.size(i));
    Tensor x = linear((*tables_[i])((flat - begin) * here), *projections_[i]);
    result = where(here.unsqueeze(1), x.to(result.dtype()), result);
  }
  Shape sizes = words.sizes();
  sizes.push_back(hidden_);
  return result.view(sizes) * scale;
}

AdaptiveLogSoftmax::AdaptiveLogSoftmax(AdaptiveEmbedding& words, const AdaptiveOptions& o, bool share_projections)
    : clusters_(o) {
  auto& layers = add<nn::Group>("out_layers");
  for (size_t i = 0; i < clusters_.tables(); ++i) {
    auto& layer = layers.add<nn::Group>(std::to_string(i));
    weights_.push_back(&layer.parameter("weight", words.table(i)));
    biases_.push_back(&layer.parameter("bias", zeros({clusters_.rows_of_table(i)})));
  }
  auto& projections = add<nn::Group>("out_projs");
  for (size_t i = 0; clusters_.projected() && i < clusters_.count(); ++i) {
    size_t table = clusters_.one_table() ? 0 : i;
    Tensor shared = words.projection(table);
    Tensor p = share_projections && i > 0 ? shared : zeros(shared.sizes());
    projections_.push_back(&projections.parameter(std::to_string(i), p));
  }
  if (o.cutoffs.empty()) return;
  auto rare = static_cast<int64_t>(o.cutoffs.size());
  cluster_weight_ = &parameter("cluster_weight", zeros({rare, o.embedding}));
  cluster_bias_ = &parameter("cluster_bias", zeros({rare}));
}

AdaptiveLogSoftmax::Part AdaptiveLogSoftmax::part(size_t cluster) const {
  if (!clusters_.one_table()) return {*weights_[cluster], *biases_[cluster]};
  int64_t begin = clusters_.begin(cluster), size = clusters_.size(cluster);
  return {weights_[0]->narrow(0, begin, size), biases_[0]->narrow(0, begin, size)};
}

Tensor AdaptiveLogSoftmax::scores(const Tensor& hidden, size_t cluster, const Part& p) const {
  Tensor x = clusters_.projected() ? matmul(hidden, *projections_[cluster]) : hidden;
  return linear(x, p.weight, p.bias);
}

// Log probabilities of the frequent words, then of the clusters.
Tensor AdaptiveLogSoftmax::head(const Tensor& hidden) const {
  Part p = part(0);
  if (cluster_weight_) p = {cat({p.weight, *cluster_weight_}, 0), cat({p.bias, *cluster_bias_}, 0)};
  return log_softmax(scores(hidden, 0, p), -1);
}

// Log probabilities of the words of cluster 1, 2, ... given the cluster.
Tensor AdaptiveLogSoftmax::tail(const Tensor& hidden, size_t cluster) const {
  return log_softmax(scores(hidden, cluster, part(cluster)), -1);
}

// Where the head keeps the probability of a cluster.
int64_t AdaptiveLogSoftmax::head_column(size_t cluster) const {
  return clusters_.size(0) + static_cast<int64_t>(cluster) - 1;
}

Tensor AdaptiveLogSoftmax::loss(const Tensor& hidden, const Tensor& targets) {
  DEFT_CHECK(hidden.dim() == 2 && targets.dim() == 1 && hidden.size(0) == targets.size(0), ShapeError,
             "AdaptiveLogSoftmax: takes hidden [m, size] and targets [m], found {} and {}",
             deft::to_string(hidden.sizes()), deft::to_string(targets.sizes()));
  Tensor first = head(hidden), column = targets;
  for (size_t c = 1; c < clusters_.count(); ++c) {
    int64_t begin = clusters_.begin(c);
    column =
        where((targets >= begin) & (targets < begin + clusters_.size(c)), full_like(targets, head_column(c)), column);
  }
  Tensor result = first.gather(1, column.unsqueeze(1)).squeeze(1);
  for (size_t c = 1; c < clusters_.count(); ++c) {
    Tensor rows = clusters_.members(targets, c);
    if (rows.numel() == 0) continue;
    Tensor inside = (targets.index_select(0, rows) - clusters_.begin(c)).unsqueeze(1);
    Tensor part = tail(hidden.index_select(0, rows), c).gather(1, inside).squeeze(1);
    result = index_add(result, 0, rows, part);
  }
  return -result;
}

Tensor AdaptiveLogSoftmax::forward(const Tensor& hidden) {
  Tensor first = head(hidden);
  std::vector<Tensor> parts{first.narrow(1, 0, clusters_.size(0))};
  for (size_t c = 1; c < clusters_.count(); ++c) parts.push_back(tail(hidden, c) + first.narrow(1, head_column(c), 1));
  return cat(parts, 1);
}

}  // namespace deft::models
