// Gradient of the convolution weight: a sum over samples and positions, in one fixed order.
#include "kernels/cpu/conv_internal.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/workspace.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace detail {
namespace {

template <class T>
void group_weight(const ConvCall& c, const Window& window, int64_t g, const T* x, const T* dy, T* dw) {
  using Acc = accumulate_t<T>;
  const int64_t cg = c.c_in / c.groups, og = c.c_out / c.groups, taps = window.tap_count(), depth = cg * taps;
  const int64_t positions = window.positions(), total = c.n * positions;
  const bool samples = c.channels_last || positions < 256;
  const int64_t width = tile_positions(depth + og, sizeof(Acc), samples ? total : positions);
  const bool copy_dy = !std::is_same_v<T, Acc> || (!c.channels_last && samples);
  const bool reorder = c.channels_last && taps > 1 && cg > 1;
  const bool own_sum = !std::is_same_v<T, Acc> || reorder;

  Workspace<Acc> columns(depth * width), tile(copy_dy ? og * width : 0), sum(own_sum ? og * depth : 0);
  const Source source{cg, c.c_in, c.channels_last};
  const T* xg = x + g * cg * (c.channels_last ? 1 : window.source());
  const T* dyg = dy + g * og * (c.channels_last ? 1 : positions);
  T* dwg = dw + g * og * depth;
  // dy is gathered with a window that reads each position once: this copies and widens it.
  Window self = window;
  for (int d = 0; d < 3; ++d) {
    self.step[d] = self.taps[d] = self.tap_step[d] = 1;
    self.base[d] = 0;
    self.size[d] = self.count[d];
  }

  GemmCall call{};
  call.dtype = dtype_of<Acc>;
  call.m = og, call.n = depth;
  call.b = columns.data();
  call.c = own_sum ? static_cast<void*>(sum.data()) : static_cast<void*>(dwg);
  call.c_row = depth, call.c_col = 1;
  for (int64_t q0 = 0; q0 < total;) {
    const int64_t end = samples ? total : (q0 / positions + 1) * positions;
    const int64_t q1 = std::min(end, q0 + width), count = q1 - q0;
    gather(window, source, xg, q0, q1, columns.data());
    call.k = count;
    call.b_row = c.channels_last ? depth : 1;
    call.b_col = c.channels_last ? 1 : count;
    if (copy_dy) {
      gather(self, Source{og, c.c_out, c.channels_last}, dyg, q0, q1, tile.data());
      call.a = tile.data();
      call.a_row = c.channels_last ? 1 : count;
      call.a_col = c.channels_last ? og : 1;
    } else if (c.channels_last) {
      call.a = dyg + q0 * c.c_out;
      call.a_row = 1, call.a_col = c.c_out;
    } else {
      call.a = dyg + q0 / positions * c.c_out * positions + q0 % positions;
      call.a_row = positions, call.a_col = 1;
    }
    gemm(call);
    call.accumulate = true;
    q0 = q1;
  }
  if (!own_sum) return;
  for (int64_t o = 0; o < og; ++o) {
    for (int64_t i = 0; i < cg; ++i) {
      for (int64_t t = 0; t < taps; ++t) {
        const int64_t from = reorder ? t * cg + i : i * taps + t;
        dwg[(o * cg + i) * taps + t] = static_cast<T>(sum[o * depth + from]);
      }
    }
  }
}

template <class T>
void backward_weight(const ConvCall& c, const T* dy, T* dw) {
  const Window window = forward_window(c);
  const int64_t cg = c.c_in / c.groups, og = c.c_out / c.groups;
  const int64_t size = c.c_out * cg * window.tap_count();
  if (size == 0) return;
  if (c.n * window.positions() == 0) return std::fill(dw, dw + size, T(0.0f)), void();
  const T* x = static_cast<const T*>(c.x);
  if (cg == 1 && og == 1 && c.groups > 1) return depthwise_weight(c, x, dy, dw);
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) group_weight(c, window, g, x, dy, dw);
  };
  if (c.groups < 2 * num_threads()) return run(0, c.groups);  // parallel inside
  parallel_for(0, c.groups, 1, run);
}

}  // namespace
}  // namespace detail

void conv_backward_weight(const ConvCall& call, const void* dy, void* dw) {
  const ConvCall c = detail::normalized(call, "conv_backward_weight");
  dispatch_floating(c.dtype,
                    [&]<class T>() { detail::backward_weight<T>(c, static_cast<const T*>(dy), static_cast<T*>(dw)); });
}

}  // namespace deft::cpu
