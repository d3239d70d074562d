#include "data/length_report.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/check.h"
#include "data/packing.h"
#include "runtime/parallel.h"

namespace deft::data {

namespace {

// Records the shape of one field and discards the rest.
class LengthWriter : public SampleWriter {
 public:
  LengthWriter(const std::vector<Field>& fields, size_t field, SampleRng rng)
      : fields_(fields), field_(field), rng_(rng) {}
  SampleRng& rng() override { return rng_; }
  int64_t length = -1;

 protected:
  void* fixed_bytes(int field) override { return memory(field, fields_[static_cast<size_t>(field)].shape); }
  void* varying_bytes(int field, const Shape& shape) override {
    if (static_cast<size_t>(field) == field_) {
      const Shape& declared = fields_[field_].shape;
      for (int i = declared.size() - 1; i >= 0; --i)
        if (declared[i] == -1) length = shape[i];
    }
    return memory(field, shape);
  }
  StageTimes& times() override { return times_; }

 private:
  void* memory(int field, const Shape& shape) {
    const DType dtype = fields_[static_cast<size_t>(field)].dtype;
    memory_.emplace_back(static_cast<size_t>(checked_numel(shape, dtype)) * size_of(dtype) + 1);
    return memory_.back().data();
  }

  const std::vector<Field>& fields_;
  size_t field_;
  SampleRng rng_;
  StageTimes times_;
  std::vector<std::vector<char>> memory_;
};

class ReportBuilder {
 public:
  void add(int64_t samples, int64_t tokens, int64_t rows, int64_t length) {
    const int64_t padded = rows * length;
    report_.least_tokens = report_.batches == 0 ? padded : std::min(report_.least_tokens, padded);
    report_.most_tokens = std::max(report_.most_tokens, padded);
    report_.samples += samples;
    report_.tokens += tokens;
    report_.padded_tokens += padded;
    ++report_.batches;
    shapes_.insert({rows, length});
  }
  LengthReport finish() {
    report_.shapes = static_cast<int64_t>(shapes_.size());
    return report_;
  }

 private:
  LengthReport report_;
  std::set<std::pair<int64_t, int64_t>> shapes_;
};

std::vector<int64_t> lengths_of(std::span<const int64_t> batch, std::span<const int64_t> lengths) {
  std::vector<int64_t> out;
  for (int64_t i : batch) {
    DEFT_CHECK(i >= 0 && i < static_cast<int64_t>(lengths.size()), IndexError,
               "length report: the plan has sample {}, there are lengths of {}", i, lengths.size());
    out.push_back(lengths[static_cast<size_t>(i)]);
  }
  return out;
}

int64_t sum(std::span<const int64_t> numbers) { return std::accumulate(numbers.begin(), numbers.end(), int64_t{0}); }

}  // namespace

std::vector<int64_t> measure_lengths(const Dataset& dataset, const std::string& field, uint64_t seed) {
  const std::vector<Field>& fields = dataset.fields();
  auto it = std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.name == field; });
  DEFT_CHECK(it != fields.end(), ValueError, "measure_lengths: the data set has no field {}", field);
  DEFT_CHECK(std::count(it->shape.begin(), it->shape.end(), -1) > 0, ValueError,
             "measure_lengths: field {} has the same shape {} in every sample", field, to_string(it->shape));
  std::vector<int64_t> lengths(static_cast<size_t>(dataset.size()));
  const auto at = static_cast<size_t>(it - fields.begin());
  parallel_for(0, dataset.size(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      LengthWriter writer(fields, at, SampleRng(seed, 0, i));
      dataset.get(i, writer);
      DEFT_CHECK(writer.length >= 0, ValueError, "measure_lengths: sample {} ({}) has no field {}", i,
                 dataset.describe(i), field);
      lengths[static_cast<size_t>(i)] = writer.length;
    }
  });
  return lengths;
}

