// Grouped convolutions with few channels per group, NHWC: nothing is packed, vectors run over output channels. See
// conv_groups.h.
#include "kernels/cpu/conv/conv_groups.h"

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/conv/conv_groups.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/cpu/conv/conv_groups-inl.h"
#include "kernels/cpu/gemm/activate-inl.h"
#include "runtime/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

using detail::GroupPass;
using detail::Phase;
using detail::ReadAhead;

using V = Vec<float>;
constexpr int64_t kLanes = V::kLanes;
constexpr int kParts = kBlockParts;
// Positions of a tile, whose sums stay in registers: rows of images mostly are multiples of 7.
constexpr int kPositions = kLanes == 16 ? 14 : HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_NEON ? 4 : 2;
constexpr int kFew = kPositions / 2;   // positions of the last tile, where they suffice
constexpr int64_t kGrain = 32 * 1024;  // multiply-adds that pay for a thread

// ReadAhead for pixels that will be written, which may lie apart.
class WriteAhead {
 public:
  // pixel: values of one.
  WriteAhead(const float* at, int64_t pixel, int64_t step, int64_t width, int64_t line, int64_t lines, int64_t tiles)
      : at_(at), pixel_(pixel), step_(step), width_(width), line_(line), rows_left_(lines) {
    some_ = (pixel + kBlock - 1) / kBlock * width * lines / std::max<int64_t>(1, tiles) + 1;
  }
  void fetch() {
    for (int64_t i = 0; i < some_ && rows_left_ > 0; ++i) {
      __builtin_prefetch(at_ + x_ * step_ + value_, 1);
      if ((value_ += kBlock) < pixel_) continue;
      value_ = 0;
      if (++x_ < width_) continue;
      x_ = 0, at_ += line_, --rows_left_;
    }
  }

 private:
  const float* at_;
  int64_t pixel_, step_, width_, line_, rows_left_, some_, value_ = 0, x_ = 0;
};

class GroupConv {
 public:
  explicit GroupConv(const GroupPass& pass)
      : p_(pass),
        w_(pass.phase.window),
        blocks_(pass.blocks),
        channels_(blocks_.groups * blocks_.out),
        order_(LaneOrder::by_group(blocks_.together, blocks_.out)),
        padded_(w_, blocks_, pass.n, pass.x, kPositions * w_.step[2]) {}

  void run() const {
    const int64_t cost = padded_.positions() * blocks_.count() * kBlock * blocks_.in * w_.tap_count();
    parallel_for(0, padded_.bands(), std::max<int64_t>(1, kGrain / std::max<int64_t>(1, cost)),
                 [&](int64_t begin, int64_t end) { run(begin, end); });
  }

 private:
  void run(int64_t begin, int64_t end) const {
    const int64_t size = padded_.copy_size(), copies = blocks_.copies();
    const Workspace<float> copy(copies * size);
    const Workspace<const float*> rows(w_.taps[1]);
    std::fill_n(copy.data(), copies * size, 0.0f);
    int64_t next = 0;
    for (int64_t i = begin; i < end; ++i) {
      const GroupRows::Band band = padded_.band(i);
      padded_.read(band, 0, copies, next, copy.data());
      const int64_t tiles = blocks_.count() * (band.y1 - band.y0) * ((w_.count[2] + kPositions - 1) / kPositions);
      const GroupRows::Band later = padded_.band(std::min(i + 1, end - 1));
      ReadAhead read = padded_.ahead(later, next, tiles);
      WriteAhead written = written_ahead(later, tiles);
      for (int64_t block = 0; block < blocks_.count(); ++block) {
        const float* from = copy.data() + blocks_.copy_of(block) * size;
        for (int64_t y = band.y0; y < band.y1; ++y) {
          for (int64_t t = 0; t < w_.taps[1]; ++t) rows[t] = padded_.row(from, y, t);
          run_row(rows.data(), block, place(band.image, y) * channels_, read, written);
        }
      }
    }
  }

