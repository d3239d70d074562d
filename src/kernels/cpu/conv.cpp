#include "kernels/cpu/conv.h"

#include "kernels/cpu/conv_internal.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/workspace.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace detail {
namespace {

// One side of a convolution as products: out positions x (taps * source channels) times that x out channels.
template <class T>
struct Product {
  Phase phase;
  Source source;
  int64_t n, out_channels, all_out_channels;  // per group, and in memory
  const T* x;                                 // of this group
  const T* w;                                 // element (row r, out channel o) at r * w_row + o * w_col
  int64_t w_row, w_col;
  const T* bias;
  T* y;
  int64_t y_size[3];
  bool channels_last;

  int64_t depth() const { return source.channels * phase.window.tap_count(); }
  int64_t y_spatial() const { return y_size[0] * y_size[1] * y_size[2]; }
  bool dense_output() const { return phase.step[0] == 1 && phase.step[1] == 1 && phase.step[2] == 1; }
  // The source needs no copy: each position reads its own pixel.
  bool pointwise() const {
    const Window& w_ = phase.window;
    bool same = w_.tap_count() == 1;
    for (int d = 0; d < 3; ++d) same = same && w_.step[d] == 1 && w_.base[d] == 0 && w_.count[d] == w_.size[d];
    return same;
  }
};

// Moves a tile (position-major or channel-major) to where its positions lie in y.
template <class T>
void place(const Product<T>& p, const T* tile, int64_t q0, int64_t q1) {
  const Window& w = p.phase.window;
  const int64_t width = q1 - q0, spatial = p.y_spatial();
  for (int64_t q = q0; q < q1; ++q) {
    const int64_t x = q % w.count[2], y = q / w.count[2] % w.count[1];
    const int64_t z = q / (w.count[2] * w.count[1]) % w.count[0], n = q / w.positions();
    const int64_t line =
        (p.phase.start[0] + z * p.phase.step[0]) * p.y_size[1] + p.phase.start[1] + y * p.phase.step[1];
    const int64_t at = line * p.y_size[2] + p.phase.start[2] + x * p.phase.step[2];
    if (p.channels_last) {
      T* to = p.y + (n * spatial + at) * p.all_out_channels;
      std::copy_n(tile + (q - q0) * p.out_channels, p.out_channels, to);
    } else {
      T* to = p.y + n * p.all_out_channels * spatial + at;
      for (int64_t o = 0; o < p.out_channels; ++o) to[o * spatial] = tile[o * width + q - q0];
    }
  }
}

// Positions [q0, q1) of the flattened (n, position) range.
template <class T>
void run_tile(const Product<T>& p, int64_t q0, int64_t q1) {
  const int64_t width = q1 - q0, depth = p.depth(), positions = p.phase.window.positions();
  const bool one_sample = q0 / positions == (q1 - 1) / positions;
  const bool direct = p.dense_output() && (p.channels_last || one_sample);
  const bool copy = depth > 0 && !(p.pointwise() && (p.channels_last || one_sample));
  Workspace<T> columns(copy ? depth * width : 0);
  Workspace<T> tile(direct ? 0 : p.out_channels * width);
  if (copy) gather(p.phase.window, p.source, p.x, q0, q1, columns.data());

  GemmCall g{};
  g.dtype = dtype_of<T>;
  g.m = width, g.n = p.out_channels, g.k = depth;
  g.b = p.w, g.b_row = p.w_row, g.b_col = p.w_col;
  g.bias = p.bias;
  const int64_t n = q0 / positions, at = q0 % positions;
  if (copy) {
    g.a = columns.data();
    g.a_row = p.channels_last ? depth : 1;
    g.a_col = p.channels_last ? 1 : width;
  } else if (p.channels_last) {
    g.a = p.x + q0 * p.source.all_channels;
    g.a_row = p.source.all_channels, g.a_col = 1;
  } else {
    g.a = p.x + n * p.source.all_channels * positions + at;
    g.a_row = 1, g.a_col = positions;
  }
  if (!direct) {
    g.c = tile.data();
    g.c_row = p.channels_last ? p.out_channels : 1;
    g.c_col = p.channels_last ? 1 : width;
  } else if (p.channels_last) {
    g.c = p.y + q0 * p.all_out_channels;
    g.c_row = p.all_out_channels, g.c_col = 1;
  } else {
    g.c = p.y + n * p.all_out_channels * positions + at;
    g.c_row = 1, g.c_col = positions;
  }
  gemm(g);
  if (!direct) place(p, tile.data(), q0, q1);
}

// How the flattened range is cut: by sizes only, never by the number of threads.
template <class T>
struct Tiling {
  int64_t width, per_sample, tiles, positions, total;
  explicit Tiling(const Product<T>& p) {
    positions = p.phase.window.positions();
    total = positions * p.n;
    const bool samples = p.channels_last || positions < 256;  // a tile may span samples
    width = tile_positions(p.depth(), sizeof(T), samples ? total : positions);
    per_sample = samples ? 0 : (positions + width - 1) / width;
    tiles = samples ? (total + width - 1) / width : per_sample * p.n;
  }
  void run(const Product<T>& p, int64_t t) const {
    if (per_sample == 0) return run_tile(p, t * width, std::min(total, (t + 1) * width));
    const int64_t n = t / per_sample, i = t % per_sample;
    run_tile(p, n * positions + i * width, n * positions + std::min(positions, (i + 1) * width));
  }
};

// make(group) gives the product of one group. All groups have the same sizes.
template <class T, class Make>
void run_groups(int64_t groups, Make make) {
  const Product<T> first = make(0);
  const Tiling<T> tiling(first);
  const int64_t tasks = groups * tiling.tiles;
  const double work = static_cast<double>(tiling.width) * static_cast<double>(first.depth() * first.out_channels);
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) tiling.run(make(t / tiling.tiles), t % tiling.tiles);
  };
  // Few tiles: the steps inside a tile are parallel instead.
  if (tasks < 2 * num_threads() && work > 1e5) return run(0, tasks);
  parallel_for(0, tasks, std::max<int64_t>(1, static_cast<int64_t>(64 * 1024 / std::max(work, 1.0))), run);
}

