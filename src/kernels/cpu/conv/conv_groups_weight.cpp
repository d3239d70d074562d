// Weight gradient of grouped convolutions with few channels per group, NHWC, see conv_groups.h. Vectors run over output
// channels: a tile of sums stays in registers while a band of rows is read.
#include "kernels/cpu/conv/conv_groups.h"

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/conv/conv_groups_weight.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/cpu/conv/conv_groups-inl.h"
#include "runtime/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

using detail::ReadAhead;

using V = Vec<float>;
constexpr int64_t kLanes = V::kLanes;
constexpr int kParts = kBlockParts;
// Values of x in a tile, each with the vectors of a block: three taps of four channels.
constexpr int kValues = kLanes == 16 ? 12 : HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_NEON ? 6 : 2;
constexpr int kFew = kLanes == 16 ? 4 : kValues / 2;  // values of the last tiles

class GroupGradient {
 public:
  GroupGradient(const ConvCall& c, const Window& w, const GroupBlocks& blocks, const float* dy)
      : w_(w),
        blocks_(blocks),
        channels_(c.c_out),
        dy_(dy),
        dy_end_(dy + c.n * w.positions() * c.c_out),
        order_(LaneOrder::by_channel(blocks.together, blocks.out)),
        // Tiles read a few values beyond their taps.
        padded_(w, blocks, c.n, static_cast<const float*>(c.x), (kValues + blocks.in - 1) / blocks.in) {}
  int64_t bands() const { return padded_.bands(); }

  // sums[block][tap][channel of x][lane] of copies [k0, k1), over bands [begin, end).
  void run(int64_t begin, int64_t end, int64_t k0, int64_t k1, float* sums) const {
    const int64_t size = padded_.copy_size(), block0 = k0 * blocks_.parts, block1 = k1 * blocks_.parts;
    const int64_t filters = w_.tap_count() * blocks_.in * kBlock, gradients = padded_.positions() * kBlock;
    const Workspace<float> copy((k1 - k0) * size), dy((block1 - block0) * gradients);
    std::fill_n(copy.data(), (k1 - k0) * size, 0.0f);
    std::fill_n(dy.data(), (block1 - block0) * gradients, 0.0f);
    std::fill_n(sums + block0 * filters, (block1 - block0) * filters, 0.0f);
    int64_t next = 0;
    for (int64_t i = begin; i < end; ++i) {
      const GroupRows::Band band = padded_.band(i);
      padded_.read(band, k0, k1, next, copy.data());
      read_gradients(band, block0, block1, gradients, dy.data());
      const GroupRows::Band later = padded_.band(std::min(i + 1, end - 1));
      const int64_t tiles = (block1 - block0) * w_.taps[1];
      ReadAhead read[2] = {{nullptr, 0, 1}, {nullptr, 0, 1}};
      // Whole rows are prefetched; not so where only a part of each is read.
      if (k1 - k0 == blocks_.copies()) {
        read[0] = padded_.ahead(later, next, tiles), read[1] = gradients_ahead(later, tiles);
      }
      for (int64_t block = block0; block < block1; ++block) {
        add_band(band, copy.data() + (blocks_.copy_of(block) - k0) * size, dy.data() + (block - block0) * gradients,
                 sums + block * filters, read);
      }
    }
  }

