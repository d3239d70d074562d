#include "data/length_report.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace deft::data {
namespace {

BatchPlan plan_of(const std::vector<std::vector<int64_t>>& batches) {
  BatchPlan plan;
  for (const auto& b : batches) plan.add(b);
  return plan;
}

TEST(LengthReport, CountsTokensPaddingAndShapes) {
  std::vector<int64_t> lengths{1, 2, 3, 4, 5, 6};
  LengthReport r = report_lengths(plan_of({{0, 1}, {2, 3}, {5, 4}, {3, 3}}), lengths);
  EXPECT_EQ(r.samples, 8);
  EXPECT_EQ(r.batches, 4);
  EXPECT_EQ(r.tokens, 3 + 7 + 11 + 8);
  EXPECT_EQ(r.padded_tokens, 4 + 8 + 12 + 8);
  EXPECT_EQ(r.shapes, 3);
  EXPECT_EQ(r.least_tokens, 4);
  EXPECT_EQ(r.most_tokens, 12);
  EXPECT_DOUBLE_EQ(r.mean_tokens(), 8);
  EXPECT_DOUBLE_EQ(r.waste_percent(), 100.0 * 3 / 32);
  EXPECT_EQ(r.text(), "8 samples in 4 batches of 4 to 12 tokens (8 on average), 3 shapes, 9.4 % padding");
}

TEST(LengthReport, PaddedToWhatIsAsked) {
  std::vector<int64_t> lengths{1, 2, 3};
  LengthReport r = report_lengths(plan_of({{0, 1}, {2}}), lengths, [](auto) { return 8; });
  EXPECT_EQ(r.padded_tokens, 24);
  EXPECT_EQ(r.shapes, 2);
  EXPECT_THROW(report_lengths(plan_of({{3}}), lengths), IndexError);
  EXPECT_EQ(report_lengths({}, lengths).waste_percent(), 0);
}

TEST(LengthReport, PackedRows) {
  std::vector<int64_t> lengths{4, 4, 6, 2};
  LengthReport r = report_packing(plan_of({{0, 1, 2, 3}}), lengths, 8);
  EXPECT_EQ(r.padded_tokens, 16);
  EXPECT_DOUBLE_EQ(r.waste_percent(), 0);
}

TEST(LengthHistogram, CountsAndPlots) {
  std::vector<int64_t> lengths{1, 2, 2, 3, 9};
  LengthHistogram h = length_histogram(lengths, 4);
  EXPECT_EQ(h.width, 3);
  EXPECT_EQ(h.counts, (std::vector<int64_t>{3, 1, 0, 1}));
  EXPECT_EQ(h.percentile(0), 1);
  EXPECT_EQ(h.percentile(50), 2);
  EXPECT_EQ(h.percentile(80), 3);
  EXPECT_EQ(h.percentile(100), 9);
  EXPECT_EQ(h.plot(6),
            " 0 to  2  3  ######\n"
            " 3 to  5  1  ##\n"
            " 6 to  8  0\n"
            " 9 to 11  1  ##\n"
            "5 samples, 3.4 tokens on average, half up to 2, 99 % up to 9, longest 9\n");
  EXPECT_EQ(length_histogram({}).plot(), "no samples\n");
}

// Sample i has a label and i % 7 + 1 words of 2 numbers.
class Words : public Dataset {
 public:
  int64_t size() const override { return 100; }
  const std::vector<Field>& fields() const override { return fields_; }
  void get(int64_t index, SampleWriter& out) const override {
    *out.fixed<int64_t>(0) = index;
    int64_t n = index % 7 + 1;
    float* p = out.varying<float>(1, {2, n});
    for (int64_t i = 0; i < 2 * n; ++i) p[i] = 0;
  }

 private:
  std::vector<Field> fields_{{"label", DType::i64, {}, 0}, {"words", DType::f32, {2, -1}, 0}};
};

TEST(MeasureLengths, OfAllSamples) {
  std::vector<int64_t> lengths = measure_lengths(Words(), "words");
  ASSERT_EQ(lengths.size(), 100u);
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(lengths[static_cast<size_t>(i)], i % 7 + 1);
  EXPECT_THROW(measure_lengths(Words(), "label"), ValueError);
  EXPECT_THROW(measure_lengths(Words(), "none"), ValueError);
}

}  // namespace
}  // namespace deft::data
