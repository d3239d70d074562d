// Winograd F(4 x 4, 3 x 3): tiles of 6 x 6 inputs give 4 x 4 outputs by 36 multiplications instead of 144. f32, NHWC,
// stride 1. The points are 0, 1, -1, 2, -2 and infinity.
//
// Largest error against f64, inputs and weights in [-1, 1], relative to the largest sum of absolute products: 1.4e-6
// with 64 channels, of which direct sums have 1.6e-7 (conv_test bounds both).
#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/conv/conv_winograd.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/cpu/conv/conv_internal.h"
#include "kernels/cpu/gemm/activate-inl.h"
#include "kernels/cpu/norm/row-inl.h"
#include "runtime/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

using detail::InputTile;
using detail::OutputTile;
using V = Vec<float>;
constexpr int64_t kLanes = V::kLanes;

struct Six {
  V v0, v1, v2, v3, v4, v5;
};
inline Six input_transform(Six d) {
  const V even = d.v4 - V(4) * d.v2, odd = d.v3 - V(4) * d.v1;
  const V even2 = d.v4 - d.v2, odd2 = V(2) * (d.v3 - d.v1);
  return {fma(V(4), d.v0, fma(V(-5), d.v2, d.v4)), even + odd, even - odd, even2 + odd2, even2 - odd2,
          fma(V(4), d.v1, fma(V(-5), d.v3, d.v5))};
}
struct Four {
  V v0, v1, v2, v3;
};
inline Four output_transform(Six m) {
  const V sum = m.v1 + m.v2, difference = m.v1 - m.v2, sum2 = m.v3 + m.v4, difference2 = m.v3 - m.v4;
  return {m.v0 + sum + sum2, fma(V(2), difference2, difference), fma(V(4), sum2, sum),
          fma(V(8), difference2, difference) + m.v5};
}

inline V load_pixel(const InputTile& t, int64_t y, int64_t x, int64_t c, int64_t count) {
  if (y < t.y0 || y >= t.y1 || x < t.x0 || x >= t.x1) return V(0);
  return load_some(t.at + y * t.line + x * t.pixel + c, count);
}
// out[(6 i + j) * plane + c]: channels [0, channels), in whole vectors.
void transform_input(const InputTile& t, int64_t channels, float* out, int64_t plane) {
  const bool whole = t.y0 == 0 && t.x0 == 0 && t.y1 == 6 && t.x1 == 6;
  for (int64_t c = 0; c < channels; c += kLanes) {
    float columns[6][6][V::kLanes];
    const int64_t count = channels - c;
    for (int64_t x = 0; x < 6; ++x) {
      Six d;
      if (whole && count >= kLanes) {
        const float* p = t.at + x * t.pixel + c;
        d = {V::load(p),
             V::load(p + t.line),
             V::load(p + 2 * t.line),
             V::load(p + 3 * t.line),
             V::load(p + 4 * t.line),
             V::load(p + 5 * t.line)};
      } else {
        d = {load_pixel(t, 0, x, c, count), load_pixel(t, 1, x, c, count), load_pixel(t, 2, x, c, count),
             load_pixel(t, 3, x, c, count), load_pixel(t, 4, x, c, count), load_pixel(t, 5, x, c, count)};
      }
      const Six s = input_transform(d);
      s.v0.store(columns[0][x]);
      s.v1.store(columns[1][x]);
      s.v2.store(columns[2][x]);
      s.v3.store(columns[3][x]);
      s.v4.store(columns[4][x]);
      s.v5.store(columns[5][x]);
    }
    for (int64_t y = 0; y < 6; ++y) {
      const auto& r = columns[y];
      const Six s =
          input_transform({V::load(r[0]), V::load(r[1]), V::load(r[2]), V::load(r[3]), V::load(r[4]), V::load(r[5])});
      float* to = out + 6 * y * plane + c;
      s.v0.store(to);
      s.v1.store(to + plane);
      s.v2.store(to + 2 * plane);
      s.v3.store(to + 3 * plane);
      s.v4.store(to + 4 * plane);
      s.v5.store(to + 5 * plane);
    }
  }
}

