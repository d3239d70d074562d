// Padded rows of x for grouped convolutions, see conv_groups.h. The input of some output rows at a time is copied with
// its padding, by blocks of groups; each row once, over one that is no longer read. Compiled per target.
#if defined(DEFT_KERNELS_CPU_CONV_GROUPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEFT_KERNELS_CPU_CONV_GROUPS_INL_H_
#undef DEFT_KERNELS_CPU_CONV_GROUPS_INL_H_
#else
#define DEFT_KERNELS_CPU_CONV_GROUPS_INL_H_
#endif

#include "kernels/cpu/conv/conv_groups.h"
#include "kernels/cpu/norm/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {

using detail::GroupBlocks;
using detail::kBlock;
using detail::Window;

// Vectors of a block.
inline constexpr int kBlockParts = kBlock / static_cast<int>(Vec<float>::kLanes);
inline constexpr int64_t kBandPositions = 64;  // at a time, at most; or a row

// Vector `part` of a block: kTogether values from `from` on, repeated.
template <int kTogether>
inline Vec<float> repeat(const float* from, [[maybe_unused]] int part) {
  using V = Vec<float>;
  if constexpr (kTogether == 1) {
    return V(*from);
  } else if constexpr (V::kLanes == 1) {
    return V(from[part % kTogether]);
  } else if constexpr (kTogether == 2) {
    const hn::Repartition<uint64_t, V::D> d;
    uint64_t two;
    std::memcpy(&two, from, sizeof(two));
    return V(hn::BitCast(V::D(), hn::Set(d, two)));
  } else {
    return V(hn::LoadDup128(V::D(), from));
  }
}

// Note [Lanes of groups]: an order of the values of a block.
class LaneOrder {
 public:
  // Channel by channel, from `channels` of each of `together` groups.
  static LaneOrder by_channel(int64_t together, int64_t channels) {
    LaneOrder order(together * channels);
    for (int64_t i = 0; i < order.count_; ++i) {
      order.from_[i] = static_cast<int32_t>(i % together * channels + i / together);
    }
    return order;
  }
  // The inverse order.
  static LaneOrder by_group(int64_t together, int64_t channels) {
    LaneOrder order(together * channels);
    for (int64_t i = 0; i < order.count_; ++i) {
      order.from_[i] = static_cast<int32_t>(i % channels * together + i / channels);
    }
    return order;
  }
  // `room` values may be read; up to a whole block is written.
  void permute(const float* from, int64_t room, float* to) const {
#if HWY_TARGET == HWY_AVX3
    const Vec<float>::D d;
    Vec<float>(hn::TableLookupLanes(load_some(from, room).raw, hn::SetTableIndices(d, from_))).store(to);
#else
    for (int64_t i = 0; i < count_; ++i) to[i] = from_[i] < room ? from[from_[i]] : 0;
#endif
  }

 private:
  explicit LaneOrder(int64_t count) : count_(std::min(count, kBlock)) {}
  int64_t count_;
  int32_t from_[kBlock] = {};
};

class GroupRows {
 public:
  // beyond: pixels that are read past the end of a row.
  GroupRows(const Window& w, const GroupBlocks& blocks, int64_t n, const float* x, int64_t beyond)
      : w_(w),
        blocks_(blocks),
        n_(n),
        x_(x),
        order_(LaneOrder::by_channel(blocks.together, blocks.in)),
        lines_(std::clamp<int64_t>(kBandPositions / w.count[2], 1, w.count[1])),
        bands_((w.count[1] + lines_ - 1) / lines_),
        rows_((lines_ - 1) * w.step[1] + (w.taps[1] - 1) * w.tap_step[1] + 1),
        pixels_((w.count[2] - 1) * w.step[2] + (w.taps[2] - 1) * w.tap_step[2] + 1),
        line_((pixels_ + beyond) * blocks.pixel + kBlock) {}

  // Output rows [y0, y1) of an image (n, z).
  struct Band {
    int64_t image, y0, y1;
  };
  int64_t bands() const { return n_ * w_.count[0] * bands_; }
  int64_t positions() const { return lines_ * w_.count[2]; }  // of a band, at most
  Band band(int64_t i) const {
    const int64_t y0 = i % bands_ * lines_;
    return {i / bands_, y0, std::min(y0 + lines_, w_.count[1])};
  }
  int64_t copy_size() const { return rows_ * line_; }

