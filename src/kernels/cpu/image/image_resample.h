// Resizing of 8-bit images, antialiased: each value is a weighted mean of all source pixels under a filter that is as
// wide as the reduction.
//
// Arithmetic: integers only, so that every SIMD width and machine gives the same bits. Weights are multiples of 2^-14
// and sum to exactly 1. Columns first: u8 times weights, rounded to multiples of 2^-6; then rows: those times weights,
// rounded to u8 and held to 0..255. With n and m weights per value in the two directions a bilinear result is within
// 0.5 + 2^-7 (1 + n + m) of exact arithmetic: one rounding each, and 255 / 2 * 2^-14 per weight, since the sum is
// exact. For bicubic, whose absolute weights sum to more than 1, what is beyond 0.5 counts 1.5 times.
#pragma once

#include <cstdint>
#include <vector>

namespace deft::cpu {

enum class ResampleFilter : uint8_t { bilinear, bicubic };  // a triangle; Keys' cubic with a = -0.5

// Where the outputs of one axis lie in the source: output i is around start + (i + 0.5) * step.
struct ResampleSpan {
  int64_t low, high;  // source pixels that may be read
  double start, step;
  int64_t count;          // outputs
  bool reversed = false;  // the last output first: a flip for free
};

// Output i is the sum over k of weights[i * stride + k] / 2^14 times source pixel first[i] + k, k < taps.
struct ResampleAxis {
  std::vector<int32_t> first;
  std::vector<int16_t> weights;
  int64_t taps = 0, count = 0;
  int64_t stride = 0;         // taps filled up with zeros to groups of four
  int64_t low = 0, high = 0;  // source pixels that are read
};
// Memory of `axis` is reused.
void plan_resample(ResampleFilter filter, const ResampleSpan& span, ResampleAxis& axis);

// Source rows of interleaved channels; (x, y) = (columns.low, rows.low) is the first pixel.
struct ResampleCall {
  const uint8_t* pixels;
  int64_t stride;    // bytes from row to row
  int64_t channels;  // 1 or 3
  const ResampleAxis *columns, *rows;
};
// Rows are made four at a time.
inline constexpr int64_t kResampleRows = 4;
// Length of the scratch memory of resample_rows().
int64_t resample_scratch_words(const ResampleCall& call);
// Rows y .. y + count - 1 of the result, count at most kResampleRows: columns.count * channels bytes each, `stride`
// bytes apart.
void resample_rows(const ResampleCall& call, int64_t y, int64_t count, int16_t* scratch, uint8_t* out, int64_t stride);

}  // namespace deft::cpu
