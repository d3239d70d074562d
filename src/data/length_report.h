// What lengths a data set has, and what its batches cost: padding, shapes, tokens.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/sampler.h"

namespace deft::data {

// The size of every sample along the first varying dimension of a field. Reads the whole data set, on all threads; the
// chance a sample may use is that of epoch 0.
std::vector<int64_t> measure_lengths(const Dataset& dataset, const std::string& field, uint64_t seed = 0);

struct LengthReport {
  int64_t samples = 0, batches = 0;
  int64_t tokens = 0, padded_tokens = 0;      // of the samples, and with what fills them up
  int64_t shapes = 0;                         // distinct (rows, padded length)
  int64_t least_tokens = 0, most_tokens = 0;  // padded, of a batch
  double waste_percent() const;               // of the padded tokens
  double mean_tokens() const;                 // padded, per batch
  // "31102 samples in 420 batches of 1968 to 2048 tokens (2034 on average), 97 shapes, 1.9 % padding".
  std::string text() const;
};

// lengths[i]: tokens of sample i. `padded` gives the padded length of a batch; without it, as long as its longest.
using PaddedLength = std::function<int64_t(std::span<const int64_t> batch)>;
LengthReport report_lengths(const BatchPlan& plan, std::span<const int64_t> lengths, const PaddedLength& padded = {});
// The same for rows of PackPlan.
LengthReport report_packing(const BatchPlan& plan, std::span<const int64_t> lengths, int64_t capacity);

struct LengthHistogram {
  int64_t samples = 0, shortest = 0, longest = 0;
  double mean = 0;
  int64_t first = 0, width = 1;  // bin i counts lengths from first + i * width to below first + (i + 1) * width
  std::vector<int64_t> counts;
  int64_t percentile(double p) const;  // the length that p percent do not exceed; from the lengths, not the bins
  // One line per bin, with bars of at most `columns` characters.
  std::string plot(int columns = 50) const;

  std::vector<int64_t> sorted;
};
LengthHistogram length_histogram(std::span<const int64_t> lengths, int bins = 16);

}  // namespace deft::data
