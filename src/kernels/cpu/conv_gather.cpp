#include <cstring>
#include <numeric>

#include "base/check.h"
#include "kernels/cpu/conv_internal.h"
#include "runtime/parallel.h"

namespace deft::cpu::detail {
namespace {

constexpr int64_t kTileBytes = 8 << 20;      // the bound
constexpr int64_t kGoodTileBytes = 2 << 20;  // what stays near the caches
constexpr int64_t kGrain = 32 * 1024;

// [lo, hi) of positions j < count whose source j * step + at lies in [0, size).
struct Range {
  int64_t lo, hi;
};
Range valid_range(int64_t count, int64_t step, int64_t at, int64_t size) {
  int64_t lo = at >= 0 ? 0 : (-at + step - 1) / step;
  int64_t hi = at >= size ? 0 : (size - at + step - 1) / step;
  lo = std::min(lo, count);
  return {lo, std::clamp(hi, lo, count)};
}

template <class T, class Out>
void copy_run(const T* from, int64_t step, int64_t count, Out* to) {
  if constexpr (std::is_same_v<T, Out>) {
    if (step == 1) {
      std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
    } else {
      for (int64_t i = 0; i < count; ++i) to[i] = from[i * step];
    }
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = widen(from[i * step]);
  }
}

// Calls f(n, z, y, x0, x1) for the rows that make up the flattened range.
template <class F>
void for_each_run(const Window& w, int64_t q0, int64_t q1, F f) {
  int64_t x = q0 % w.count[2], rest = q0 / w.count[2];
  int64_t y = rest % w.count[1];
  rest /= w.count[1];
  int64_t z = rest % w.count[0], n = rest / w.count[0];
  for (int64_t q = q0; q < q1;) {
    const int64_t end = std::min(w.count[2], x + (q1 - q));
    f(n, z, y, x, end);
    q += end - x;
    x = 0;
    if (++y == w.count[1]) {
      y = 0;
      if (++z == w.count[0]) z = 0, ++n;
    }
  }
}

}  // namespace

ConvCall normalized(const ConvCall& call, const char* op) {
  DEFT_CHECK(is_floating(call.dtype), DTypeError, "{}: found {}, expected a floating type; cast first", op,
             name_of(call.dtype));
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

bool input_phase(const ConvCall& c, const int64_t r[3], Phase& p) {
  Window& w = p.window;
  for (int d = 0; d < 3; ++d) {
    const int64_t s = c.stride[d], dil = c.dilation[d];
    p.start[d] = r[d];
    p.step[d] = s;
    w.count[d] = r[d] < c.in[d] ? (c.in[d] - r[d] + s - 1) / s : 0;
    if (w.count[d] == 0) return false;
    // Kernel taps k with (r + pad - k * dil) divisible by the stride: k = first + t * tap_skip.
    p.tap_skip[d] = s / std::gcd(s, dil);
    p.first[d] = 0;
    while (p.first[d] < p.tap_skip[d] && (r[d] + c.pad[d] - p.first[d] * dil) % s != 0) ++p.first[d];
    const bool any = p.first[d] < p.tap_skip[d] && p.first[d] < c.kernel[d];
    w.taps[d] = any ? (c.kernel[d] - p.first[d] + p.tap_skip[d] - 1) / p.tap_skip[d] : 0;
    w.step[d] = 1;
    w.base[d] = any ? (r[d] + c.pad[d] - p.first[d] * dil) / s : 0;
    w.tap_step[d] = -p.tap_skip[d] * dil / s;
    w.size[d] = c.out[d];
  }
  return true;
}

template <class T, class Out>
void gather_rows(const Window& w, const Source& s, const T* x, int64_t q0, int64_t q1, int64_t row0, int64_t row1,
                 Out* out) {
  const int64_t width = q1 - q0, taps = w.tap_count();
  for (int64_t row = row0; row < row1; ++row) {
    const int64_t channel = row / taps, t = row % taps;
    const int64_t tx = t % w.taps[2], ty = t / w.taps[2] % w.taps[1], tz = t / (w.taps[2] * w.taps[1]);
    const int64_t at_x = w.base[2] + tx * w.tap_step[2];
    const Range in_x = valid_range(w.count[2], w.step[2], at_x, w.size[2]);
    Out* to = out + row * width;
    for_each_run(w, q0, q1, [&](int64_t n, int64_t z, int64_t y, int64_t x0, int64_t x1) {
      const int64_t sz = z * w.step[0] + w.base[0] + tz * w.tap_step[0];
      const int64_t sy = y * w.step[1] + w.base[1] + ty * w.tap_step[1];
      const int64_t lo = std::clamp(in_x.lo, x0, x1), hi = std::clamp(in_x.hi, lo, x1);
      if (sz < 0 || sz >= w.size[0] || sy < 0 || sy >= w.size[1] || lo == hi) {
        std::fill(to, to + (x1 - x0), Out(0.0f));
      } else {
        const T* line = x + ((n * s.all_channels + channel) * w.size[0] + sz) * w.size[1] * w.size[2] + sy * w.size[2];
        std::fill(to, to + (lo - x0), Out(0.0f));
        copy_run(line + lo * w.step[2] + at_x, w.step[2], hi - lo, to + (lo - x0));
        std::fill(to + (hi - x0), to + (x1 - x0), Out(0.0f));
      }
      to += x1 - x0;
    });
  }
}

template <class T, class Out>
void gather_pixels(const Window& w, const Source& s, const T* x, int64_t q0, int64_t q1, Out* out) {
  for_each_run(w, q0, q1, [&](int64_t n, int64_t z, int64_t y, int64_t x0, int64_t x1) {
    for (int64_t px = x0; px < x1; ++px) {
      for (int64_t tz = 0; tz < w.taps[0]; ++tz) {
        const int64_t sz = z * w.step[0] + w.base[0] + tz * w.tap_step[0];
        for (int64_t ty = 0; ty < w.taps[1]; ++ty) {
          const int64_t sy = y * w.step[1] + w.base[1] + ty * w.tap_step[1];
          const bool line = sz >= 0 && sz < w.size[0] && sy >= 0 && sy < w.size[1];
          for (int64_t tx = 0; tx < w.taps[2]; ++tx, out += s.channels) {
            const int64_t sx = px * w.step[2] + w.base[2] + tx * w.tap_step[2];
            if (line && sx >= 0 && sx < w.size[2]) {
              const int64_t pixel = ((n * w.size[0] + sz) * w.size[1] + sy) * w.size[2] + sx;
              copy_run(x + pixel * s.all_channels, 1, s.channels, out);
            } else {
              std::fill(out, out + s.channels, Out(0.0f));
            }
          }
        }
      }
    }
  });
}

template <class T, class Out>
void gather(const Window& w, const Source& s, const T* x, int64_t q0, int64_t q1, Out* out) {
  const int64_t rows = s.channels * w.tap_count();
  if (s.channels_last) {
    parallel_for(q0, q1, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, rows)),
                 [&](int64_t a, int64_t b) { gather_pixels(w, s, x, a, b, out + (a - q0) * rows); });
  } else {
    parallel_for(0, rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, q1 - q0)),
                 [&](int64_t a, int64_t b) { gather_rows(w, s, x, q0, q1, a, b, out); });
  }
}

