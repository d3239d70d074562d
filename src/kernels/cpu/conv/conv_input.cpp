// Gradient of the convolution input, also the forward of a transposed convolution: dy is the source, and each residue
// class of input positions modulo the stride is a convolution of its own.
#include <algorithm>

#include "base/check.h"
#include "kernels/cpu/conv/conv_internal.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace detail {
namespace {

constexpr int64_t kChunk = 64;             // output channels whose weights are read together
constexpr int64_t kNearBytes = 256 << 10;  // of images of dx and dy that are handled together

struct Phases {
  std::vector<Phase> all;           // phases that hold a position and have taps
  std::vector<int64_t> first;       // number of taps of the phases before
  std::vector<int64_t> phase, tap;  // of each kernel tap: its phase (or -1) and its place there
  bool empty = false;               // some positions have no taps
};

// The residue classes along a dim that hold a position and that a tap reaches, ascending. With strides of thousands
// nearly all classes have no taps.
std::vector<int64_t> reached_classes(const ConvCall& c, int d) {
  const int64_t stride = c.stride[d];
  std::vector<int64_t> reached;
  for (int64_t k = 0; k < std::min(c.kernel[d], stride); ++k) {  // further taps reach the same ones again
    int64_t r = (k * c.dilation[d] - c.pad[d]) % stride;
    if (r < 0) r += stride;
    if (r < c.in[d]) reached.push_back(r);
  }
  std::sort(reached.begin(), reached.end());
  reached.erase(std::unique(reached.begin(), reached.end()), reached.end());
  return reached;
}

Phases find_phases(const ConvCall& c) {
  const auto taps = static_cast<size_t>(c.kernel[0] * c.kernel[1] * c.kernel[2]);
  Phases p;
  p.phase.assign(taps, -1), p.tap.assign(taps, 0);
  int64_t before = 0;
  std::vector<int64_t> reached[3];
  for (int d = 0; d < 3; ++d) {
    reached[d] = reached_classes(c, d);
    p.empty |= static_cast<int64_t>(reached[d].size()) < std::min(c.stride[d], c.in[d]);
  }
  for (int64_t z : reached[0]) {
    for (int64_t y : reached[1]) {
      for (int64_t x : reached[2]) {
        const int64_t r[3] = {z, y, x};
        Phase phase;
        input_phase(c, r, phase);
        const Window& w = phase.window;
        for (int64_t t = 0; t < w.tap_count(); ++t) {
          const int64_t at[3] = {t / (w.taps[2] * w.taps[1]), t / w.taps[2] % w.taps[1], t % w.taps[2]};
          int64_t k = 0;
          for (int d = 0; d < 3; ++d) k = k * c.kernel[d] + phase.first[d] + at[d] * phase.tap_skip[d];
          p.phase[static_cast<size_t>(k)] = static_cast<int64_t>(p.all.size());
          p.tap[static_cast<size_t>(k)] = t;
        }
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

// w: of this phase, ordered; null where TapWeight fits.
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

// Some channels of NCHW, or a sample of NHWC, at a time: they stay in cache for all phases.
void depthwise_phases(const ConvCall& c, const Phases& phases, const void* dy, FunctionRef<const void*(size_t)> weight,
                      void* dx) {
  const int64_t in = c.in[0] * c.in[1] * c.in[2], out = c.out[0] * c.out[1] * c.out[2];
  const bool one = phases.all.size() == 1;
  const int64_t near = kNearBytes / ((in + out) * static_cast<int64_t>(size_of(c.dtype)));
  const int64_t part = one || c.channels_last ? c.c_in : std::clamp<int64_t>(near, 1, c.c_in);
  const int64_t parts = (c.c_in + part - 1) / part;
  ConvCall some = c;
  some.residual = nullptr, some.activation = Activation::none, some.packed = nullptr;
  some.n = one ? c.n : 1;
  run_each(c.n / some.n * parts, [&](int64_t i) {
    const int64_t n = i / parts, first = i % parts * part, channels = std::min(part, c.c_in - first);
    ConvCall call = some;
    if (c.bias) call.bias = at(c.bias, first, c.dtype);
    const char* from = at(dy, (n * c.c_in + first) * out, c.dtype);
    char* to = at(dx, (n * c.c_in + first) * in, c.dtype);
    for (size_t k = 0; k < phases.all.size(); ++k) {
      const Phase& phase = phases.all[k];
      depthwise(phase, call, channels, from, at(weight(k), first * phase.window.tap_count(), c.dtype), to, c.in);
    }
  });
}

void backward_input(const ConvCall& c, const void* dy, void* dx) {
  if (c.n * c.c_in * c.in[0] * c.in[1] * c.in[2] == 0) return;
  const auto fill = [&] { dispatch_floating(c.dtype, [&]<class T>() { fill_bias(c, static_cast<T*>(dx)); }); };
  if (c.c_out * c.out[0] * c.out[1] * c.out[2] == 0) return fill();
  if (runs_copied(c)) return input_copied(c, dy, dx);
  if (merged_groups(c) > 1) return input_merged(c, dy, dx);
  if (scatter_pays(c)) return scatter_input(c, dy, dx);
  const Phases phases = find_phases(c);
  if (phases.empty) fill();
  if (groups_pay(c)) return run_groups_input(c, phases.all, dy, dx);
  const int64_t cg = c.c_in / c.groups, og = c.c_out / c.groups, taps = c.kernel[0] * c.kernel[1] * c.kernel[2];
  const int64_t rows = c.c_out * taps, size = static_cast<int64_t>(size_of(c.dtype));
  // Weights by phase, then (tap, output channel) or (output channel, tap), input channels innermost. Taps of no phase
  // come last.
  const Panel panel = pass_panel(c.dtype, c.n * volume(c.in), cg, og, taps);
  const bool order = taps > 1 && (is_depthwise(c) || !TapWeight::fits(c, gemm_tiles(panel)[0]));
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
  const auto weight = [&](size_t i) -> const void* {
    return order ? at(ordered.data(), phases.first[i] * c.c_out * cg, c.dtype) : taps == 1 ? c.w : nullptr;
  };
  if (is_depthwise(c)) return depthwise_phases(c, phases, dy, weight, dx);
  for (size_t i = 0; i < phases.all.size(); ++i) run_phase(c, phases.all[i], dy, weight(i), dx);
}

}  // namespace
}  // namespace detail

void conv_backward_input(const ConvCall& call, const void* dy, void* dx) {
  DEFT_CHECK(is_floating(call.dtype), DTypeError, "conv_backward_input: found {}, expected a floating type; cast first",
             name_of(call.dtype));
  detail::backward_input(detail::normalized(call, "conv_backward_input"), dy, dx);
}

}  // namespace deft::cpu
