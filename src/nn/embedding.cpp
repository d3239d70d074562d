#include "nn/embedding.h"

#include <cmath>

#include "base/check.h"
#include "core/grad_mode.h"
#include "nn/init.h"
#include "nn/watched_call.h"
#include "ops/binary.h"
#include "ops/creation.h"
#include "ops/gather_scatter.h"
#include "ops/reduce.h"
#include "ops/sort.h"
#include "ops/ternary.h"
#include "runtime/context.h"

namespace deft::nn {

namespace {

// Counted from the front.
std::optional<int64_t> row_number(std::optional<int64_t> row, int64_t rows, const char* layer) {
  if (!row) return row;
  DEFT_CHECK(*row >= -rows && *row < rows, ValueError, "{}: padding_idx is {}, but there are {} rows", layer, *row,
             rows);
  return *row < 0 ? *row + rows : *row;
}

void initialize(Tensor& weight, std::optional<int64_t> padding) {
  init::normal_(weight);
  if (!padding) return;
  NoGradGuard no_grad;
  weight[*padding].zero_();
}

// Renormalises the rows that are about to be read.
void limit_rows(Tensor& weight, const Tensor& index, double max_norm, double norm_type) {
  NoGradGuard no_grad;
  Tensor rows = index.reshape({-1});
  if (!(context().bits & kCapture)) rows = unique(rows)[0];  // how many there are depends on values
  Tensor values = weight.index_select(0, rows);
  Tensor norms = values.norm(norm_type, {1}, true);
  Tensor factor = where(norms > max_norm, max_norm / (norms + 1e-7), 1.0);
  weight.index_put_({rows}, values * factor);
}

std::string describe_table(const char* name, const Tensor& weight, std::optional<int64_t> padding,
                           std::optional<double> max_norm) {
  std::string text = fmt::format("{}(rows={}, features={}", name, weight.size(0), weight.size(1));
  if (padding) text += fmt::format(", padding_idx={}", *padding);
  if (max_norm) text += fmt::format(", max_norm={}", *max_norm);
  return text;
}

}  // namespace

// --- Embedding -------------------------------------------------------------------------------------------------

Embedding::Embedding(int64_t num_embeddings, int64_t embedding_dim, const EmbeddingOptions& options)
    : weight(parameter("weight", empty({num_embeddings, embedding_dim}))), options_(options) {
  options_.padding_idx = row_number(options.padding_idx, num_embeddings, "Embedding");
  initialize(weight, options_.padding_idx);
}

Tensor Embedding::forward(const Tensor& index) {
  if (options_.max_norm) limit_rows(weight, index, *options_.max_norm, options_.norm_type);
  return embedding(index, weight, options_.padding_idx);
}

std::string Embedding::describe() const {
  return describe_table("Embedding", weight, options_.padding_idx, options_.max_norm) + ")";
}

// --- EmbeddingBag ----------------------------------------------------------------------------------------------

EmbeddingBag::EmbeddingBag(int64_t num_embeddings, int64_t embedding_dim, const EmbeddingBagOptions& options)
    : weight(parameter("weight", empty({num_embeddings, embedding_dim}))), options_(options) {
  options_.padding_idx = row_number(options.padding_idx, num_embeddings, "EmbeddingBag");
  initialize(weight, options_.padding_idx);
}

namespace {

// For each index the number of its bag.
Tensor bags_of(const Tensor& index, const Tensor& offsets, int64_t bags) {
  std::vector<int64_t> starts = offsets.to_vector<int64_t>(), bag_of;
  int64_t n = index.numel();
  starts.resize(static_cast<size_t>(bags));
  starts.push_back(n);
  DEFT_CHECK(starts[0] == 0, ValueError, "EmbeddingBag: the first offset must be 0, found {}", starts[0]);
  for (size_t bag = 0; bag + 1 < starts.size(); ++bag) {
    DEFT_CHECK(starts[bag] <= starts[bag + 1] && starts[bag + 1] <= n, ValueError,
               "EmbeddingBag: offsets must not fall nor pass the {} indices, found {} after {}", n, starts[bag + 1],
               starts[bag]);
    bag_of.insert(bag_of.end(), static_cast<size_t>(starts[bag + 1] - starts[bag]), static_cast<int64_t>(bag));
  }
  return tensor(bag_of).to(index.device());
}

}  // namespace

Tensor EmbeddingBag::forward(const Tensor& index) { return forward(index, Tensor()); }

Tensor EmbeddingBag::forward(const Tensor& index, const Tensor& offsets, const Tensor& per_sample_weights, Site site) {
  detail::WatchedCall watched(*this, site);
  SiteScope scope(site);
  DEFT_CHECK(offsets.defined() ? index.dim() == 1 && offsets.dim() == 1 : index.dim() == 2, ShapeError,
             "EmbeddingBag: takes 2-d indices, or 1-d indices and 1-d offsets; the indices have shape {}",
             deft::to_string(index.sizes()));
  const Tensor& w = per_sample_weights;
  DEFT_CHECK(!w.defined() || (options_.mode == BagMode::sum && w.sizes() == index.sizes()), ValueError,
             "EmbeddingBag: per_sample_weights need mode sum and the shape {} of the indices",
             deft::to_string(index.sizes()));
  if (options_.max_norm) limit_rows(weight, index, *options_.max_norm, options_.norm_type);
  Tensor flat_weights = w.defined() ? w.reshape({-1}) : w;
  if (offsets.defined()) {
    int64_t bags = offsets.numel() - (options_.include_last_offset ? 1 : 0);
    DEFT_CHECK(bags > 0, ValueError, "EmbeddingBag: there are no bags in {} offsets", offsets.numel());
    return reduce(index, bags_of(index, offsets, bags), bags, flat_weights);
  }
  int64_t bags = index.size(0);
  Tensor bag_of = arange(0, bags, 1, TensorOptions(DType::i64, index.device())).unsqueeze(1).expand(index.sizes());
  return reduce(index.reshape({-1}), bag_of.reshape({-1}), bags, flat_weights);
}

Tensor EmbeddingBag::reduce(const Tensor& all, const Tensor& all_bags, int64_t bags, const Tensor& all_weights) {
  Tensor index = all, bag_of = all_bags, w = all_weights;
  if (options_.padding_idx) {
    Tensor kept = nonzero(all != *options_.padding_idx).reshape({-1});
    index = all.index_select(0, kept), bag_of = all_bags.index_select(0, kept);
    if (w.defined()) w = w.index_select(0, kept);
  }
  Tensor rows = embedding(index, weight);
  if (w.defined()) rows = rows * w.unsqueeze(1);
  TensorOptions like(weight.dtype(), weight.device());
  Shape sizes{bags, weight.size(1)};
  if (options_.mode == BagMode::sum) return index_add(zeros(sizes, like), 0, bag_of, rows);
  Tensor counts = index_add(zeros({bags}, like), 0, bag_of, ones({bag_of.numel()}, like)).unsqueeze(1);
  if (options_.mode == BagMode::mean) return index_add(zeros(sizes, like), 0, bag_of, rows) / counts.clamp(1);
  Tensor places = bag_of.unsqueeze(1).expand(rows.sizes());
  Tensor largest = scatter_reduce(full(sizes, -INFINITY, like), 0, places, rows, ScatterReduce::amax);
  return largest.masked_fill(counts == 0, 0);
}

std::string EmbeddingBag::describe() const {
  constexpr const char* kModes[] = {"sum", "mean", "max"};
  return describe_table("EmbeddingBag", weight, options_.padding_idx, options_.max_norm) +
         ", mode=" + kModes[static_cast<int>(options_.mode)] + ")";
}

}  // namespace deft::nn