 private:
  // dy by blocks, with SIMD lanes in order: to[block][position][lane].
  void read_gradients(const GroupRows::Band& band, int64_t block0, int64_t block1, int64_t size, float* to) const {
    const int64_t first = (band.image * w_.count[1] + band.y0) * w_.count[2];
    const int64_t count = (band.y1 - band.y0) * w_.count[2];
    const float* from = dy_ + first * channels_;
    for (int64_t i = 0; i < count; ++i, from += channels_) {
      float* block_to = to + i * kBlock;
      for (int64_t block = block0; block < block1; ++block, block_to += size) {
        const float* values = from + blocks_.first_out(block);
        if (blocks_.together > 1) {
          order_.permute(values, dy_end_ - values, block_to);
        } else {
          copy_values(values, blocks_.outs(block), block_to);
        }
      }
    }
  }
  ReadAhead gradients_ahead(const GroupRows::Band& band, int64_t tiles) const {
    const int64_t line = w_.count[2] * channels_, first = band.image * w_.count[1] + band.y0;
    return {dy_ + first * line, (band.y1 - band.y0) * line * static_cast<int64_t>(sizeof(float)), tiles};
  }
  static void copy_values(const float* from, int64_t count, float* to) {
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) V::load(from + i).store(to + i);
    for (; i < count; ++i) to[i] = from[i];
  }

  void add_band(const GroupRows::Band& band, const float* copy, const float* dy, float* sums, ReadAhead* read) const {
    // The taps of a kernel row usually are contiguous.
    const bool joined = w_.tap_step[2] == 1;
    const int64_t runs = joined ? 1 : w_.taps[2], run = (joined ? w_.taps[2] : 1) * blocks_.in;
    for (int64_t t = 0; t < w_.taps[1] * runs; ++t) {
      if (t % runs == 0) read[0].fetch<0>(), read[1].fetch<0>();
      const int64_t tap = t % runs * w_.tap_step[2] * blocks_.pixel;
      int64_t i = 0;
      for (; i + kValues - kFew < run; i += kValues) {
        add_values<kValues>(band, copy + tap, t / runs, i, dy, std::min<int64_t>(kValues, run - i), sums + i * kBlock);
      }
      for (; i < run; i += kFew) {
        add_values<kFew>(band, copy + tap, t / runs, i, dy, std::min<int64_t>(kFew, run - i), sums + i * kBlock);
      }
      sums += run * kBlock;
    }
  }
  template <int kCount>
  void add_values(const GroupRows::Band& band, const float* copy, int64_t t, int64_t i, const float* dy, int64_t live,
                  float* sums) const {
    blocks_.together == 1   ? add_tile<1, kCount>(band, copy + i, t, dy, live, sums)
    : blocks_.together == 2 ? add_tile<2, kCount>(band, copy + 2 * i, t, dy, live, sums)
                            : add_tile<4, kCount>(band, copy + 4 * i, t, dy, live, sums);
  }

  // Adds to `live` of kCount sums: the values that row t of the kernel reads from `copy` on, times dy.
  template <int kTogether, int kCount>
  HWY_NOINLINE void add_tile(const GroupRows::Band& band, const float* copy, int64_t t, const float* dy, int64_t live,
                             float* sums) const {
    V s[kCount][kParts];
#pragma GCC unroll 16
    for (int i = 0; i < kCount; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < kParts; ++v) s[i][v] = V(0);
    }
    const int64_t step = w_.step[2] * blocks_.pixel;
    for (int64_t y = band.y0; y < band.y1; ++y) {
      const float* x = padded_.row(copy, y, t);
      for (int64_t j = 0; j < w_.count[2]; ++j, x += step, dy += kBlock) {
        V g[kParts];
#pragma GCC unroll 4
        for (int v = 0; v < kParts; ++v) g[v] = V::load(dy + v * kLanes);
#pragma GCC unroll 16
        for (int i = 0; i < kCount; ++i) {
#pragma GCC unroll 4
          for (int v = 0; v < kParts; ++v) s[i][v] = fma(repeat<kTogether>(x + i * kTogether, v), g[v], s[i][v]);
        }
      }
    }
    float found[kCount][kBlock];
#pragma GCC unroll 16
    for (int i = 0; i < kCount; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < kParts; ++v) s[i][v].store(found[i] + v * kLanes);
    }
    for (int64_t i = 0; i < live; ++i, sums += kBlock) {
      for (int64_t v = 0; v < kBlock; v += kLanes) (V::load(sums + v) + V::load(found[i] + v)).store(sums + v);
    }
  }

  const Window& w_;
  const GroupBlocks& blocks_;
  int64_t channels_;  // of dy
  const float *dy_, *dy_end_;
  LaneOrder order_;  // of output channels
  GroupRows padded_;
};

// Sums of `parts` fixed ranges of positions; with more threads than parts, each takes some of the blocks.
void groups_weight_any(const ConvCall& c, const Window& w, const GroupBlocks& blocks, int64_t parts, const float* dy,
                       float* sums) {
  const GroupGradient gradient(c, w, blocks, dy);
  const int64_t bands = gradient.bands(), size = blocks.count() * w.tap_count() * blocks.in * kBlock;
  const int64_t tasks = num_threads() == 1 ? 1 : std::min(blocks.copies(), (2 * num_threads() + parts - 1) / parts);
  parallel_balanced(0, parts * tasks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t part = i / tasks, task = i % tasks;
      gradient.run(part * bands / parts, (part + 1) * bands / parts, task * blocks.copies() / tasks,
                   (task + 1) * blocks.copies() / tasks, sums + part * size);
    }
  });
}

}  // namespace
}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft::cpu::detail {

HWY_EXPORT(groups_weight_any);

void run_groups_weight(const ConvCall& c, const float* dy, float* dw) {
  const GroupBlocks blocks(c.groups, c.c_in / c.groups, c.c_out / c.groups);
  const Window w = forward_window(c);
  const int64_t taps = w.tap_count(), line = blocks.in * kBlock, size = blocks.count() * taps * line;
  // Partial sums, added in order. They depend on sizes only.
  const int64_t lines = c.n * w.count[0] * w.count[1], positions = lines * w.count[2];
  const int64_t parts = std::max<int64_t>(1, std::min<int64_t>({16, lines, positions / 2048, 131072 / size}));
  const Workspace<float> sums(parts * size);
  HWY_DYNAMIC_DISPATCH(groups_weight_any)(c, w, blocks, parts, dy, sums.data());
  for (int64_t part = 1; part < parts; ++part) {
    const float* more = sums.data() + part * size;
    for (int64_t i = 0; i < size; ++i) sums[i] += more[i];
  }
  for (int64_t b = 0; b < blocks.count(); ++b) {
    const float* block = sums.data() + b * taps * line;
    blocks.for_each_lane(b, [&](int64_t lane, int64_t g, int64_t o) {
      float* to = dw + (g * blocks.out + o) * blocks.in * taps;
      for (int64_t i = 0; i < blocks.in; ++i) {
        for (int64_t t = 0; t < taps; ++t) to[i * taps + t] = block[t * line + i * kBlock + lane];
      }
    });
  }
}

}  // namespace deft::cpu::detail
#endif  // HWY_ONCE
