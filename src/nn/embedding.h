// Rows of a table by their numbers.
#pragma once

#include <optional>

#include "nn/module.h"

namespace deft::nn {

struct EmbeddingOptions {
  std::optional<int64_t> padding_idx = {};  // starts as zeros and gets no gradient; negative counts from the end
  std::optional<double> max_norm = {};      // rows that are looked up and longer are shortened to it, in place
  double norm_type = 2;
};

class Embedding : public Layer {
 public:
  Embedding(int64_t num_embeddings, int64_t embedding_dim, const EmbeddingOptions& options = {});
  Tensor forward(const Tensor& index) override;
  std::string describe() const override;

  Tensor& weight;  // [rows, features]

 private:
  EmbeddingOptions options_;
};

// Sums, means or maxima over bags of rows. Rows of padding_idx count in none of them.
enum class BagMode : uint8_t { sum, mean, max };
struct EmbeddingBagOptions {
  BagMode mode = BagMode::mean;
  std::optional<int64_t> padding_idx = {};
  std::optional<double> max_norm = {};
  double norm_type = 2;
  bool include_last_offset = false;  // offsets end with the number of indices
};

class EmbeddingBag : public Layer {
 public:
  EmbeddingBag(int64_t num_embeddings, int64_t embedding_dim, const EmbeddingBagOptions& options = {});
  // index [bags, rows each].
  Tensor forward(const Tensor& index) override;
  // index [n], with offsets [bags] into it where each begins; or 2-d without. Weights, of the shape of index, only for
  // sums.
  Tensor forward(const Tensor& index, const Tensor& offsets, const Tensor& per_sample_weights = {},
                 Site site = Site::current());
  Tensor operator()(const Tensor& index, const Tensor& offsets = {}, const Tensor& per_sample_weights = {},
                    Site site = Site::current()) {
    return forward(index, offsets, per_sample_weights, site);
  }
  std::string describe() const override;

  Tensor& weight;  // [rows, features]

 private:
  Tensor reduce(const Tensor& index, const Tensor& bag_of, int64_t bags, const Tensor& per_sample_weights);
  EmbeddingBagOptions options_;
};

}  // namespace deft::nn
