#include "data/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "data/order.h"
#include "runtime/random.h"

namespace deft::data {

namespace {

void check_size(const char* sampler, int64_t n) {
  DEFT_CHECK(n >= 0, ValueError, "{}: the number of samples must not be negative, found {}", sampler, n);
}

// FNV-1a: distinguishes lists in describe().
uint64_t hash_of(const void* data, size_t bytes) {
  uint64_t h = 0xcbf29ce484222325;
  for (size_t i = 0; i < bytes; ++i) h = (h ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3;
  return h;
}
template <class T>
uint64_t hash_of(const std::vector<T>& values) {
  return hash_of(values.data(), values.size() * sizeof(T));
}

}  // namespace

SequentialSampler::SequentialSampler(int64_t n) : n_(n) { check_size("SequentialSampler", n); }
std::vector<int64_t> SequentialSampler::indices(uint64_t, int64_t) const {
  std::vector<int64_t> out(static_cast<size_t>(n_));
  std::iota(out.begin(), out.end(), 0);
  return out;
}
std::string SequentialSampler::describe() const { return fmt::format("sequential({})", n_); }

ShuffledSampler::ShuffledSampler(int64_t n) : n_(n) { check_size("ShuffledSampler", n); }
std::vector<int64_t> ShuffledSampler::indices(uint64_t seed, int64_t epoch) const {
  return epoch_order(n_, seed, epoch);
}
std::string ShuffledSampler::describe() const { return fmt::format("shuffled({})", n_); }

SubsetSampler::SubsetSampler(std::vector<int64_t> rows, bool shuffle) : rows_(std::move(rows)), shuffle_(shuffle) {}
std::vector<int64_t> SubsetSampler::indices(uint64_t seed, int64_t epoch) const {
  if (!shuffle_) return rows_;
  std::vector<int64_t> out = epoch_order(size(), seed, epoch);
  for (int64_t& i : out) i = rows_[static_cast<size_t>(i)];
  return out;
}
std::string SubsetSampler::describe() const {
  return fmt::format("{}subset({}, {:016x})", shuffle_ ? "shuffled " : "", rows_.size(), hash_of(rows_));
}

WeightedSampler::WeightedSampler(std::vector<double> weights, int64_t count, bool replacement)
    : weights_(std::move(weights)), count_(count), replacement_(replacement) {
  check_size("WeightedSampler", count);
  double sum = 0;
  int64_t possible = 0;
  for (double w : weights_) {
    DEFT_CHECK(w >= 0 && std::isfinite(w), ValueError,
               "WeightedSampler: weights must be finite and not negative, found {}", w);
    sums_.push_back(sum += w);
    possible += w > 0;
  }
  DEFT_CHECK(std::isfinite(sum), ValueError, "WeightedSampler: the sum of the weights overflows; scale them down");
  DEFT_CHECK(count == 0 || possible > 0, ValueError, "WeightedSampler: no weight is above 0, so nothing can be drawn");
  DEFT_CHECK(replacement || count <= possible, ValueError,
             "WeightedSampler: {} draws without replacement from {} samples of a weight above 0", count, possible);
}

std::vector<int64_t> WeightedSampler::indices(uint64_t seed, int64_t epoch) const {
  // This bit keeps these draws apart from those of epoch_order() and of the samples.
  PhiloxState draw{seed, static_cast<uint64_t>(epoch) | uint64_t{1} << 62};
  auto uniform = [&](size_t i) {
    auto words = philox(draw, i);
    return uniform_from_bits(words[0], words[1]);
  };
  std::vector<int64_t> out;
  out.reserve(static_cast<size_t>(count_));
  if (replacement_) {
    auto last = std::find_if(weights_.rbegin(), weights_.rend(), [](double w) { return w > 0; });
    auto most = weights_.rend() - last - 1;  // rounding of the product must not lead behind it
    for (size_t i = 0; i < static_cast<size_t>(count_); ++i) {
      auto at = std::upper_bound(sums_.begin(), sums_.end(), uniform(i) * sums_.back()) - sums_.begin();
      out.push_back(std::min<int64_t>(at, most));
    }
    return out;
  }
  // The draws of an exponential race: the one with rate w comes first with a chance in proportion to w.
  std::vector<std::pair<double, int64_t>> times;
  for (size_t i = 0; i < weights_.size(); ++i)
    if (weights_[i] > 0) times.emplace_back(-std::log1p(-uniform(i)) / weights_[i], static_cast<int64_t>(i));
  std::sort(times.begin(), times.end());
  for (size_t i = 0; i < static_cast<size_t>(count_); ++i) out.push_back(times[i].second);
  return out;
}
std::string WeightedSampler::describe() const {
  return fmt::format("weighted({} of {}, {}{:016x})", count_, weights_.size(), replacement_ ? "" : "each once, ",
                     hash_of(weights_));
}

BatchPlan::BatchPlan(std::vector<int64_t> indices, int64_t batch_size, bool drop_last) : indices_(std::move(indices)) {
  size_t n = indices_.size(), step = static_cast<size_t>(batch_size);
  if (drop_last) indices_.resize(n -= n % step);
  for (size_t at = 0; at < n;) ends_.push_back(at += std::min(step, n - at));
}

FixedBatchSampler::FixedBatchSampler(std::shared_ptr<const Sampler> sampler, int64_t batch_size, bool drop_last)
    : sampler_(std::move(sampler)), batch_size_(batch_size), drop_last_(drop_last) {
  DEFT_CHECK(sampler_, ValueError, "FixedBatchSampler: there is no sampler");
  DEFT_CHECK(batch_size >= 1, ValueError, "FixedBatchSampler: the batch size must be at least 1, found {}", batch_size);
}
BatchPlan FixedBatchSampler::batches(uint64_t seed, int64_t epoch) const {
  return BatchPlan(sampler_->indices(seed, epoch), batch_size_, drop_last_);
}
int64_t FixedBatchSampler::count(uint64_t, int64_t) const {
  int64_t n = sampler_->size();
  return n / batch_size_ + (!drop_last_ && n % batch_size_ != 0);
}
std::string FixedBatchSampler::describe() const {
  return fmt::format("{} in batches of {}{}", sampler_->describe(), batch_size_, drop_last_ ? ", whole ones only" : "");
}

}  // namespace deft::data