template <class T>
void forward(const ConvCall& c) {
  const int64_t cg = c.c_in / c.groups, og = c.c_out / c.groups;
  const Window window = forward_window(c);
  const int64_t taps = window.tap_count(), depth = cg * taps;
  if (c.n * c.c_out * window.positions() == 0) return;
  const T* x = static_cast<const T*>(c.x);
  const T* w = static_cast<const T*>(c.w);
  const T* bias = static_cast<const T*>(c.bias);
  T* y = static_cast<T*>(c.y);
  if (cg == 1 && og == 1 && c.groups > 1) {
    return depthwise(whole_phase(window), c, c.c_out, x, c.c_in, w, bias, y, c.out);
  }
  // Channels last gathers (tap, channel): the weight is put in the same order.
  const bool reorder = c.channels_last && taps > 1 && cg > 1;
  Workspace<T> ordered(reorder ? c.c_out * depth : 0);
  if (reorder) {
    for (int64_t o = 0; o < c.c_out; ++o) {
      for (int64_t t = 0; t < taps; ++t) {
        for (int64_t i = 0; i < cg; ++i) ordered[(o * taps + t) * cg + i] = w[(o * cg + i) * taps + t];
      }
    }
    w = ordered.data();
  }
  const int64_t in = window.source(), out = window.positions();
  run_groups<T>(c.groups, [&](int64_t g) {
    Product<T> p{whole_phase(window),
                 {cg, c.c_in, c.channels_last},
                 c.n,
                 og,
                 c.c_out,
                 x + g * cg * (c.channels_last ? 1 : in),
                 w + g * og * depth,
                 1,
                 depth,
                 bias ? bias + g * og : nullptr,
                 y + g * og * (c.channels_last ? 1 : out),
                 {c.out[0], c.out[1], c.out[2]},
                 c.channels_last};
    return p;
  });
}

