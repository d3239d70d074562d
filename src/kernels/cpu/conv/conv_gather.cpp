#include <cstring>
#include <numeric>

#include "base/check.h"
#include "kernels/cpu/conv/conv_internal.h"

namespace deft::cpu::detail {
namespace {

// The positions [lo, hi) within j < count whose source j * step + at lies in [0, size).
struct Range {
  int64_t lo, hi;
};
Range valid_range(int64_t count, int64_t step, int64_t at, int64_t size) {
  int64_t lo = at >= 0 ? 0 : (-at + step - 1) / step;
  int64_t hi = at >= size ? 0 : (size - at + step - 1) / step;
  lo = std::min(lo, count);
  return {lo, std::clamp(hi, lo, count)};
}

template <class T>
void copy_run(const T* from, int64_t step, int64_t count, T* to) {
  if (step == 1) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i * step];
  }
}

}  // namespace

ConvCall normalized(const ConvCall& call, const char* op) {
  DEFT_CHECK(call.spatial >= 1 && call.spatial <= 3, ShapeError, "{}: found {} spatial dims, expected 1, 2 or 3", op,
             call.spatial);
  DEFT_CHECK(call.groups > 0 && call.c_in % call.groups == 0 && call.c_out % call.groups == 0, ShapeError,
             "{}: found {} input and {} output channels, expected multiples of groups = {}", op, call.c_in, call.c_out,
             call.groups);
  ConvCall c = call;
  const int shift = 3 - call.spatial;
  for (int d = 0; d < 3; ++d) {
    const bool real = d >= shift;
    const int from = real ? d - shift : 0;
    c.in[d] = real ? call.in[from] : 1;
    c.kernel[d] = real ? call.kernel[from] : 1;
    c.out[d] = real ? call.out[from] : 1;
    c.stride[d] = real ? call.stride[from] : 1;
    c.pad[d] = real ? call.pad[from] : 0;
    c.dilation[d] = real ? call.dilation[from] : 1;
    DEFT_CHECK(c.stride[d] > 0 && c.dilation[d] > 0 && c.kernel[d] > 0, ValueError,
               "{}: found stride {}, dilation {}, kernel {} in dim {}, expected positive values", op, c.stride[d],
               c.dilation[d], c.kernel[d], from);
  }
  c.spatial = 3;
  return c;
}

Window forward_window(const ConvCall& c) {
  Window w;
  for (int d = 0; d < 3; ++d) {
    w.count[d] = c.out[d];
    w.step[d] = c.stride[d];
    w.base[d] = -c.pad[d];
    w.taps[d] = c.kernel[d];
    w.tap_step[d] = c.dilation[d];
    w.size[d] = c.in[d];
  }
  return w;
}

Window pointwise_window(const int64_t size[3]) {
  Window w;
  for (int d = 0; d < 3; ++d) {
    w.count[d] = w.size[d] = size[d];
    w.step[d] = w.taps[d] = w.tap_step[d] = 1;
    w.base[d] = 0;
  }
  return w;
}

void place_positions(const Phase& p, const int64_t size[3], int64_t q0, int64_t count, int64_t* offsets) {
  for_each_run(p.window, q0, q0 + count, [&](int64_t n, int64_t z, int64_t y, int64_t x0, int64_t x1) {
    const int64_t plane = n * size[0] + p.start[0] + z * p.step[0];
    const int64_t line = (plane * size[1] + p.start[1] + y * p.step[1]) * size[2] + p.start[2];
    for (int64_t x = x0; x < x1; ++x) *offsets++ = line + x * p.step[2];
  });
}

bool input_phase(const ConvCall& c, const int64_t r[3], Phase& p) {
  Window& w = p.window;
  for (int d = 0; d < 3; ++d) {
    const int64_t s = c.stride[d], dil = c.dilation[d];
    p.start[d] = r[d];
    p.step[d] = s;
    w.count[d] = r[d] < c.in[d] ? (c.in[d] - r[d] + s - 1) / s : 0;
    if (w.count[d] == 0) return false;
    // The kernel taps k with (r + pad - k * dil) divisible by the stride: k = first + t * tap_skip.
    p.tap_skip[d] = s / std::gcd(s, dil);
    const int64_t most = std::min(p.tap_skip[d], c.kernel[d]);
    p.first[d] = 0;
    while (p.first[d] < most && (r[d] + c.pad[d] - p.first[d] * dil) % s != 0) ++p.first[d];
    const bool any = p.first[d] < most;
    w.taps[d] = any ? (c.kernel[d] - p.first[d] + p.tap_skip[d] - 1) / p.tap_skip[d] : 0;
    w.step[d] = 1;
    w.base[d] = any ? (r[d] + c.pad[d] - p.first[d] * dil) / s : 0;
    w.tap_step[d] = -(dil / std::gcd(s, dil));
    w.size[d] = c.out[d];
  }
  return true;
}

template <class T>
void gather_rows(const Window& w, const Source& s, const T* x, int64_t q0, int64_t q1, int64_t row0, int64_t row1,
                 T* out, T zero) {
  const int64_t width = q1 - q0, taps = w.tap_count();
  for (int64_t row = row0; row < row1; ++row) {
    const int64_t channel = row / taps, t = row % taps;
    const int64_t tx = t % w.taps[2], ty = t / w.taps[2] % w.taps[1], tz = t / (w.taps[2] * w.taps[1]);
    const int64_t at_x = w.base[2] + tx * w.tap_step[2];
    const Range in_x = valid_range(w.count[2], w.step[2], at_x, w.size[2]);
    T* to = out + (row - row0) * width;
    for_each_run(w, q0, q1, [&](int64_t n, int64_t z, int64_t y, int64_t x0, int64_t x1) {
      const int64_t sz = z * w.step[0] + w.base[0] + tz * w.tap_step[0];
      const int64_t sy = y * w.step[1] + w.base[1] + ty * w.tap_step[1];
      const int64_t lo = std::clamp(in_x.lo, x0, x1), hi = std::clamp(in_x.hi, lo, x1);
      if (sz < 0 || sz >= w.size[0] || sy < 0 || sy >= w.size[1] || lo == hi) {
        std::fill(to, to + (x1 - x0), zero);
      } else {
        const T* line = x + ((n * s.all_channels + channel) * w.size[0] + sz) * w.size[1] * w.size[2] + sy * w.size[2];
        std::fill(to, to + (lo - x0), zero);
        copy_run(line + lo * w.step[2] + at_x, w.step[2], hi - lo, to + (lo - x0));
        std::fill(to + (hi - x0), to + (x1 - x0), zero);
      }
      to += x1 - x0;
    });
  }
}

// Only bits are moved, so the element's size suffices.
#define DEFT_INSTANTIATE(T) \
  template void gather_rows(const Window&, const Source&, const T*, int64_t, int64_t, int64_t, int64_t, T*, T);
DEFT_INSTANTIATE(uint8_t)
DEFT_INSTANTIATE(uint16_t)
DEFT_INSTANTIATE(uint32_t)
DEFT_INSTANTIATE(uint64_t)
#undef DEFT_INSTANTIATE

}  // namespace deft::cpu::detail
