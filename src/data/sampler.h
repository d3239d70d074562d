// Which samples make up an epoch, in which order and in which batches: pure functions of (seed, epoch).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace deft::data {

class Sampler {
 public:
  virtual ~Sampler() = default;
  virtual int64_t size() const = 0;  // of an epoch
  virtual std::vector<int64_t> indices(uint64_t seed, int64_t epoch) const = 0;
  // Its kind and all it depends on: a loader goes on from a saved place only if this is the same.
  virtual std::string describe() const = 0;
};

// 0 .. n - 1.
class SequentialSampler : public Sampler {
 public:
  explicit SequentialSampler(int64_t n);
  int64_t size() const override { return n_; }
  std::vector<int64_t> indices(uint64_t seed, int64_t epoch) const override;
  std::string describe() const override;

 private:
  int64_t n_;
};

// 0 .. n - 1 in another order each epoch: epoch_order().
class ShuffledSampler : public Sampler {
 public:
  explicit ShuffledSampler(int64_t n);
  int64_t size() const override { return n_; }
  std::vector<int64_t> indices(uint64_t seed, int64_t epoch) const override;
  std::string describe() const override;

 private:
  int64_t n_;
};

// The given samples, shuffled or in the order given.
class SubsetSampler : public Sampler {
 public:
  explicit SubsetSampler(std::vector<int64_t> rows, bool shuffle = true);
  int64_t size() const override { return static_cast<int64_t>(rows_.size()); }
  std::vector<int64_t> indices(uint64_t seed, int64_t epoch) const override;
  std::string describe() const override;

 private:
  std::vector<int64_t> rows_;
  bool shuffle_;
};

// `count` draws, sample i with a chance in proportion to weights[i]. Without replacement no sample comes twice, and
// only samples with a weight above 0 are drawn.
class WeightedSampler : public Sampler {
 public:
  WeightedSampler(std::vector<double> weights, int64_t count, bool replacement = true);
  int64_t size() const override { return count_; }
  std::vector<int64_t> indices(uint64_t seed, int64_t epoch) const override;
  std::string describe() const override;

 private:
  std::vector<double> weights_, sums_;  // sums_[i]: of the weights up to i
  int64_t count_;
  bool replacement_;
};

// The batches of an epoch.
class BatchPlan {
 public:
  BatchPlan() = default;
  // Batches of `batch_size`; what is left at the end is one too, or left out.
  BatchPlan(std::vector<int64_t> indices, int64_t batch_size, bool drop_last);
  int64_t size() const { return static_cast<int64_t>(ends_.size()); }
  std::span<const int64_t> operator[](int64_t batch) const {
    auto b = static_cast<size_t>(batch), begin = b == 0 ? 0 : ends_[b - 1];
    return {indices_.data() + begin, ends_[b] - begin};
  }
  void add(std::span<const int64_t> batch) {
    indices_.insert(indices_.end(), batch.begin(), batch.end());
    ends_.push_back(indices_.size());
  }
  const std::vector<int64_t>& indices() const { return indices_; }  // of all batches

 private:
  std::vector<int64_t> indices_;
  std::vector<size_t> ends_;  // where each batch ends in indices_
};

class BatchSampler {
 public:
  virtual ~BatchSampler() = default;
  virtual BatchPlan batches(uint64_t seed, int64_t epoch) const = 0;
  // How many; for samplers that know without making them.
  virtual int64_t count(uint64_t seed, int64_t epoch) const { return batches(seed, epoch).size(); }
  // As Sampler::describe().
  virtual std::string describe() const = 0;
};

// Batches of `batch_size` samples each; the last one may be shorter, or is left out.
class FixedBatchSampler : public BatchSampler {
 public:
  FixedBatchSampler(std::shared_ptr<const Sampler> sampler, int64_t batch_size, bool drop_last = false);
  BatchPlan batches(uint64_t seed, int64_t epoch) const override;
  int64_t count(uint64_t seed, int64_t epoch) const override;
  std::string describe() const override;

 private:
  std::shared_ptr<const Sampler> sampler_;
  int64_t batch_size_;
  bool drop_last_;
};

}  // namespace deft::data
