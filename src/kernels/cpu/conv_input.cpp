// Gradient of the convolution input, which is also the forward of a transposed convolution: dy is the source, and each
// residue class of input positions modulo the stride is a convolution of its own.
#include <atomic>

#include "base/check.h"
#include "kernels/cpu/conv_internal.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace detail {
namespace {

constexpr int64_t kChunk = 64;  // output channels whose weights are read together

struct Phases {
  std::vector<Phase> all;           // that hold a position
  std::vector<int64_t> first;       // taps of the phases before
  std::vector<int64_t> phase, tap;  // of each kernel tap: its phase (or -1) and its place there
  bool empty = false;               // some phase has no taps
};

Phases find_phases(const ConvCall& c) {
  const auto taps = static_cast<size_t>(c.kernel[0] * c.kernel[1] * c.kernel[2]);
  Phases p;
  p.phase.assign(taps, -1), p.tap.assign(taps, 0);
  int64_t r[3], before = 0;
  for (r[0] = 0; r[0] < c.stride[0]; ++r[0]) {
    for (r[1] = 0; r[1] < c.stride[1]; ++r[1]) {
      for (r[2] = 0; r[2] < c.stride[2]; ++r[2]) {
        Phase phase;
        if (!input_phase(c, r, phase)) continue;
        const Window& w = phase.window;
        for (int64_t t = 0; t < w.tap_count(); ++t) {
          const int64_t at[3] = {t / (w.taps[2] * w.taps[1]), t / w.taps[2] % w.taps[1], t % w.taps[2]};
          int64_t k = 0;
          for (int d = 0; d < 3; ++d) k = k * c.kernel[d] + phase.first[d] + at[d] * phase.tap_skip[d];
          p.phase[static_cast<size_t>(k)] = static_cast<int64_t>(p.all.size());
          p.tap[static_cast<size_t>(k)] = t;
        }
        p.empty = p.empty || w.tap_count() == 0;
        p.all.push_back(phase);
        p.first.push_back(before);
        before += w.tap_count();
      }
    }
  }
  return p;
}

// dx = bias everywhere.
template <class T>
void fill_bias(const ConvCall& c, T* dx) {
  const int64_t spatial = c.in[0] * c.in[1] * c.in[2];
  const T* bias = static_cast<const T*>(c.bias);
  const int64_t rows = c.channels_last ? c.n * spatial : c.n * c.c_in, row = c.channels_last ? c.c_in : spatial;
  parallel_for(0, rows, std::max<int64_t>(1, 65536 / row), [&](int64_t begin, int64_t end) {
    if (!bias) return std::fill(dx + begin * row, dx + end * row, T(0.0f));
    for (int64_t i = begin; i < end; ++i) {
      if (c.channels_last) {
        std::copy_n(bias, row, dx + i * row);
      } else {
        std::fill_n(dx + i * row, row, bias[i % c.c_in]);
      }
    }
  });
}

// ---- All phases in one product. With few input channels a phase fills a small part of a tile: the channels of all
// phases next to each other fill it better, though they all read the union of their windows, with zeros as weights.

struct Union {
  Window window;
  int64_t base[3];  // offset of the union's first tap
};
Union join_windows(const ConvCall& c, const Phases& p) {
  Union u;
  for (int d = 0; d < 3; ++d) {
    int64_t low = INT64_MAX, high = INT64_MIN, count = 0;
    for (const Phase& phase : p.all) {
      const Window& w = phase.window;
      count = std::max(count, w.count[d]);
      if (w.taps[d] == 0) continue;
      low = std::min(low, w.base[d] - w.taps[d] + 1);
      high = std::max(high, w.base[d]);
    }
    u.base[d] = high;
    u.window.count[d] = count, u.window.step[d] = 1, u.window.base[d] = high, u.window.taps[d] = high - low + 1;
    u.window.tap_step[d] = -1, u.window.size[d] = c.out[d];
  }
  return u;
}

int64_t round_up(int64_t x, int64_t step) { return (x + step - 1) / step * step; }

bool joining_pays(const ConvCall& c, const Phases& p, const Union& u) {
  if (!c.channels_last || c.groups > 1 || p.all.size() < 2) return false;
  for (int d = 0; d < 3; ++d) {
    if (c.dilation[d] != 1) return false;
  }
  const int64_t nr = gemm_tiles(panel_for(c.dtype))[0].nr, phases = static_cast<int64_t>(p.all.size());
  int64_t apart = 0;
  for (const Phase& phase : p.all) apart += phase.window.tap_count() * round_up(c.c_in, nr);
  return 3 * u.window.tap_count() * round_up(phases * c.c_in, nr) <= 2 * apart;
}

// A zero weight times infinity or NaN is NaN: the sums of other phases would not stay apart.
template <class Bits>
bool all_finite(const Bits* x, int64_t count, Bits exponent) {
  std::atomic<bool> finite{true};
  parallel_for(0, count, 65536, [&](int64_t begin, int64_t end) {
    Bits found = 0;
    for (int64_t i = begin; i < end; ++i) found |= static_cast<Bits>((x[i] & exponent) == exponent);
    if (found) finite.store(false, std::memory_order_relaxed);
  });
  return finite.load(std::memory_order_relaxed);
}
bool all_finite(DType dtype, const void* x, int64_t count) {
  switch (dtype) {
    case DType::f32:
      return all_finite<uint32_t>(static_cast<const uint32_t*>(x), count, 0x7f800000);
    case DType::f64:
      return all_finite<uint64_t>(static_cast<const uint64_t*>(x), count, 0x7ff0000000000000);
    default:
      return all_finite<uint16_t>(static_cast<const uint16_t*>(x), count, dtype == DType::bf16 ? 0x7f80 : 0x7c00);
  }
}

template <class T>
void run_joined(const ConvCall& c, const Phases& p, const Union& u, const T* dy, T* dx) {
  const int64_t phases = static_cast<int64_t>(p.all.size()), columns = phases * c.c_in;
  const Window& w = u.window;
  const int64_t taps = w.tap_count(), depth = taps * c.c_out, positions = w.positions();
  const int64_t kernel = c.kernel[0] * c.kernel[1] * c.kernel[2];
  Workspace<T> weight(depth * columns), bias(columns), rows(c.n * positions * columns);
  std::fill_n(weight.data(), depth * columns, T(0.0f));
  for (int64_t k = 0; k < kernel; ++k) {
    const int64_t i = p.phase[static_cast<size_t>(k)];
    if (i < 0) continue;
    const Window& v = p.all[static_cast<size_t>(i)].window;
    int64_t rest = p.tap[static_cast<size_t>(k)], t = 0, scale = 1;
    for (int d = 2; d >= 0; --d) {  // a tap of the phase is the same offset in the union
      t += (u.base[d] - v.base[d] + rest % v.taps[d]) * scale;
      scale *= w.taps[d];
      rest /= v.taps[d];
    }
    const T* from = static_cast<const T*>(c.w) + k;
    for (int64_t o = 0; o < c.c_out; ++o) {
      T* to = weight.data() + (t * c.c_out + o) * columns + i * c.c_in;
      for (int64_t j = 0; j < c.c_in; ++j) to[j] = from[(o * c.c_in + j) * kernel];
    }
  }
  for (int64_t i = 0; c.bias && i < columns; ++i) bias[i] = static_cast<const T*>(c.bias)[i % c.c_in];
  ConvPass pass{.phase = whole_phase(w), .source = {c.c_out, c.c_out, true}, .n = c.n};
  pass.x_dtype = pass.y_dtype = c.dtype;
  pass.out_channels = pass.all_out_channels = columns;
  pass.x = dy, pass.y = rows.data();
  pass.w = {c.dtype, weight.data(), 1, columns};
  std::copy_n(w.count, 3, pass.y_size);
  pass.epilogue.bias = c.bias ? bias.data() : nullptr;
  pass.epilogue.bias_dtype = c.dtype;
  run_pass(pass);
  const int64_t grain = std::max<int64_t>(1, 16384 / (w.count[2] * columns));
  parallel_for(0, c.n * w.count[0] * w.count[1], grain, [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) {
      const int64_t y = line % w.count[1], z = line / w.count[1] % w.count[0], n = line / (w.count[1] * w.count[0]);
      for (int64_t i = 0; i < phases; ++i) {
        const Phase& phase = p.all[static_cast<size_t>(i)];
        const int64_t pz = z * phase.step[0] + phase.start[0], py = y * phase.step[1] + phase.start[1];
        if (pz >= c.in[0] || py >= c.in[1]) continue;
        T* to = dx + (((n * c.in[0] + pz) * c.in[1] + py) * c.in[2] + phase.start[2]) * c.c_in;
        const T* from = rows.data() + line * w.count[2] * columns + i * c.c_in;
        for (int64_t x = 0; x < phase.window.count[2]; ++x, from += columns, to += phase.step[2] * c.c_in) {
          for (int64_t j = 0; j < c.c_in; ++j) to[j] = from[j];
        }
      }
    }
  });
}

