// Weight gradient: dy^T times the input of each position, a sum over samples and positions.
#include "base/check.h"
#include "kernels/cpu/conv/conv_internal.h"
#include "kernels/cpu/copy/streaming_store.h"
#include "kernels/cpu/gemm/gemm_tn.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace detail {
namespace {

constexpr int64_t kGrain = 16 * 1024;
constexpr int64_t kChain = 16 * 1024;         // positions that are summed in one go
constexpr int64_t kLargeBytes = 2 << 20;      // of a gradient that does not stay in cache while it is computed,
constexpr int64_t kChannelBytes = 512 << 10;  // and of the part of it that does
// With one tap, AMX and packing are faster than tiles on rows in place (256 to 128 channels on 56 x 56 positions, eight
// images: 10.2 ms instead of 14.0; with 64 channels 8.2 and 6.3).
constexpr int64_t kPackChannels = 128;

// An operand from a given line and position of k on.
class Part final : public PanelSource {
 public:
  Part(const PanelSource& whole, int64_t line, int64_t k) : whole_(whole), line_(line), k_(k) {
    if (const StridedMatrix* m = whole.strided()) {
      matrix_ = *m;
      matrix_.in = at(m->in, line * m->line + k * m->step, m->dtype);
    }
  }
  void pack(const GemmTile& tile, Side side, int64_t l0, int64_t lines, int64_t k0, int64_t k, void* out,
            int32_t* sums) const override {
    whole_.pack(tile, side, line_ + l0, lines, k_ + k0, k, out, sums);
  }
  const StridedMatrix* strided() const override { return matrix_.in ? &matrix_ : nullptr; }

