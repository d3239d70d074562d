// Convolutions in groups of few channels, channels last: nothing is packed, vectors run over output channels.
//
// Blocks of up to kBlock output channels are summed together: part of a group, or two or four narrow ones. Some output
// lines at a time, what they read of x is copied with its padding, by groups of a block; each line once, over one that
// is not read any more.
//
// Note [Lanes of groups]: of several groups, lane j of a block has output channel j / together of group j % together,
// and the copy has the same input channel of each group side by side: repeated, they are a vector.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/conv_groups.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/cpu/activate-inl.h"
#include "kernels/cpu/conv_internal.h"
#include "kernels/cpu/rows-inl.h"
#include "runtime/parallel.h"

#ifndef DEFT_KERNELS_CPU_CONV_GROUPS_CPP_
#define DEFT_KERNELS_CPU_CONV_GROUPS_CPP_
namespace deft::cpu::detail {

constexpr int64_t kBlock = 16;

// How a call's channels make blocks.
struct GroupBlocks {
  explicit GroupBlocks(const ConvCall& c)
      : in(c.c_in / c.groups),
        out(c.c_out / c.groups),
        together(std::max(in, out) > 8   ? 1
                 : std::max(in, out) > 4 ? 2
                                         : 4),
        parts((out + kBlock - 1) / kBlock),
        groups(c.groups) {}
  int64_t copies() const { return (groups + together - 1) / together; }
  int64_t count() const { return copies() * parts; }
  int64_t first_group(int64_t block) const { return block / parts * together; }
  int64_t first_out(int64_t block) const { return first_group(block) * out + block % parts * kBlock; }
  int64_t outs(int64_t block) const {
    return together > 1 ? std::min(together, groups - first_group(block)) * out
                        : std::min(kBlock, out - block % parts * kBlock);
  }
  int64_t in, out;   // channels of a group
  int64_t together;  // groups of a block: 1, 2 or 4
  int64_t parts;     // blocks of a group, where it is wide
  int64_t groups;
};

}  // namespace deft::cpu::detail
#endif  // DEFT_KERNELS_CPU_CONV_GROUPS_CPP_

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

using detail::GroupBlocks;
using detail::kBlock;
using detail::Window;

using V = Vec<float>;
constexpr int64_t kLanes = V::kLanes;
constexpr int kParts = kBlock / kLanes;  // vectors of a block
// Positions of a tile: its sums stay in registers.
constexpr int kPositions = kLanes == 16 ? 8 : HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_NEON ? 4 : 2;
constexpr int64_t kBandPositions = 64;  // at a time, at most; or a line
constexpr int64_t kGrain = 32 * 1024;   // multiply-adds that pay for a lane

class GroupConv {
 public:
  GroupConv(const ConvCall& c, const float* filters)
      : c_(c),
        w_(detail::forward_window(c)),
        blocks_(c),
        filters_(filters),
        pixel_(blocks_.together * blocks_.in),
        band_(std::clamp<int64_t>(kBandPositions / w_.count[2], 1, w_.count[1])),
        bands_((w_.count[1] + band_ - 1) / band_),
        rows_((band_ - 1) * w_.step[1] + (w_.taps[1] - 1) * w_.tap_step[1] + 1),
        pixels_((w_.count[2] - 1) * w_.step[2] + (w_.taps[2] - 1) * w_.tap_step[2] + 1),
        line_((pixels_ + kPositions * w_.step[2]) * pixel_ + kBlock),
        copy_(rows_ * line_) {
    const int64_t together = blocks_.together;
    for (int64_t i = 0; together > 1 && i < kBlock; ++i) {
      in_places_[i] = static_cast<int32_t>(i < pixel_ ? i % together * blocks_.in + i / together : 0);
      const int64_t out = i % blocks_.out, group = i / blocks_.out;
      out_places_[i] = static_cast<int32_t>(group < together ? out * together + group : 0);
    }
  }

