#include "data/bucket_sampler.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "data/order.h"
#include "data/padding.h"

namespace deft::data {

namespace {

constexpr int64_t kNoLimit = INT64_MAX;
// Keeps the order of batches apart from that of samples.
constexpr uint64_t kBatchOrder = 0x9e3779b97f4a7c15;

int64_t limit_of(const BucketOptions& o) {
  if (!o.boundaries.empty()) return o.boundaries.back();
  return o.max_tokens > 0 ? o.max_tokens / o.multiple * o.multiple : kNoLimit;
}

void check(const BucketOptions& o) {
  DEFT_CHECK(o.rows >= 0 && o.max_tokens >= 0 && o.rows + o.max_tokens > 0, ValueError,
             "BucketSampler: {} rows and {} tokens per batch; give one of them, or both", o.rows, o.max_tokens);
  DEFT_CHECK(o.multiple > 0 && o.window_batches >= 0, ValueError,
             "BucketSampler: multiple {} must be positive and window_batches {} not negative", o.multiple,
             o.window_batches);
  int64_t before = 0;
  for (int64_t b : o.boundaries) {
    DEFT_CHECK(b > before && b % o.multiple == 0, ValueError,
               "BucketSampler: boundary {} after {}; boundaries ascend and are multiples of {}", b, before, o.multiple);
    DEFT_CHECK(o.max_tokens == 0 || b <= o.max_tokens, ValueError,
               "BucketSampler: a row of the bucket up to {} has more tokens than the {} of a batch", b, o.max_tokens);
    before = b;
  }
}

}  // namespace

uint64_t fingerprint(std::span<const int64_t> numbers) {
  uint64_t hash = 0xcbf29ce484222325;
  for (int64_t n : numbers) {
    hash = (hash ^ static_cast<uint64_t>(n)) * 0x9fb21c651e98df25;
    hash ^= hash >> 29;
  }
  return hash;
}

void check_lengths(const char* who, std::span<const int64_t> lengths, int64_t limit, TooLong too_long) {
  for (size_t i = 0; i < lengths.size(); ++i) {
    DEFT_CHECK(lengths[i] >= 0, ValueError, "{}: sample {} has {} tokens", who, i, lengths[i]);
    DEFT_CHECK(lengths[i] <= limit || too_long != TooLong::error, ValueError,
               "{}: sample {} has {} tokens, at most {} fit; raise the limit or choose what becomes of such samples "
               "with too_long",
               who, i, lengths[i], limit);
  }
}

BucketSampler::BucketSampler(std::vector<int64_t> lengths, BucketOptions options)
    : lengths_(std::move(lengths)), options_(std::move(options)) {
  check(options_);
  limit_ = limit_of(options_);
  DEFT_CHECK(limit_ > 0, ValueError, "BucketSampler: {} tokens per batch are less than one row of {}",
             options_.max_tokens, options_.multiple);
  check_lengths("BucketSampler", lengths_, limit_, options_.too_long);
  int64_t tokens = 0, n = static_cast<int64_t>(lengths_.size());
  for (int64_t& length : lengths_) {
    if (options_.too_long == TooLong::truncate) length = std::min(length, limit_);
    tokens += padded(length);
  }
  int64_t rows = options_.rows > 0 ? options_.rows : kNoLimit;
  if (options_.max_tokens > 0 && tokens > 0)
    rows = std::min(rows, std::max<int64_t>(1, options_.max_tokens * n / tokens));
  bool whole = options_.window_batches == 0 || rows >= n / options_.window_batches + 1;
  window_ = std::max<int64_t>(1, whole ? n : rows * options_.window_batches);
}

int64_t BucketSampler::padded(int64_t length) const {
  const auto& ends = options_.boundaries;
  auto end = std::lower_bound(ends.begin(), ends.end(), length);
  return end != ends.end() ? *end : data::padded_length({&length, 1}, options_.multiple);
}

int64_t BucketSampler::padded_length(std::span<const int64_t> batch) const {
  int64_t longest = 0;
  for (int64_t i : batch) longest = std::max(longest, lengths_[static_cast<size_t>(i)]);
  return padded(longest);
}

// No further row of this padded length fits.
bool BucketSampler::full(int64_t rows, int64_t length) const {
  if (options_.rows > 0 && rows >= options_.rows) return true;
  return options_.max_tokens > 0 && (rows + 1) * length > options_.max_tokens;
}

// 0 .. n - 1, in another order if that is wanted.
std::vector<int64_t> BucketSampler::order(size_t n, uint64_t seed, int64_t epoch) const {
  if (options_.shuffle) return epoch_order(static_cast<int64_t>(n), seed, epoch);
  std::vector<int64_t> all(n);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

BatchPlan BucketSampler::batches(uint64_t seed, int64_t epoch) const {
  BatchPlan plan;
  std::vector<int64_t> all = order(lengths_.size(), seed, epoch);
  if (options_.boundaries.empty()) {
    add_sorted(all, seed, epoch, plan);
  } else {
    add_buckets(all, plan);
  }
  return plan;
}

// Windows of about the same size, no larger than window(): sorted, cut into batches, and these shuffled.
void BucketSampler::add_sorted(std::vector<int64_t>& samples, uint64_t seed, int64_t epoch, BatchPlan& plan) const {
  int64_t n = static_cast<int64_t>(samples.size()), windows = (n + window_ - 1) / window_;
  int64_t step = windows == 0 ? 1 : (n + windows - 1) / windows;
  if (options_.rows > 0 && step < n)
    step = std::min(window_, (step + options_.rows - 1) / options_.rows * options_.rows);
  std::vector<std::span<const int64_t>> cut;
  for (int64_t begin = 0; begin < n; begin += step) {
    std::span<int64_t> window(samples.data() + begin, static_cast<size_t>(std::min(step, n - begin)));
    std::stable_sort(window.begin(), window.end(), [&](int64_t a, int64_t b) {
      return lengths_[static_cast<size_t>(a)] < lengths_[static_cast<size_t>(b)];
    });
    cut.clear();
    for (size_t from = 0; from < window.size();) {
      size_t to = from + 1;
      while (to < window.size() && !full(static_cast<int64_t>(to - from), padded_length(window.subspan(to, 1)))) ++to;
      cut.push_back(window.subspan(from, to - from));
      from = to;
    }
    bool ended = begin + step >= n && !full(static_cast<int64_t>(cut.back().size()), padded_length(cut.back()));
    if (ended && options_.drop_last) cut.pop_back();
    for (int64_t i : order(cut.size(), seed ^ kBatchOrder ^ static_cast<uint64_t>(begin), epoch))
      plan.add(cut[static_cast<size_t>(i)]);
  }
}

// Samples wait in their buckets until these are full, or until the oldest has let window() others pass.
void BucketSampler::add_buckets(const std::vector<int64_t>& order, BatchPlan& plan) const {
  struct Bucket {
    std::vector<int64_t> samples;
    int64_t since = 0;  // place of the first
  };
  std::vector<Bucket> buckets(options_.boundaries.size());
  auto emit = [&](Bucket& b) {
    plan.add(b.samples);
    b.samples.clear();
  };
  for (int64_t place = 0; place < static_cast<int64_t>(order.size()); ++place) {
    for (Bucket& b : buckets)
      if (!b.samples.empty() && place - b.since >= window_) emit(b);
    const int64_t sample = order[static_cast<size_t>(place)], length = lengths_[static_cast<size_t>(sample)];
    if (length > limit_) {
      plan.add({&sample, 1});
      continue;
    }
    auto end = std::lower_bound(options_.boundaries.begin(), options_.boundaries.end(), length);
    Bucket& b = buckets[static_cast<size_t>(end - options_.boundaries.begin())];
    if (b.samples.empty()) b.since = place;
    b.samples.push_back(sample);
    if (full(static_cast<int64_t>(b.samples.size()), *end)) emit(b);
  }
  if (options_.drop_last) return;
  for (Bucket& b : buckets)
    if (!b.samples.empty()) emit(b);
}

std::string BucketSampler::describe() const {
  return fmt::format("buckets of {} samples {:016x}: rows {}, tokens {}, boundaries [{}], multiple {}, window {}{}{}{}",
                     lengths_.size(), fingerprint(lengths_), options_.rows, options_.max_tokens,
                     fmt::join(options_.boundaries, ", "), options_.multiple, window_,
                     options_.shuffle ? ", shuffled" : "", options_.drop_last ? ", whole batches" : "",
                     options_.too_long == TooLong::alone ? ", long ones alone" : "");
}

}  // namespace deft::data