  // The output pixel where the row begins.
  int64_t place(int64_t image, int64_t y) const {
    const Phase& phase = p_.phase;
    const int64_t z = phase.start[0] + image % w_.count[0] * phase.step[0], n = image / w_.count[0];
    return ((n * p_.y_size[0] + z) * p_.y_size[1] + phase.start[1] + y * phase.step[1]) * p_.y_size[2] + phase.start[2];
  }

  WriteAhead written_ahead(const GroupRows::Band& band, int64_t tiles) const {
    const int64_t step = p_.phase.step[2] * channels_, line = p_.phase.step[1] * p_.y_size[2] * channels_;
    return {
        p_.y + place(band.image, band.y0) * channels_, channels_, step, w_.count[2], line, band.y1 - band.y0, tiles};
  }

  void run_row(const float* const* rows, int64_t block, int64_t at, ReadAhead& read, WriteAhead& written) const {
    float sums[kPositions * kBlock], bias[kBlock] = {};
    const int64_t first = blocks_.first_out(block), outs = blocks_.outs(block), step = p_.phase.step[2] * channels_;
    if (p_.bias) std::copy_n(p_.bias + first, outs, bias);
    const float* filters = p_.filters + block * w_.tap_count() * blocks_.in * kBlock;
    for (int64_t x = 0; x < w_.count[2]; x += kPositions) {
      const int64_t live = std::min<int64_t>(kPositions, w_.count[2] - x);
      read.fetch<0>(), written.fetch();
      live > kFew ? sum_some<kPositions>(rows, x, filters, sums) : sum_some<kFew>(rows, x, filters, sums);
      put(sums, bias, live, outs, at + x * step + first);
    }
  }
  template <int kCount>
  void sum_some(const float* const* rows, int64_t x, const float* filters, float* sums) const {
    blocks_.together == 1   ? sum_tile<1, kCount>(rows, x, filters, sums)
    : blocks_.together == 2 ? sum_tile<2, kCount>(rows, x, filters, sums)
                            : sum_tile<4, kCount>(rows, x, filters, sums);
  }

  template <int kTogether, int kCount>
  HWY_NOINLINE void sum_tile(const float* const* rows, int64_t x, const float* filters, float* sums) const {
    V s[kCount][kParts];
#pragma GCC unroll 16
    for (int p = 0; p < kCount; ++p) {
#pragma GCC unroll 4
      for (int v = 0; v < kParts; ++v) s[p][v] = V(0);
    }
    const int64_t pixel = blocks_.pixel, step = w_.step[2] * pixel, tap_step = w_.tap_step[2] * pixel;
    // The taps of a kernel row usually are contiguous.
    const int64_t runs = w_.tap_step[2] == 1 ? 1 : w_.taps[2], run = w_.tap_step[2] == 1 ? w_.taps[2] * pixel : pixel;
    constexpr int kPointers = (kCount + 2) / 3;
    for (int64_t t = 0; t < w_.taps[1] * runs; ++t) {
      const float* tap = rows[runs == 1 ? t : t / runs] + x * step + (runs == 1 ? 0 : t % runs * tap_step);
      const float* from[kPointers];
#pragma GCC unroll 8
      for (int k = 0; k < kPointers; ++k) from[k] = tap + 3 * k * step;
      for (int64_t i = 0; i < run; i += kTogether, filters += kBlock) {
        V f[kParts];
#pragma GCC unroll 4
        for (int v = 0; v < kParts; ++v) f[v] = V::load(filters + v * kLanes);
#pragma GCC unroll 16
        for (int p = 0; p < kCount; ++p) {
          // GCC would keep a pointer for each position, more than there are registers.
          if (p % 3 == 0) asm("" : "+r"(from[p / 3]));
#pragma GCC unroll 4
          for (int v = 0; v < kParts; ++v) {
            s[p][v] = fma(repeat<kTogether>(from[p / 3] + p % 3 * step, v), f[v], s[p][v]);
          }
        }
#pragma GCC unroll 8
        for (int k = 0; k < kPointers; ++k) from[k] += kTogether;
      }
    }
#pragma GCC unroll 16
    for (int p = 0; p < kCount; ++p) {
#pragma GCC unroll 4
      for (int v = 0; v < kParts; ++v) s[p][v].store(sums + p * kBlock + v * kLanes);
    }
  }

