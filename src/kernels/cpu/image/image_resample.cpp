#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/image/image_resample.cpp"
#include "hwy/foreach_target.h"
//
#include <algorithm>

#include "hwy/highway.h"
#include "kernels/cpu/image/image_resample.h"

#ifndef DEFT_KERNELS_CPU_IMAGE_RESAMPLE_SCRATCH_
#define DEFT_KERNELS_CPU_IMAGE_RESAMPLE_SCRATCH_
namespace deft::cpu {
// Sizes of the intermediate rows, in values: whole vectors, then zeros for the weights of 0 beyond the last pixel.
struct ResampleScratch {
  explicit ResampleScratch(const ResampleCall& call)
      : line(((call.columns->high - call.columns->low) * call.channels + 7) / 8 * 8),
        excess(call.columns->stride * call.channels),
        result(call.columns->count * call.channels) {}
  int64_t line, excess, result;
  // Four lines, the same interleaved, and four rows of bytes.
  int64_t words() const { return kResampleRows * (2 * line + excess) + (kResampleRows * result + 1) / 2; }
};
}  // namespace deft::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int kColumnShift = 8, kRowShift = 20;  // 2^-14 to 2^-6; 2^-6 * 2^-14 to 1

// In range: absolute weights of a cubic sum to less than 1.5, so sums stay below 255 * 64 * 1.5.
inline int16_t to_word(int32_t sum) { return static_cast<int16_t>((sum + (1 << (kColumnShift - 1))) >> kColumnShift); }
inline int32_t product(int16_t weight, uint8_t value) { return weight * static_cast<int16_t>(value); }

// One row of the intermediate image: `n` sums over source rows. Compilers use widening multiplies for these loops.
template <int kTaps>
void sum_few_columns(const uint8_t* HWY_RESTRICT from, int64_t stride, const int16_t* HWY_RESTRICT weights, int64_t n,
                     int16_t* HWY_RESTRICT out) {
  int16_t w[kTaps];
  for (int k = 0; k < kTaps; ++k) w[k] = weights[k];
  for (int64_t x = 0; x < n; ++x) {
    int32_t sum = product(w[0], from[x]);
#pragma GCC unroll 8
    for (int k = 1; k < kTaps; ++k) sum += product(w[k], from[k * stride + x]);
    out[x] = to_word(sum);
  }
}

void sum_many_columns(const uint8_t* HWY_RESTRICT from, int64_t stride, const int16_t* HWY_RESTRICT weights,
                      int64_t taps, int64_t n, int16_t* HWY_RESTRICT out) {
  constexpr int64_t kBlock = 256;
  int32_t sums[kBlock];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = std::min(kBlock, n - begin);
    std::fill(sums, sums + count, 0);
    for (int64_t k = 0; k < taps; ++k) {
      const uint8_t* HWY_RESTRICT p = from + k * stride + begin;
      const int16_t w = weights[k];
      for (int64_t x = 0; x < count; ++x) sums[x] += product(w, p[x]);
    }
    for (int64_t x = 0; x < count; ++x) out[begin + x] = to_word(sums[x]);
  }
}

void sum_columns(const uint8_t* from, int64_t stride, const int16_t* weights, int64_t taps, int64_t n, int16_t* out) {
  switch (taps) {
    case 1:
      return sum_few_columns<1>(from, stride, weights, n, out);
    case 2:
      return sum_few_columns<2>(from, stride, weights, n, out);
    case 3:
      return sum_few_columns<3>(from, stride, weights, n, out);
    case 4:
      return sum_few_columns<4>(from, stride, weights, n, out);
    case 5:
      return sum_few_columns<5>(from, stride, weights, n, out);
    case 6:
      return sum_few_columns<6>(from, stride, weights, n, out);
    default:
      return sum_many_columns(from, stride, weights, taps, n, out);
  }
}

#if HWY_TARGET == HWY_SCALAR

void interleave_rows(const int16_t* from, int64_t stride, int64_t n, int16_t* out) {
  for (int64_t x = 0; x < n; ++x)
    for (int64_t r = 0; r < kResampleRows; ++r) out[kResampleRows * x + r] = from[r * stride + x];
}

void split_rows(const uint8_t* from, int64_t n, int64_t count, uint8_t* out, int64_t stride) {
  for (int64_t x = 0; x < n; ++x)
    for (int64_t r = 0; r < count; ++r) out[r * stride + x] = from[kResampleRows * x + r];
}