// The weight as (tap, output channel) or (output channel, tap) rows by input channels, taps of one phase only.
template <class T>
void order_weight(const ConvCall& c, const Phase& p, const T* w, T* out) {
  const int64_t cg = c.c_in / c.groups, og = c.c_out / c.groups;
  const int64_t taps = p.window.tap_count(), all = c.kernel[0] * c.kernel[1] * c.kernel[2];
  for (int64_t g = 0; g < c.groups; ++g, out += og * taps * cg) {
    int64_t t = 0;
    for (int64_t z = 0; z < p.window.taps[0]; ++z) {
      for (int64_t y = 0; y < p.window.taps[1]; ++y) {
        for (int64_t x = 0; x < p.window.taps[2]; ++x, ++t) {
          const int64_t line = (p.first[0] + z * p.tap_skip[0]) * c.kernel[1] + p.first[1] + y * p.tap_skip[1];
          const int64_t k = line * c.kernel[2] + p.first[2] + x * p.tap_skip[2];
          for (int64_t o = 0; o < og; ++o) {
            const int64_t row = c.channels_last ? t * og + o : o * taps + t;
            const T* from = w + (g * og + o) * cg * all + k;
            for (int64_t i = 0; i < cg; ++i) out[row * cg + i] = from[i * all];
          }
        }
      }
    }
  }
}

template <class T>
void backward_input_phase(const ConvCall& c, const Phase& phase, const T* dy, T* dx) {
  const int64_t cg = c.c_in / c.groups, og = c.c_out / c.groups;
  const T* bias = static_cast<const T*>(c.bias);
  const int64_t depth = og * phase.window.tap_count();
  Workspace<T> w(c.groups * depth * cg);
  order_weight(c, phase, static_cast<const T*>(c.w), w.data());
  if (cg == 1 && og == 1 && c.groups > 1) {
    return depthwise(phase, c, c.c_in, dy, c.c_out, w.data(), bias, dx, c.in);
  }
  const int64_t in = c.in[0] * c.in[1] * c.in[2], out = c.out[0] * c.out[1] * c.out[2];
  run_groups<T>(c.groups, [&](int64_t g) {
    Product<T> p{phase,
                 {og, c.c_out, c.channels_last},
                 c.n,
                 cg,
                 c.c_in,
                 dy + g * og * (c.channels_last ? 1 : out),
                 w.data() + g * depth * cg,
                 cg,
                 1,
                 bias ? bias + g * cg : nullptr,
                 dx + g * cg * (c.channels_last ? 1 : in),
                 {c.in[0], c.in[1], c.in[2]},
                 c.channels_last};
    return p;
  });
}

template <class T>
void backward_input(const ConvCall& c, const T* dy, T* dx) {
  if (c.n * c.c_in * c.in[0] * c.in[1] * c.in[2] == 0) return;
  int64_t r[3];
  for (r[0] = 0; r[0] < c.stride[0]; ++r[0]) {
    for (r[1] = 0; r[1] < c.stride[1]; ++r[1]) {
      for (r[2] = 0; r[2] < c.stride[2]; ++r[2]) {
        Phase phase;
        if (input_phase(c, r, phase)) backward_input_phase(c, phase, dy, dx);
      }
    }
  }
}

}  // namespace
}  // namespace detail

void conv_forward(const ConvCall& call) {
  const ConvCall c = detail::normalized(call, "conv");
  dispatch_floating(c.dtype, [&]<class T>() { detail::forward<T>(c); });
}

void conv_backward_input(const ConvCall& call, const void* dy, void* dx) {
  const ConvCall c = detail::normalized(call, "conv_backward_input");
  dispatch_floating(c.dtype,
                    [&]<class T>() { detail::backward_input<T>(c, static_cast<const T*>(dy), static_cast<T*>(dx)); });
}

}  // namespace deft::cpu