  void put(const float* sums, const float* bias, int64_t positions, int64_t outs, int64_t at) const {
    const int64_t step = p_.phase.step[2] * channels_;
    const bool permutes = blocks_.together > 1,
               more = p_.residual || p_.activation != Activation::none || outs < kBlock;
    float* y = p_.y + at;
    for (int64_t p = 0; p < positions; ++p, sums += kBlock) {
      float permuted[kBlock];
      if (permutes) order_.permute(sums, kBlock, permuted);
      const float* from = permutes ? permuted : sums;
      if (more) {
        put_more(from, bias, outs, at + p * step);
      } else {
        for (int64_t i = 0; i < kBlock; i += kLanes) (V::load(from + i) + V::load(bias + i)).store(y + p * step + i);
      }
    }
  }
  HWY_NOINLINE void put_more(const float* sums, const float* bias, int64_t outs, int64_t at) const {
    for (int64_t i = 0; i < outs; i += kLanes) {
      V v = V::load(sums + i) + V::load(bias + i);
      if (p_.residual) v += load_some(p_.residual + at + i, outs - i);
      store_some(activate(p_.activation, v), p_.y + at + i, outs - i);
    }
  }

  const GroupPass& p_;
  const Window& w_;
  const GroupBlocks& blocks_;
  int64_t channels_;  // of the result
  LaneOrder order_;   // of output channels
  GroupRows padded_;
};