void transform_output(const float* m, int64_t plane, const OutputTile& t, int64_t channels, const float* bias,
                      Activation activation) {
  for (int64_t c = 0; c < channels; c += kLanes) {
    float lines[4][6][V::kLanes];
    for (int64_t x = 0; x < 6; ++x) {
      const float* p = m + x * plane + c;
      const Four s = output_transform({V::load(p), V::load(p + 6 * plane), V::load(p + 12 * plane),
                                       V::load(p + 18 * plane), V::load(p + 24 * plane), V::load(p + 30 * plane)});
      s.v0.store(lines[0][x]);
      s.v1.store(lines[1][x]);
      s.v2.store(lines[2][x]);
      s.v3.store(lines[3][x]);
    }
    const int64_t count = channels - c;
    const V b = bias ? load_some(bias + c, count) : V(0);
    for (int64_t y = 0; y < t.rows; ++y) {
      const auto& r = lines[y];
      const Four s =
          output_transform({V::load(r[0]), V::load(r[1]), V::load(r[2]), V::load(r[3]), V::load(r[4]), V::load(r[5])});
      const V results[4] = {s.v0, s.v1, s.v2, s.v3};
      for (int64_t x = 0; x < t.columns; ++x) {
        const int64_t at = y * t.line + x * t.pixel + c;
        V v = results[x] + b;
        if (t.residual) v += load_some(t.residual + at, count);
        if (activation != Activation::none) v = activate(activation, v);
        store_some(v, t.at + at, count);
      }
    }
  }
}

}  // namespace
}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/check.h"
#include "runtime/numerics.h"

namespace deft::cpu::detail {

HWY_EXPORT(transform_input);
HWY_EXPORT(transform_output);

namespace {

constexpr int64_t kBlockBytes = 2 << 20;  // of transformed tiles
constexpr int64_t kFewestTiles = 16;      // fewer do not pay for reading 36 / 9 times as many weights

bool geometry_fits(const ConvCall& c) {
  return c.dtype == DType::f32 && c.channels_last && c.groups == 1 && c.kernel[0] == 1 && c.pad[0] == 0 &&
         c.kernel[1] == 3 && c.kernel[2] == 3 && c.stride[0] * c.stride[1] * c.stride[2] == 1 &&
         c.dilation[1] * c.dilation[2] == 1;
}

struct Tiles {
  explicit Tiles(const ConvCall& c)
      : images(c.n * c.out[0]), down((c.out[1] + 3) / 4), across((c.out[2] + 3) / 4), count(images * down * across) {}
  int64_t images, down, across, count;
};

// Transforms a 3 x 3 filter to 6 x 6, G g G^T; output values `step` apart. In f64, rounded once.
void transform_filter(const float* g, float* out, int64_t step) {
  constexpr double kG[6][3] = {{1. / 4, 0, 0},
                               {-1. / 6, -1. / 6, -1. / 6},
                               {-1. / 6, 1. / 6, -1. / 6},
                               {1. / 24, 1. / 12, 1. / 6},
                               {1. / 24, -1. / 12, 1. / 6},
                               {0, 0, 1}};
  double lines[6][3];
  for (int i = 0; i < 6; ++i) {
    for (int x = 0; x < 3; ++x) {
      lines[i][x] = 0;
      for (int y = 0; y < 3; ++y) lines[i][x] += kG[i][y] * static_cast<double>(g[y * 3 + x]);
    }
  }
  for (int i = 0; i < 6; ++i) {
    for (int j = 0; j < 6; ++j) {
      double sum = 0;
      for (int x = 0; x < 3; ++x) sum += lines[i][x] * kG[j][x];
      out[(i * 6 + j) * step] = static_cast<float>(sum);
    }
  }
}

struct Block {
  const ConvCall& c;
  const ConvWeight& weight;
  Tiles tiles;
  int64_t size, in_row, out_row;  // tiles of a block; values of a row of transformed pixels