// w: of this phase, ordered; or null where TapWeight fits.
void run_phase(const ConvCall& c, const Phase& phase, const void* dy, const void* w, void* dx) {
  const int64_t cg = c.c_in / c.groups, og = c.c_out / c.groups, depth = og * phase.window.tap_count();
  const int64_t spatial_in = c.in[0] * c.in[1] * c.in[2], spatial_out = phase.window.source();
  const int64_t taps = c.kernel[0] * c.kernel[1] * c.kernel[2], chunk = og % kChunk == 0 ? kChunk : og;
  run_each(c.groups, [&](int64_t g) {
    const TapWeight direct(c.dtype, at(c.w, g * og * cg * taps, c.dtype), cg, taps, chunk);
    ConvPass s{.phase = phase, .source = {og, c.c_out, c.channels_last}, .n = c.n};
    s.x_dtype = s.y_dtype = c.dtype;
    s.out_channels = cg, s.all_out_channels = c.c_in;
    s.x = at(dy, g * og * (c.channels_last ? 1 : spatial_out), c.dtype);
    s.y = at(dx, g * cg * (c.channels_last ? 1 : spatial_in), c.dtype);
    if (w) {
      s.w = {c.dtype, at(w, g * depth * cg, c.dtype), 1, cg};
    } else {
      s.weight = &direct, s.chunk = chunk;
    }
    std::copy_n(c.in, 3, s.y_size);
    s.epilogue.bias_dtype = c.dtype;
    if (c.bias) s.epilogue.bias = at(c.bias, g * cg, c.dtype);
    run_pass(s);
  });
}