double LengthReport::waste_percent() const {
  return padded_tokens == 0 ? 0 : 100 * (1 - static_cast<double>(tokens) / static_cast<double>(padded_tokens));
}
double LengthReport::mean_tokens() const {
  return batches == 0 ? 0 : static_cast<double>(padded_tokens) / static_cast<double>(batches);
}
std::string LengthReport::text() const {
  return fmt::format("{} samples in {} batches of {} to {} tokens ({:.0f} on average), {} shape{}, {:.1f} % padding",
                     samples, batches, least_tokens, most_tokens, mean_tokens(), shapes, shapes == 1 ? "" : "s",
                     waste_percent());
}

LengthReport report_lengths(const BatchPlan& plan, std::span<const int64_t> lengths, const PaddedLength& padded) {
  ReportBuilder out;
  for (int64_t b = 0; b < plan.size(); ++b) {
    std::vector<int64_t> of = lengths_of(plan[b], lengths);
    auto rows = static_cast<int64_t>(of.size());
    if (rows == 0) continue;
    out.add(rows, sum(of), rows, padded ? padded(plan[b]) : *std::max_element(of.begin(), of.end()));
  }
  return out.finish();
}

LengthReport report_packing(const BatchPlan& plan, std::span<const int64_t> lengths, int64_t capacity) {
  ReportBuilder out;
  for (int64_t b = 0; b < plan.size(); ++b) {
    std::vector<int64_t> of = lengths_of(plan[b], lengths);
    out.add(static_cast<int64_t>(of.size()), sum(of), PackPlan(of, capacity).rows(), capacity);
  }
  return out.finish();
}

LengthHistogram length_histogram(std::span<const int64_t> lengths, int bins) {
  DEFT_CHECK(bins > 0, ValueError, "length_histogram: {} bins", bins);
  LengthHistogram h;
  h.sorted.assign(lengths.begin(), lengths.end());
  std::sort(h.sorted.begin(), h.sorted.end());
  h.samples = static_cast<int64_t>(h.sorted.size());
  if (h.samples == 0) return h;
  h.shortest = h.sorted.front();
  h.longest = h.sorted.back();
  h.mean = static_cast<double>(sum(h.sorted)) / static_cast<double>(h.samples);
  h.width = (h.longest - h.shortest) / bins + 1;
  h.first = h.shortest / h.width * h.width;
  h.counts.resize(static_cast<size_t>((h.longest - h.first) / h.width + 1));
  for (int64_t length : h.sorted) ++h.counts[static_cast<size_t>((length - h.first) / h.width)];
  return h;
}

int64_t LengthHistogram::percentile(double p) const {
  DEFT_CHECK(samples > 0 && p >= 0 && p <= 100, ValueError, "LengthHistogram: percentile {} of {} lengths", p, samples);
  auto rank = static_cast<int64_t>(std::ceil(p / 100 * static_cast<double>(samples)));
  return sorted[static_cast<size_t>(std::max<int64_t>(rank, 1) - 1)];
}

std::string LengthHistogram::plot(int columns) const {
  if (samples == 0) return "no samples\n";
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  const size_t digits = std::to_string(longest + width).size(), count_digits = std::to_string(most).size();
  std::string out;
  for (size_t i = 0; i < counts.size(); ++i) {
    const int64_t from = first + static_cast<int64_t>(i) * width, to = from + width - 1;
    const double part = static_cast<double>(counts[i]) / static_cast<double>(most);
    const auto bar = static_cast<size_t>(std::ceil(part * columns));
    out += fmt::format("{:>{}} to {:>{}}  {:>{}}{}{}\n", from, digits, to, digits, counts[i], count_digits,
                       bar > 0 ? "  " : "", std::string(bar, '#'));
  }
  out += fmt::format("{} samples, {:.1f} tokens on average, half up to {}, 99 % up to {}, longest {}\n", samples, mean,
                     percentile(50), percentile(99), longest);
  return out;
}

}  // namespace deft::data