  void run(int64_t t0, int64_t t1) const {
    Workspace<float> in(36 * size * in_row), out(36 * size * out_row);
    const int64_t count = t1 - t0;
    parallel_for(0, count, 4, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) input(t0 + t, in.data() + t * in_row);
    });
    parallel_balanced(0, 36, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const StridedSource a({DType::f32, in.data() + i * size * in_row, in_row, 1});
        const PackedMatrix& b = *weight.parts[static_cast<size_t>(i)];
        BlockedGemm p{.tile = &b.tile(), .m = count, .n = c.c_out, .k = c.c_in};
        p.a = &a, p.packed_b = &b;
        p.c = out.data() + i * size * out_row, p.c_row = out_row;
        run_blocked_gemm(p);
      }
    });
    parallel_for(0, count, 4, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) output(out.data() + t * out_row, t0 + t);
    });
  }

  void input(int64_t t, float* to) const {
    const int64_t y = t / tiles.across % tiles.down * 4 - c.pad[1], x = t % tiles.across * 4 - c.pad[2];
    const int64_t image = t / (tiles.across * tiles.down), line = c.in[2] * c.c_in;
    const auto begin = [](int64_t at) { return std::clamp<int64_t>(-at, 0, 6); };
    const auto end = [](int64_t at, int64_t length) { return std::clamp<int64_t>(length - at, 0, 6); };
    const float* from = static_cast<const float*>(c.x) + image * c.in[1] * line + y * line + x * c.c_in;
    HWY_DYNAMIC_DISPATCH(transform_input)
    ({from, begin(y), end(y, c.in[1]), begin(x), end(x, c.in[2]), line, c.c_in}, c.c_in, to, size * in_row);
  }
  void output(const float* from, int64_t t) const {
    const int64_t y = t / tiles.across % tiles.down * 4, x = t % tiles.across * 4;
    const int64_t image = t / (tiles.across * tiles.down), line = c.out[2] * c.c_out;
    const int64_t at = image * c.out[1] * line + y * line + x * c.c_out;
    const auto* residual = static_cast<const float*>(c.residual);
    HWY_DYNAMIC_DISPATCH(transform_output)
    (from, size * out_row,
     {static_cast<float*>(c.y) + at, residual ? residual + at : nullptr, std::min<int64_t>(4, c.out[1] - y),
      std::min<int64_t>(4, c.out[2] - x), line, c.c_out},
     c.c_out, static_cast<const float*>(c.bias), c.activation);
  }
};

}  // namespace

bool winograd_applies(const ConvCall& c) {
  return conv_winograd() && geometry_fits(c) && c.c_in >= 16 && c.c_out >= 16 && Tiles(c).count >= kFewestTiles;
}

const GemmTile& winograd_tile(const ConvCall& c) { return best_tile(Panel::f32, Tiles(c).count, c.c_out); }

void pack_winograd(const ConvCall& c, ConvWeight& out, const GemmTile& tile) {
  const int64_t filters = c.c_out * c.c_in;
  Workspace<float> transformed(36 * filters);
  parallel_for(0, filters, 256, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      transform_filter(static_cast<const float*>(c.w) + 9 * i, transformed.data() + i, filters);
    }
  });
  out.winograd = true;
  for (int64_t i = 0; i < 36; ++i) {
    const StridedSource lines({DType::f32, transformed.data() + i * filters, c.c_in, 1});
    out.parts.push_back(std::make_unique<PackedMatrix>(tile, Side::b, lines, c.c_out, c.c_in));
  }
}

void winograd_forward(const ConvCall& c, const ConvWeight& w) {
  DEFT_CHECK(geometry_fits(c), ValueError,
             "conv: found weights packed for Winograd, expected stride and dilation 1; pack them again with "
             "pack_conv_weight() for this call");
  const auto row = [](int64_t channels) { return (channels + 15) / 16 * 16; };
  Block block{c, w, Tiles(c), 0, row(c.c_in), row(c.c_out)};
  const int64_t tile_bytes = 36 * (block.in_row + block.out_row) * static_cast<int64_t>(sizeof(float));
  const int64_t total = block.tiles.count;
  block.size = std::min(total, std::max<int64_t>(16, kBlockBytes / tile_bytes / 8 * 8));
  const int64_t blocks = (total + block.size - 1) / block.size;
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) block.run(i * block.size, std::min(total, (i + 1) * block.size));
  };
  if (blocks < num_threads()) return run(0, blocks);  // parallel inside
  parallel_balanced(0, blocks, 1, run);
}

}  // namespace deft::cpu::detail
#endif  // HWY_ONCE