 private:
  const PanelSource& whole_;
  int64_t line_, k_;
  StridedMatrix matrix_{};
};

// Few outputs and many positions: partial sums over fixed ranges of positions, added in order. Depends on sizes only.
int64_t split_count(int64_t outputs, int64_t positions) {
  return std::max<int64_t>(1, std::min<int64_t>({16, positions / 2048, 131072 / outputs}));
}

// One output channel: its parts are added, put in memory order (unless taps are innermost already) and rounded. `line`
// is room for two of them. stream: dw is written with streaming stores.
template <class T, class Acc>
void finish_channel(const Acc* part, int64_t part_step, int64_t parts, int64_t cg, int64_t taps, bool taps_inside,
                    Acc* line, T* dw, bool stream = false) {
  using Bits = std::conditional_t<sizeof(Acc) == 4, uint32_t, uint64_t>;
  const int64_t depth = cg * taps;
  if (parts > 1) {
    std::copy_n(part, depth, line);
    for (int64_t s = 1; s < parts; ++s) {
      for (int64_t i = 0; i < depth; ++i) line[i] += part[s * part_step + i];
    }
    part = line;
  }
  if (!taps_inside) {
    Acc* to = line + depth;
    if constexpr (std::is_same_v<T, Acc>) to = stream ? to : dw;
    join_taps(reinterpret_cast<const Bits*>(part), taps, cg, reinterpret_cast<Bits*>(to));
    part = to;
  }
  if (static_cast<const void*>(part) == dw) return;
  if constexpr (std::is_same_v<T, Acc>) {
    if (stream) return stream_copy(dw, part, static_cast<size_t>(depth) * sizeof(T));
  }
  for (int64_t i = 0; i < depth; ++i) dw[i] = static_cast<T>(part[i]);
}

// All channels of a group.
template <class T, class Acc>
void finish_channels(const ConvCall& c, const Acc* sums, int64_t parts, bool taps_inside, T* dw) {
  const int64_t cg = c.c_in / c.groups, og = c.c_out / c.groups, taps = c.kernel[0] * c.kernel[1] * c.kernel[2];
  const int64_t depth = cg * taps;
  parallel_for(0, og, std::max<int64_t>(1, kGrain / (depth * parts)), [&](int64_t begin, int64_t end) {
    Workspace<Acc> line(2 * depth);
    for (int64_t o = begin; o < end; ++o) {
      finish_channel(sums + o * depth, og * depth, parts, cg, taps, taps_inside, line.data(), dw + o * depth);
    }
  });
}

// Large gradients, some channels at a time: their sums are still in cache when they are put in memory order. For 512 x
// 512 x 3 x 3 and 49 positions that takes 0.9 of the time, and streaming stores 0.93 of that.
template <class T>
void sum_some_channels(const BlockedGemm& whole, const PanelSource& a, const PanelSource& b, int64_t cg, int64_t taps,
                       T* dw) {
  using Acc = accumulate_t<T>;
  const int64_t og = whole.m, depth = whole.n, mr = whole.tile->mr;
  const int64_t near = kChannelBytes / (depth * static_cast<int64_t>(sizeof(Acc)) * mr);
  // f32 gives work to all threads: a last tile of few rows has the same bits wherever the cut is (not so with AMX).
  const bool f32 = whole.tile->panel == Panel::f32 || whole.tile->panel == Panel::split;
  const bool shares = num_threads() > 1 && f32;
  const int64_t shared = shares ? og / (2 * num_threads() * mr) : near;
  const int64_t rows = std::max<int64_t>(1, std::min(near, shared)) * mr;
  const PackedMatrix packed(*whole.tile, Side::b, b, depth, whole.k);
  const bool stream = streams(og * depth * static_cast<int64_t>(sizeof(T)));
  parallel_balanced(0, (og + rows - 1) / rows, 1, [&](int64_t begin, int64_t end) {
    Workspace<Acc> sums(rows * depth), line(2 * depth);
    for (int64_t o = begin * rows; o < std::min(og, end * rows); o += rows) {
      const Part some(a, o, 0);
      BlockedGemm p = whole;
      p.m = std::min(rows, og - o);
      p.a = &some, p.b = nullptr, p.packed_b = &packed;
      p.c = sums.data();
      run_blocked_gemm(p);
      for (int64_t i = 0; i < p.m; ++i) {
        finish_channel(sums.data() + i * depth, 0, 1, cg, taps, false, line.data(), dw + (o + i) * depth, stream);
      }
    }
    if (stream) end_stream();
  });
}

// The operands of a group's GEMM; `a` has output channels as lines, `b` the values a position reads. T: of dw.
template <class T>
void sum_positions(const ConvCall& c, const PanelSource& a, const PanelSource& b, T* dw) {
  using Acc = accumulate_t<T>;
  const int64_t cg = c.c_in / c.groups, og = c.c_out / c.groups, taps = c.kernel[0] * c.kernel[1] * c.kernel[2];
  const int64_t depth = cg * taps, total = c.n * c.out[0] * c.out[1] * c.out[2], parts = split_count(og * depth, total);
  const bool taps_inside = !c.channels_last || taps == 1 || cg == 1;
  BlockedGemm p{.tile = &best_tile(panel_for(c.dtype, og, depth, total), og, depth), .m = og, .n = depth, .k = total};
  p.a = &a, p.b = &b;
  p.c_row = depth;
  if (parts == 1 && taps_inside) {
    p.c = dw, p.c_dtype = dtype_of<T>;
    return run_blocked_gemm(p);
  }
  p.c_dtype = dtype_of<Acc>;
  if (parts == 1 && og * depth * static_cast<int64_t>(sizeof(Acc)) >= kLargeBytes) {
    return sum_some_channels(p, a, b, cg, taps, dw);
  }
  Workspace<Acc> sums(parts * og * depth);
  const int64_t step = p.tile->padded_k((total + parts - 1) / parts);
  parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      const Part part_a(a, 0, s * step), part_b(b, 0, s * step);
      BlockedGemm part = p;
      part.a = &part_a, part.b = &part_b;
      part.k = std::clamp<int64_t>(total - s * step, 0, step);
      part.c = sums.data() + s * og * depth;
      run_blocked_gemm(part);
    }
  });
  finish_channels(c, sums.data(), parts, taps_inside, dw);
}

// For rows of x that are copied with padding, not packed.
void sum_padded_rows(const ConvCall& c, const Window& window, const float* dy, float* dw) {
  const int64_t outputs = c.c_out * c.c_in * window.tap_count(), positions = c.n * window.positions();
  const int64_t chains = (positions + kChain - 1) / kChain;
  const int64_t parts = std::min(c.n * window.count[1], std::max(chains, split_count(outputs, positions)));
  Workspace<float> sums(parts * outputs);
  sum_weight_tn(c, window, parts, dy, sums.data());
  finish_channels(c, sums.data(), parts, false, dw);
}