void backward_input(const ConvCall& c, const void* dy, void* dx) {
  if (c.n * c.c_in * c.in[0] * c.in[1] * c.in[2] == 0) return;
  const auto fill = [&] { dispatch_floating(c.dtype, [&]<class T>() { fill_bias(c, static_cast<T*>(dx)); }); };
  if (c.c_out * c.out[0] * c.out[1] * c.out[2] == 0) return fill();
  const Phases phases = find_phases(c);
  if (phases.empty) {
    fill();
  } else if (const Union u = join_windows(c, phases);
             joining_pays(c, phases, u) && all_finite(c.dtype, dy, c.n * c.c_out * c.out[0] * c.out[1] * c.out[2])) {
    return dispatch_floating(
        c.dtype, [&]<class T>() { run_joined(c, phases, u, static_cast<const T*>(dy), static_cast<T*>(dx)); });
  }
  const int64_t cg = c.c_in / c.groups, og = c.c_out / c.groups, taps = c.kernel[0] * c.kernel[1] * c.kernel[2];
  const int64_t rows = c.c_out * taps, size = static_cast<int64_t>(size_of(c.dtype));
  // Weights by phase, then (tap, output channel) or (output channel, tap), input channels innermost. Taps of no phase
  // go behind them.
  const bool order = taps > 1 && (is_depthwise(c) || !TapWeight::fits(c, gemm_tiles(panel_for(c.dtype))[0]));
  Workspace<char> ordered(order ? (rows + c.c_out) * cg * size : 0);
  if (order) {
    order_weight(c, c.dtype, c.w, ordered.data(), [&](int64_t g, int64_t o, int64_t k) {
      const auto at_k = static_cast<size_t>(k);
      if (phases.phase[at_k] < 0) return rows + g * og + o;
      const auto i = static_cast<size_t>(phases.phase[at_k]);
      const int64_t t = phases.tap[at_k], count = phases.all[i].window.tap_count();
      return (phases.first[i] * c.groups + g * count) * og + (c.channels_last ? t * og + o : o * count + t);
    });
  }
  ConvCall plain = c;
  plain.residual = nullptr, plain.activation = Activation::none, plain.packed = nullptr;
  for (size_t i = 0; i < phases.all.size(); ++i) {
    const Phase& phase = phases.all[i];
    if (phase.window.tap_count() == 0) continue;
    const void* w = order ? at(ordered.data(), phases.first[i] * c.c_out * cg, c.dtype) : taps == 1 ? c.w : nullptr;
    if (is_depthwise(c)) {
      depthwise(phase, plain, c.c_in, dy, w, dx, c.in);
    } else {
      run_phase(c, phase, dy, w, dx);
    }
  }
}

}  // namespace
}  // namespace detail

void conv_backward_input(const ConvCall& call, const void* dy, void* dx) {
  DEFT_CHECK(is_floating(call.dtype), DTypeError, "conv_backward_input: found {}, expected a floating type; cast first",
             name_of(call.dtype));
  detail::backward_input(detail::normalized(call, "conv_backward_input"), dy, dx);
}

}  // namespace deft::cpu