int64_t tile_positions(int64_t row, size_t value_size, int64_t positions) {
  const int64_t bytes = std::max<int64_t>(1, row) * static_cast<int64_t>(value_size);
  const int64_t good = std::clamp<int64_t>(kGoodTileBytes / bytes, 256, 4096);
  const int64_t most = std::max<int64_t>(1, kTileBytes / bytes);
  return std::max<int64_t>(1, std::min({good, most, positions}));
}

template void gather(const Window&, const Source&, const float*, int64_t, int64_t, float*);
template void gather(const Window&, const Source&, const double*, int64_t, int64_t, double*);
template void gather(const Window&, const Source&, const BFloat16*, int64_t, int64_t, BFloat16*);
template void gather(const Window&, const Source&, const Half*, int64_t, int64_t, Half*);
template void gather(const Window&, const Source&, const BFloat16*, int64_t, int64_t, float*);
template void gather(const Window&, const Source&, const Half*, int64_t, int64_t, float*);

// unfold moves bits.
template void gather_rows(const Window&, const Source&, const uint8_t*, int64_t, int64_t, int64_t, int64_t, uint8_t*);
template void gather_rows(const Window&, const Source&, const uint16_t*, int64_t, int64_t, int64_t, int64_t, uint16_t*);
template void gather_rows(const Window&, const Source&, const uint32_t*, int64_t, int64_t, int64_t, int64_t, uint32_t*);
template void gather_rows(const Window&, const Source&, const uint64_t*, int64_t, int64_t, int64_t, int64_t, uint64_t*);

}  // namespace deft::cpu::detail
