// Batches of samples of like length, in another order each epoch.
#pragma once

#include <string>
#include <vector>

#include "data/sampler.h"

namespace deft::data {

// What becomes of samples that are longer than the limit: the last boundary, or else max_tokens.
enum class TooLong : uint8_t {
  error,     // ValueError when the sampler is made
  alone,     // each is a batch of its own
  truncate,  // the data set cuts them off at the limit
};

struct BucketOptions {
  // What a batch holds at most; 0: no limit. One of them is needed.
  int64_t rows = 0;
  int64_t max_tokens = 0;  // rows x padded length
  // Ascending. A batch holds samples of one bucket, those up to a boundary and above the one before, and is padded to
  // that boundary: as many shapes as buckets. Empty: the samples of a window are sorted by length instead, and a batch
  // is padded to its longest.
  std::vector<int64_t> boundaries = {};
  int64_t multiple = 1;  // padded lengths are multiples of this
  // How far order may suffer: no sample is farther than window() places, as many as this many batches hold on average,
  // from where the shuffle put it. 0: the whole epoch.
  int64_t window_batches = 64;
  bool shuffle = true;     // false: the order of the data set instead of another one each epoch
  bool drop_last = false;  // leaves out batches that are not full because the epoch ended
  TooLong too_long = TooLong::error;
};

class BucketSampler : public BatchSampler {
 public:
  // lengths[i]: tokens of sample i.
  explicit BucketSampler(std::vector<int64_t> lengths, BucketOptions options);
  BatchPlan batches(uint64_t seed, int64_t epoch) const override;
  std::string describe() const override;
  int64_t window() const { return window_; }
  // How long the samples of a batch are when padded.
  int64_t padded_length(std::span<const int64_t> batch) const;
  // Of samples as they are batched: with TooLong::truncate at most the limit.
  const std::vector<int64_t>& lengths() const { return lengths_; }

 private:
  std::vector<int64_t> order(size_t n, uint64_t seed, int64_t epoch) const;
  void add_sorted(std::vector<int64_t>& samples, uint64_t seed, int64_t epoch, BatchPlan& plan) const;
  void add_buckets(const std::vector<int64_t>& order, BatchPlan& plan) const;
  int64_t padded(int64_t length) const;
  bool full(int64_t rows, int64_t length) const;

  std::vector<int64_t> lengths_;
  BucketOptions options_;
  int64_t limit_ = 0;  // of a sample that shares its batch
  int64_t window_ = 0;
};

// As a loader compares it: two lists with the same number but for one in 2^64 that differ.
uint64_t fingerprint(std::span<const int64_t> numbers);
// What the options of samplers have in common.
void check_lengths(const char* who, std::span<const int64_t> lengths, int64_t limit, TooLong too_long);

}  // namespace deft::data