template <class T, class D>
void group_weight(const ConvCall& c, const Window& window, int64_t g, const T* x, const T* dy, D* dw) {
  const int64_t cg = c.c_in / c.groups, og = c.c_out / c.groups;
  dw += g * og * cg * window.tap_count();
  const Source source{cg, c.c_in, c.channels_last};
  if (c.channels_last) {
    x += g * cg, dy += g * og;
    const StridedSource a({c.dtype, dy, 1, c.c_out});
    const StridedSource points({c.dtype, x, 1, c.c_in});
    if constexpr (std::is_same_v<T, float> && std::is_same_v<D, float>) {
      const int64_t positions = c.n * window.positions();
      const bool packs = std::min(og, cg) >= kPackChannels && panel_for(c.dtype, og, cg, positions) == Panel::split;
      if (window.pointwise() && !packs && run_gemm_tn({og, cg, positions, dy, c.c_out, x, c.c_in, dw})) return;
      if (weight_tn_pays(c, window)) return sum_padded_rows(c, window, dy, dw);
    }
    if (window.pointwise()) return sum_positions(c, a, points, dw);
    return sum_positions(c, a, NhwcOperand(window, source, c.dtype, x, Lines::values), dw);
  }
  x += g * cg * window.source(), dy += g * og * window.positions();
  const NchwOperand a(pointwise_window(c.out), {og, c.c_out, false}, c.dtype, dy, Lines::values);
  sum_positions(c, a, NchwOperand(window, source, c.dtype, x, Lines::values), dw);
}

template <class D>
bool sum_tiles(const ConvCall& c, const Window& window, const void* dy, D* dw) {
  const int64_t cg = c.c_in / c.groups, og = c.c_out / c.groups, taps = window.tap_count(), depth = cg * taps;
  return sum_amx(c, window, dy, [&](int64_t group, int64_t first, int64_t count, const float* sums) {
    const Workspace<float> line(2 * depth);
    D* to = dw + (group * og + first) * depth;
    for (int64_t o = 0; o < count; ++o, to += depth) {
      finish_channel(sums + o * depth, 0, 1, cg, taps, false, line.data(), to);
    }
  });
}

template <class T, class D>
void backward_weight(const ConvCall& c, const T* dy, D* dw) {
  const Window window = forward_window(c);
  const int64_t cg = c.c_in / c.groups, size = c.c_out * cg * window.tap_count();
  if (size == 0) return;
  if (c.n * window.positions() == 0) return std::fill(dw, dw + size, D(0.0f)), void();
  if (runs_copied_weight(c)) return weight_copied(c, dy, dw);
  if (merged_groups(c) > 1) return weight_merged(c, dy, dw);
  if (is_depthwise(c)) {
    DEFT_ASSERT((std::is_same_v<T, D>));
    return depthwise_weight(c, dy, dw);
  }
  if constexpr (std::is_same_v<T, float> && std::is_same_v<D, float>) {
    if (groups_pay(c)) return run_groups_weight(c, dy, dw);
  }
  if constexpr (sizeof(T) <= 4) {
    if (amx_weight_pays(c, window) && sum_tiles(c, window, dy, dw)) return;
  }
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) group_weight(c, window, g, static_cast<const T*>(c.x), dy, dw);
  };
  if (c.groups < 2 * num_threads()) return run(0, c.groups);  // parallel inside
  parallel_for(0, c.groups, 1, run);
}

}  // namespace
}  // namespace detail

void conv_backward_weight(const ConvCall& call, const void* dy, void* dw) {
  const ConvCall c = detail::normalized(call, "conv_backward_weight");
  DEFT_CHECK(is_floating(c.dtype), DTypeError, "conv_backward_weight: found {}, expected a floating type; cast first",
             name_of(c.dtype));
  dispatch_floating(c.dtype, [&]<class T>() {
    if constexpr (sizeof(T) == 2) {
      if (c.wide_gradient) return detail::backward_weight(c, static_cast<const T*>(dy), static_cast<float*>(dw));
    }
    detail::backward_weight(c, static_cast<const T*>(dy), static_cast<T*>(dw));
  });
}

}  // namespace deft::cpu