void sum_rows(const int16_t* from, const ResampleAxis& axis, int64_t channels, uint8_t* out) {
  const int64_t lanes = channels * kResampleRows;
  for (int64_t x = 0; x < axis.count; ++x) {
    const int16_t* p = from + (axis.first[static_cast<size_t>(x)] - axis.low) * lanes;
    const int16_t* w = axis.weights.data() + x * axis.stride;
    for (int64_t c = 0; c < lanes; ++c) {
      int32_t sum = 1 << (kRowShift - 1);
      for (int64_t k = 0; k < axis.taps; ++k) sum += w[k] * p[k * lanes + c];
      out[x * lanes + c] = static_cast<uint8_t>(std::clamp(sum >> kRowShift, 0, 255));
    }
  }
}

#else

using Sum = hn::FixedTag<int32_t, 4>;  // one lane per row
using Words = hn::Rebind<int16_t, Sum>;
using SumVec = hn::Vec<Sum>;
using WordVec = hn::Vec<Words>;

void interleave_rows(const int16_t* from, int64_t stride, int64_t n, int16_t* out) {
  const hn::FixedTag<int16_t, 8> d;
  for (int64_t x = 0; x < n; x += 8)  // rows have room for whole vectors
    hn::StoreInterleaved4(hn::LoadU(d, from + x), hn::LoadU(d, from + stride + x), hn::LoadU(d, from + 2 * stride + x),
                          hn::LoadU(d, from + 3 * stride + x), d, out + kResampleRows * x);
}

void split_rows(const uint8_t* from, int64_t n, int64_t count, uint8_t* out, int64_t stride) {
  const hn::FixedTag<uint8_t, 16> d;
  int64_t x = 0;
  for (; count == kResampleRows && x + 16 <= n; x += 16) {
    hn::Vec<decltype(d)> r0, r1, r2, r3;
    hn::LoadInterleaved4(d, from + kResampleRows * x, r0, r1, r2, r3);
    hn::StoreU(r0, d, out + x);
    hn::StoreU(r1, d, out + stride + x);
    hn::StoreU(r2, d, out + 2 * stride + x);
    hn::StoreU(r3, d, out + 3 * stride + x);
  }
  for (; x < n; ++x)
    for (int64_t r = 0; r < count; ++r) out[r * stride + x] = from[kResampleRows * x + r];
}

// sum + x * (lane kLane of w)
template <int kLane>
HWY_INLINE SumVec add_product(SumVec sum, WordVec x, WordVec w) {
#if HWY_TARGET == HWY_NEON
  return SumVec(vmlal_lane_s16(sum.raw, x.raw, w.raw, kLane));
#else
  const Sum d;
  return hn::Add(sum, hn::Mul(hn::PromoteTo(d, x), hn::Broadcast<kLane>(hn::PromoteTo(d, w))));
#endif
}

// Four rows at a time; a pixel is one vector per channel.
template <int kChannels>
struct PixelSum {
  static constexpr int64_t kLanes = kChannels * kResampleRows;
  SumVec s0, s1, s2;
  HWY_INLINE PixelSum() : s0(hn::Set(Sum(), 1 << (kRowShift - 1))), s1(s0), s2(s0) {}
  template <int kLane>
  HWY_INLINE void add(const int16_t* p, WordVec w) {
    const Words d;
    p += kLane * kLanes;
    s0 = add_product<kLane>(s0, hn::LoadU(d, p), w);
    if constexpr (kChannels == 3) {
      s1 = add_product<kLane>(s1, hn::LoadU(d, p + 4), w);
      s2 = add_product<kLane>(s2, hn::LoadU(d, p + 8), w);
    }
  }
  HWY_INLINE void store(uint8_t* out) const {
    const Words words;
    const hn::Rebind<uint8_t, Sum> bytes;
    if constexpr (kChannels == 3) {
      const hn::FixedTag<int16_t, 8> both;
      const hn::FixedTag<uint8_t, 8> both_bytes;
      const auto pair = hn::Combine(both, hn::DemoteTo(words, hn::ShiftRight<kRowShift>(s1)),
                                    hn::DemoteTo(words, hn::ShiftRight<kRowShift>(s0)));
      hn::StoreU(hn::DemoteTo(both_bytes, pair), both_bytes, out);
      hn::StoreU(hn::DemoteTo(bytes, hn::ShiftRight<kRowShift>(s2)), bytes, out + 8);
    } else {
      hn::StoreU(hn::DemoteTo(bytes, hn::ShiftRight<kRowShift>(s0)), bytes, out);
    }
  }
};