  // Copies the input of a band, for copies [k0, k1). `next` is the next row to read, 0 before the first band; `to` then
  // holds zeros.
  void read(const Band& band, int64_t k0, int64_t k1, int64_t& next, float* to) const {
    if (band.y0 == 0) next = 0;
    const int64_t last = (band.y1 - 1) * w_.step[1] + (w_.taps[1] - 1) * w_.tap_step[1];
    for (next = std::max(next, band.y0 * w_.step[1]); next <= last; ++next) {
      fill(band.image, next + w_.base[1], k0, k1, to + next % rows_ * line_);
    }
  }
  // What read() would copy next, prefetched while `tiles` tiles are summed.
  detail::ReadAhead ahead(const Band& band, int64_t next, int64_t tiles) const {
    const int64_t z = band.image % w_.count[0] * w_.step[0] + w_.base[0], channels = blocks_.groups * blocks_.in;
    const int64_t row = std::max(band.y0 == 0 ? 0 : next, band.y0 * w_.step[1]);
    const int64_t last = (band.y1 - 1) * w_.step[1] + (w_.taps[1] - 1) * w_.tap_step[1];
    const int64_t lo = std::clamp<int64_t>(row + w_.base[1], 0, w_.size[1]);
    const int64_t hi = std::clamp<int64_t>(last + 1 + w_.base[1], lo, w_.size[1]), line = w_.size[2] * channels;
    if (z < 0 || z >= w_.size[0] || lo == hi) return {nullptr, 0, tiles};
    const int64_t image = band.image / w_.count[0] * w_.size[0] + z;
    return {x_ + (image * w_.size[1] + lo) * line, (hi - lo) * line * static_cast<int64_t>(sizeof(float)), tiles};
  }
  // What row t of the kernel reads for output row y.
  const float* row(const float* copy, int64_t y, int64_t t) const {
    return copy + (y * w_.step[1] + t * w_.tap_step[1]) % rows_ * line_;
  }

 private:
  // Copies row y of x. Zeros beside it are there already.
  void fill(int64_t image, int64_t y, int64_t k0, int64_t k1, float* to) const {
    const int64_t z = image % w_.count[0] * w_.step[0] + w_.base[0], n = image / w_.count[0], pixel = blocks_.pixel;
    const int64_t lo = std::clamp<int64_t>(-w_.base[2], 0, pixels_);
    const int64_t hi = std::clamp<int64_t>(w_.size[2] - w_.base[2], lo, pixels_), size = copy_size();
    to += lo * pixel;
    if (z < 0 || z >= w_.size[0] || y < 0 || y >= w_.size[1]) {
      for (int64_t k = k0; k < k1; ++k, to += size) std::fill_n(to, (hi - lo) * pixel, 0.0f);
      return;
    }
    const int64_t first = ((n * w_.size[0] + z) * w_.size[1] + y) * w_.size[2] + w_.base[2] + lo;
    const int64_t channels = blocks_.groups * blocks_.in;
    const float *from = x_ + first * channels, *end = x_ + n_ * w_.source() * channels;
    for (int64_t k = k0; k < k1; ++k, to += size) {
      const float* values = from + k * pixel;
      blocks_.together > 1 ? permute_pixels(values, end - values, hi - lo, to) : copy_pixels(values, hi - lo, to);
    }
  }
  void permute_pixels(const float* from, int64_t room, int64_t count, float* to) const {
    const int64_t channels = blocks_.groups * blocks_.in, pixel = blocks_.pixel;
    for (int64_t i = 0; i < count; ++i, to += pixel) order_.permute(from + i * channels, room - i * channels, to);
    std::fill_n(to, kBlock, 0.0f);  // permute() wrote beyond the last pixel
  }
  void copy_pixels(const float* from, int64_t count, float* to) const {
    constexpr int64_t kLanes = Vec<float>::kLanes;
    const int64_t channels = blocks_.groups * blocks_.in, pixel = blocks_.pixel, whole = pixel / kLanes * kLanes;
    for (int64_t i = 0; i < count; ++i, from += channels, to += pixel) {
      for (int64_t j = 0; j < whole; j += kLanes) Vec<float>::load(from + j).store(to + j);
      for (int64_t j = whole; j < pixel; ++j) to[j] = from[j];
    }
  }

  const Window& w_;
  const GroupBlocks& blocks_;
  int64_t n_;
  const float* x_;
  LaneOrder order_;
  int64_t lines_, bands_;  // output rows of a band; bands of an image
  int64_t rows_, pixels_;  // of a copy
  int64_t line_;           // values of a row
};

}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // DEFT_KERNELS_CPU_CONV_GROUPS_INL_H_