void groups_any(const GroupPass& pass) { GroupConv(pass).run(); }

}  // namespace
}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft::cpu::detail {

HWY_EXPORT(groups_any);

namespace {

constexpr int64_t kWide = 32;  // channels of a group, at most

GroupBlocks forward_blocks(const ConvCall& c) { return {c.groups, c.c_in / c.groups, c.c_out / c.groups}; }
GroupBlocks input_blocks(const ConvCall& c) { return {c.groups, c.c_out / c.groups, c.c_in / c.groups}; }

int64_t filter_count(const GroupBlocks& blocks, int64_t taps) { return blocks.count() * taps * blocks.in * kBlock; }

// The weights of a phase: [block][tap][channel of x][lane]. w: [group][...][taps of the kernel], where output channels
// lie out_step, those of x in_step apart.
void arrange(const ConvCall& c, const GroupBlocks& blocks, const Phase& phase, const float* w, int64_t out_step,
             int64_t in_step, float* to) {
  const int64_t taps = c.kernel[1] * c.kernel[2], group = blocks.in * blocks.out * taps, line = blocks.in * kBlock;
  const Window& window = phase.window;
  std::fill_n(to, filter_count(blocks, window.tap_count()), 0.0f);
  for (int64_t b = 0; b < blocks.count(); ++b, to += window.tap_count() * line) {
    blocks.for_each_lane(b, [&](int64_t lane, int64_t g, int64_t o) {
      const float* from = w + g * group + o * out_step;
      for (int64_t t = 0; t < window.tap_count(); ++t) {
        const int64_t y = phase.first[1] + t / window.taps[2] * phase.tap_skip[1];
        const int64_t k = y * c.kernel[2] + phase.first[2] + t % window.taps[2] * phase.tap_skip[2];
        for (int64_t i = 0; i < blocks.in; ++i) to[t * line + i * kBlock + lane] = from[i * in_step + k];
      }
    });
  }
}

// The same with the taps reversed where they run backwards.
Phase forwards(const Phase& phase) {
  Phase p = phase;
  Window& w = p.window;
  for (int d = 0; d < 3; ++d) {
    if (w.tap_step[d] >= 0) continue;
    w.base[d] += (w.taps[d] - 1) * w.tap_step[d], w.tap_step[d] = -w.tap_step[d];
    p.first[d] += (w.taps[d] - 1) * p.tap_skip[d], p.tap_skip[d] = -p.tap_skip[d];
  }
  return p;
}

}  // namespace

bool groups_pay(const ConvCall& c) {
  return c.dtype == DType::f32 && c.channels_last && c.groups > 1 && !is_depthwise(c) && c.kernel[0] == 1 &&
         c.c_in > 0 && c.c_in <= kWide * c.groups && c.c_out <= kWide * c.groups;
}

int64_t group_filter_bytes(const ConvCall& c) {
  return filter_count(forward_blocks(c), c.kernel[1] * c.kernel[2]) * static_cast<int64_t>(sizeof(float));
}
void arrange_group_filters(const ConvCall& c, const void* w, void* out) {
  const int64_t taps = c.kernel[1] * c.kernel[2];
  arrange(c, forward_blocks(c), whole_phase(forward_window(c)), static_cast<const float*>(w), c.c_in / c.groups * taps,
          taps, static_cast<float*>(out));
}

void run_groups(const ConvCall& c) {
  const Workspace<char> own(c.packed ? 0 : group_filter_bytes(c));
  if (!c.packed) arrange_group_filters(c, c.w, own.data());
  const char* filters = c.packed ? c.packed->filters->data() : own.data();
  GroupPass pass{.phase = whole_phase(forward_window(c)), .blocks = forward_blocks(c), .n = c.n};
  pass.x = static_cast<const float*>(c.x), pass.filters = reinterpret_cast<const float*>(filters);
  pass.bias = static_cast<const float*>(c.bias), pass.residual = static_cast<const float*>(c.residual);
  pass.activation = c.activation, pass.y = static_cast<float*>(c.y);
  std::copy_n(c.out, 3, pass.y_size);
  HWY_DYNAMIC_DISPATCH(groups_any)(pass);
}

void run_groups_input(const ConvCall& c, const std::vector<Phase>& phases, const void* dy, void* dx) {
  const GroupBlocks blocks = input_blocks(c);
  const int64_t taps = c.kernel[1] * c.kernel[2], spatial = c.out[0] * c.out[1] * c.out[2];
  const Workspace<float> filters(filter_count(blocks, taps));
  const auto of_phase = [&](const Phase& phase, float*& next) {
    GroupPass pass{.phase = forwards(phase), .blocks = blocks, .n = c.n};
    pass.x = static_cast<const float*>(dy), pass.bias = static_cast<const float*>(c.bias);
    pass.filters = next, next += filter_count(blocks, phase.window.tap_count());
    pass.y = static_cast<float*>(dx);
    std::copy_n(c.in, 3, pass.y_size);
    return pass;
  };
  float* next = filters.data();
  for (const Phase& phase : phases) {
    float* to = next;
    arrange(c, blocks, of_phase(phase, next).phase, static_cast<const float*>(c.w), taps, blocks.out * taps, to);
  }
  // All phases read dy while it is in cache.
  const int64_t samples = phases.size() == 1 ? c.n : 1;
  run_each(c.n / samples, [&](int64_t n) {
    float* from = filters.data();
    for (const Phase& phase : phases) {
      GroupPass pass = of_phase(phase, from);
      pass.n = samples;
      pass.x += n * spatial * c.c_out, pass.y += n * c.in[0] * c.in[1] * c.in[2] * c.c_in;
      if (phase.window.tap_count() > 0) HWY_DYNAMIC_DISPATCH(groups_any)(pass);
    }
  });
}

}  // namespace deft::cpu::detail
#endif  // HWY_ONCE
