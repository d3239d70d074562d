#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/cpu/image/image_resample.h"

namespace deft::cpu {

namespace {

constexpr int kOne = 1 << 14;

double support_of(ResampleFilter filter) { return filter == ResampleFilter::bilinear ? 1 : 2; }

double value_of(ResampleFilter filter, double x) {
  x = std::abs(x);
  if (filter == ResampleFilter::bilinear) return std::max(0.0, 1 - x);
  if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
  return x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;
}

// The source pixels under the filter of one output.
struct Window {
  double center, scale;
  int64_t low, high;
};
Window window_of(ResampleFilter filter, const ResampleSpan& s, int64_t i) {
  Window w;
  w.center = s.start + (static_cast<double>(i) + 0.5) * s.step;
  w.scale = std::max(s.step, 1.0);
  double reach = support_of(filter) * w.scale;
  auto pixel = [](double at) { return static_cast<int64_t>(std::floor(at + 0.5)); };
  w.low = std::clamp(pixel(w.center - reach), s.low, s.high - 1);
  w.high = std::clamp(pixel(w.center + reach), w.low + 1, s.high);
  return w;
}

// Weights as multiples of 2^-14 that sum to exactly 2^14: rounding errors are carried on to the next weight.
void fill_weights(ResampleFilter filter, const Window& w, int16_t* out) {
  double sum = 0;
  auto value = [&](int64_t k) { return value_of(filter, (static_cast<double>(k) + 0.5 - w.center) / w.scale); };
  for (int64_t k = w.low; k < w.high; ++k) sum += value(k);
  if (!(sum > 1e-6)) {  // outside of the source: the nearest pixel
    out[0] = kOne;
    return;
  }
  double exact = 0;
  int64_t given = 0;
  for (int64_t k = w.low; k < w.high; ++k) {
    exact += value(k) * kOne / sum;
    int64_t until = k + 1 == w.high ? kOne : static_cast<int64_t>(std::floor(exact + 0.5));
    out[k - w.low] = static_cast<int16_t>(until - given);
    given = until;
  }
}

}  // namespace

void plan_resample(ResampleFilter filter, const ResampleSpan& span, ResampleAxis& axis) {
  DEFT_ASSERT(span.low < span.high && span.count > 0 && span.step > 0);
  axis.count = span.count;
  axis.taps = 1;
  axis.low = span.high;
  axis.high = span.low;
  for (int64_t i = 0; i < span.count; ++i) {
    Window w = window_of(filter, span, i);
    axis.taps = std::max(axis.taps, w.high - w.low);
    axis.low = std::min(axis.low, w.low);
    axis.high = std::max(axis.high, w.high);
  }
  axis.stride = (axis.taps + 3) / 4 * 4;
  axis.first.resize(static_cast<size_t>(span.count));
  axis.weights.assign(static_cast<size_t>(span.count * axis.stride), 0);
  for (int64_t i = 0; i < span.count; ++i) {
    Window w = window_of(filter, span, i);
    int64_t o = span.reversed ? span.count - 1 - i : i;
    int64_t first = std::min(w.low, axis.high - axis.taps);  // weights before w.low stay 0
    axis.first[static_cast<size_t>(o)] = static_cast<int32_t>(first);
    fill_weights(filter, w, axis.weights.data() + o * axis.stride + (w.low - first));
  }
}

}  // namespace deft::cpu