// The first kTaps of up to four weights.
template <int kTaps, int kChannels>
HWY_INLINE void add_taps(PixelSum<kChannels>& sum, const int16_t* p, const int16_t* w) {
  const WordVec weights = hn::LoadU(Words(), w);
  sum.template add<0>(p, weights);
  if constexpr (kTaps > 1) sum.template add<1>(p, weights);
  if constexpr (kTaps > 2) sum.template add<2>(p, weights);
  if constexpr (kTaps > 3) sum.template add<3>(p, weights);
}

template <int kChannels, int kTaps>  // kTaps 0: any number
void sum_rows_of(const int16_t* HWY_RESTRICT from, const ResampleAxis& axis, uint8_t* HWY_RESTRICT out) {
  constexpr int64_t kLanes = PixelSum<kChannels>::kLanes;
  const int32_t* HWY_RESTRICT first = axis.first.data();
  const int16_t* HWY_RESTRICT w = axis.weights.data();
  const int64_t count = axis.count, stride = axis.stride;
  for (int64_t x = 0; x < count; ++x, w += stride) {
    const int16_t* p = from + (first[x] - axis.low) * kLanes;
    PixelSum<kChannels> sum;
    if constexpr (kTaps == 0) {
      for (int64_t k = 0; k < stride; k += 4) add_taps<4>(sum, p + k * kLanes, w + k);
    } else {
      add_taps<std::min(kTaps, 4)>(sum, p, w);
      if constexpr (kTaps > 4) add_taps<kTaps - 4>(sum, p + 4 * kLanes, w + 4);
    }
    sum.store(out + x * kLanes);
  }
}

void sum_rows(const int16_t* from, const ResampleAxis& axis, int64_t channels, uint8_t* out) {
  if (channels == 1) return sum_rows_of<1, 0>(from, axis, out);
  switch (axis.taps) {
    case 2:
      return sum_rows_of<3, 2>(from, axis, out);
    case 3:
      return sum_rows_of<3, 3>(from, axis, out);
    case 4:
      return sum_rows_of<3, 4>(from, axis, out);
    case 5:
      return sum_rows_of<3, 5>(from, axis, out);
    case 6:
      return sum_rows_of<3, 6>(from, axis, out);
    default:
      return sum_rows_of<3, 0>(from, axis, out);
  }
}

#endif

void resample(const ResampleCall& call, int64_t y, int64_t count, int16_t* scratch, uint8_t* out, int64_t stride) {
  const ResampleAxis &rows = *call.rows, &columns = *call.columns;
  const ResampleScratch sizes(call);
  int16_t *lines = scratch, *sums = lines + kResampleRows * sizes.line;
  auto* bytes = reinterpret_cast<uint8_t*>(sums + kResampleRows * (sizes.line + sizes.excess));
  const int64_t n = (columns.high - columns.low) * call.channels;
  for (int64_t r = 0; r < count; ++r) {
    const uint8_t* from = call.pixels + (rows.first[static_cast<size_t>(y + r)] - rows.low) * call.stride;
    int16_t* line = lines + r * sizes.line;
    sum_columns(from, call.stride, rows.weights.data() + (y + r) * rows.stride, rows.taps, n, line);
    std::fill(line + n, line + sizes.line, int16_t{0});
  }
  std::fill(lines + count * sizes.line, lines + kResampleRows * sizes.line, int16_t{0});
  interleave_rows(lines, sizes.line, sizes.line, sums);
  std::fill_n(sums + kResampleRows * sizes.line, kResampleRows * sizes.excess, int16_t{0});
  sum_rows(sums, columns, call.channels, bytes);
  split_rows(bytes, columns.count * call.channels, count, out, stride);
}

}  // namespace
}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft::cpu {
HWY_EXPORT(resample);

int64_t resample_scratch_words(const ResampleCall& call) { return ResampleScratch(call).words(); }

void resample_rows(const ResampleCall& call, int64_t y, int64_t count, int16_t* scratch, uint8_t* out, int64_t stride) {
  HWY_DYNAMIC_DISPATCH(resample)(call, y, count, scratch, out, stride);
}

}  // namespace deft::cpu
#endif  // HWY_ONCE