  void run() const {
    const int64_t cost = band_ * w_.count[2] * blocks_.count() * kBlock * blocks_.in * w_.tap_count();
    parallel_for(0, c_.n * w_.count[0] * bands_, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, cost)),
                 [&](int64_t begin, int64_t end) { run(begin, end); });
  }

 private:
  void run(int64_t begin, int64_t end) const {
    const Workspace<float> copy(blocks_.copies() * copy_);
    const Workspace<const float*> lines(w_.taps[1]);
    std::fill_n(copy.data(), blocks_.copies() * copy_, 0.0f);
    int64_t next = 0;  // row to be copied
    for (int64_t i = begin; i < end; ++i) {
      const int64_t y0 = i % bands_ * band_, y1 = std::min(y0 + band_, w_.count[1]), image = i / bands_;
      if (y0 == 0 || i == begin) next = 0;
      const int64_t last = (y1 - 1) * w_.step[1] + (w_.taps[1] - 1) * w_.tap_step[1];
      for (next = std::max(next, y0 * w_.step[1]); next <= last; ++next) {
        fill(image, next + w_.base[1], copy.data() + next % rows_ * line_);
      }
      for (int64_t block = 0; block < blocks_.count(); ++block) {
        for (int64_t y = y0; y < y1; ++y) {
          for (int64_t t = 0; t < w_.taps[1]; ++t) {
            const int64_t row = (y * w_.step[1] + t * w_.tap_step[1]) % rows_;
            lines[t] = copy.data() + block / blocks_.parts * copy_ + row * line_;
          }
          run_line(lines.data(), block, (image * w_.count[1] + y) * w_.count[2]);
        }
      }
    }
  }

  // Row y of x, of (n, z). Zeros beside it are there already.
  void fill(int64_t image, int64_t y, float* to) const {
    const int64_t z = image % w_.count[0] * w_.step[0] + w_.base[0], n = image / w_.count[0];
    const int64_t lo = std::clamp<int64_t>(-w_.base[2], 0, pixels_);
    const int64_t hi = std::clamp<int64_t>(w_.size[2] - w_.base[2], lo, pixels_), copies = blocks_.copies();
    if (z < 0 || z >= w_.size[0] || y < 0 || y >= w_.size[1]) {
      for (int64_t k = 0; k < copies; ++k) std::fill_n(to + k * copy_ + lo * pixel_, (hi - lo) * pixel_, 0.0f);
      return;
    }
    const int64_t first = ((n * w_.size[0] + z) * w_.size[1] + y) * w_.size[2] + w_.base[2] + lo;
    const float* from = static_cast<const float*>(c_.x) + first * c_.c_in;
    const float* end = static_cast<const float*>(c_.x) + c_.n * w_.source() * c_.c_in;
    to += lo * pixel_;
    for (int64_t i = lo; i < hi; ++i, from += c_.c_in, to += pixel_) {
      for (int64_t k = 0; k < copies; ++k) {
        const float* channels = from + k * pixel_;
        blocks_.together > 1 ? turn(channels, end - channels, in_places_, pixel_, to + k * copy_)
                             : copy_channels(channels, to + k * copy_);
      }
    }
    // turn() wrote beyond the last pixel.
    for (int64_t k = 0; blocks_.together > 1 && k < copies; ++k) std::fill_n(to + k * copy_, kBlock, 0.0f);
  }
  void copy_channels(const float* from, float* to) const {
    int64_t i = 0;
    for (; i + kLanes <= pixel_; i += kLanes) V::load(from + i).store(to + i);
    for (; i < pixel_; ++i) to[i] = from[i];
  }
  // to[i] = from[places[i]], of which `room` may be read.
  static void turn(const float* from, int64_t room, const int32_t* places, [[maybe_unused]] int64_t count, float* to) {
#if HWY_TARGET == HWY_AVX3
    const V::D d;
    // A whole block is written.
    V(hn::TableLookupLanes(load_some(from, room).raw, hn::SetTableIndices(d, places))).store(to);
#else
    for (int64_t i = 0; i < count; ++i) to[i] = places[i] < room ? from[places[i]] : 0;
#endif
  }

  // q: its first position.
  void run_line(const float* const* lines, int64_t block, int64_t q) const {
    float sums[kPositions * kBlock], bias[kBlock] = {};
    const int64_t first = blocks_.first_out(block), outs = blocks_.outs(block);
    if (c_.bias) std::copy_n(static_cast<const float*>(c_.bias) + first, outs, bias);
    const float* filters = filters_ + block * w_.tap_count() * blocks_.in * kBlock;
    for (int64_t x = 0; x < w_.count[2]; x += kPositions) {
      blocks_.together == 1   ? sum_tile<1>(lines, x, filters, sums)
      : blocks_.together == 2 ? sum_tile<2>(lines, x, filters, sums)
                              : sum_tile<4>(lines, x, filters, sums);
      const int64_t live = std::min<int64_t>(kPositions, w_.count[2] - x);
      put(sums, bias, live, outs, (q + x) * c_.c_out + first);
    }
  }

  // Vector `part` of a block: kTogether values from `from` on, repeated.
  template <int kTogether>
  static V repeat(const float* from, [[maybe_unused]] int part) {
    if constexpr (kTogether == 1) {
      return V(*from);
    } else if constexpr (kLanes == 1) {
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

  template <int kTogether>
  HWY_NOINLINE void sum_tile(const float* const* lines, int64_t x, const float* filters, float* sums) const {
    V s[kPositions][kParts];
#pragma GCC unroll 8
    for (int p = 0; p < kPositions; ++p) {
#pragma GCC unroll 4
      for (int v = 0; v < kParts; ++v) s[p][v] = V(0);
    }
    const int64_t step = w_.step[2] * pixel_, tap_step = w_.tap_step[2] * pixel_;
    // Taps of a kernel line mostly follow each other.
    const int64_t runs = w_.tap_step[2] == 1 ? 1 : w_.taps[2], run = w_.tap_step[2] == 1 ? w_.taps[2] * pixel_ : pixel_;
    for (int64_t t = 0; t < w_.taps[1] * runs; ++t) {
      const float* tap = lines[runs == 1 ? t : t / runs] + x * step + (runs == 1 ? 0 : t % runs * tap_step);
      for (int64_t i = 0; i < run; i += kTogether, filters += kBlock) {
        V f[kParts];
#pragma GCC unroll 4
        for (int v = 0; v < kParts; ++v) f[v] = V::load(filters + v * kLanes);
#pragma GCC unroll 8
        for (int p = 0; p < kPositions; ++p) {
          const float* from = tap + p * step + i;
#pragma GCC unroll 4
          for (int v = 0; v < kParts; ++v) s[p][v] = fma(repeat<kTogether>(from, v), f[v], s[p][v]);
        }
      }
    }
#pragma GCC unroll 8
    for (int p = 0; p < kPositions; ++p) {
#pragma GCC unroll 4
      for (int v = 0; v < kParts; ++v) s[p][v].store(sums + p * kBlock + v * kLanes);
    }
  }

  void put(float* sums, const float* bias, int64_t positions, int64_t outs, int64_t at) const {
    if (blocks_.together > 1) {
      for (int64_t p = 0; p < positions; ++p) {
        float turned[kBlock];
        turn(sums + p * kBlock, kBlock, out_places_, kBlock, turned);
        std::copy_n(turned, kBlock, sums + p * kBlock);
      }
    }
    if (c_.residual || c_.activation != Activation::none || outs < kBlock) {
      return put_more(sums, bias, positions, outs, at);
    }
    float* y = static_cast<float*>(c_.y) + at;
    for (int64_t p = 0; p < positions; ++p, y += c_.c_out, sums += kBlock) {
      for (int64_t i = 0; i < kBlock; i += kLanes) (V::load(sums + i) + V::load(bias + i)).store(y + i);
    }
  }
  HWY_NOINLINE void put_more(const float* sums, const float* bias, int64_t positions, int64_t outs, int64_t at) const {
    float* y = static_cast<float*>(c_.y);
    const float* residual = static_cast<const float*>(c_.residual);
    for (int64_t p = 0; p < positions; ++p, at += c_.c_out, sums += kBlock) {
      for (int64_t i = 0; i < outs; i += kLanes) {
        V v = V::load(sums + i) + V::load(bias + i);
        if (residual) v += load_some(residual + at + i, outs - i);
        store_some(activate(c_.activation, v), y + at + i, outs - i);
      }
    }
  }

  const ConvCall& c_;
  Window w_;
  GroupBlocks blocks_;
  const float* filters_;
  int64_t pixel_;          // values of a copied pixel
  int64_t band_, bands_;   // output lines at a time; so many times for an image
  int64_t rows_, pixels_;  // of a copy
  int64_t line_, copy_;    // values of a row; of a copy
  // Note [Lanes of groups]: where the values of a copied pixel come from, and output channels.
  int32_t in_places_[kBlock] = {}, out_places_[kBlock] = {};
};

void groups_any(const ConvCall& c, const float* filters) { GroupConv(c, filters).run(); }

}  // namespace
}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft::cpu::detail {

HWY_EXPORT(groups_any);

namespace {
constexpr int64_t kWide = 32;  // channels of a group, at most
}  // namespace

bool groups_pay(const ConvCall& c) {
  return c.dtype == DType::f32 && c.channels_last && c.groups > 1 && !is_depthwise(c) && c.kernel[0] == 1 &&
         c.c_in > 0 && c.c_in <= kWide * c.groups && c.c_out <= kWide * c.groups;
}

int64_t group_filter_bytes(const ConvCall& c) {
  const GroupBlocks blocks(c);
  return blocks.count() * c.kernel[1] * c.kernel[2] * blocks.in * kBlock * static_cast<int64_t>(sizeof(float));
}

void arrange_group_filters(const ConvCall& c, const void* w, void* out) {
  const GroupBlocks blocks(c);
  const int64_t taps = c.kernel[1] * c.kernel[2];
  float* to = static_cast<float*>(out);
  for (int64_t b = 0; b < blocks.count(); ++b) {
    const float* from = static_cast<const float*>(w) + blocks.first_out(b) * blocks.in * taps;
    const int64_t outs = blocks.outs(b), together = blocks.together;
    for (int64_t t = 0; t < taps; ++t) {
      for (int64_t i = 0; i < blocks.in; ++i, to += kBlock) {
        for (int64_t lane = 0; lane < kBlock; ++lane) {
          const int64_t of_group = lane / together, o = lane % together * blocks.out + of_group;
          to[lane] = (together == 1 || of_group < blocks.out) && o < outs ? from[(o * blocks.in + i) * taps + t] : 0;
        }
      }
    }
  }
}

void run_groups(const ConvCall& c) {
  const Workspace<char> own(c.packed ? 0 : group_filter_bytes(c));
  if (!c.packed) arrange_group_filters(c, c.w, own.data());
  const char* filters = c.packed ? c.packed->filters->data() : own.data();
  HWY_DYNAMIC_DISPATCH(groups_any)(c, reinterpret_cast<const float*>(filters));
}

}  // namespace deft::cpu::detail
#endif  // HWY_ONCE
