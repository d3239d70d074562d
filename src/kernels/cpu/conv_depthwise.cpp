// One filter per channel: direct sums, no gathered copy.
#include "kernels/cpu/conv_internal.h"
#include "runtime/parallel.h"

namespace deft::cpu::detail {
namespace {

constexpr int64_t kRun = 512;  // positions or channels summed at a time, on the stack
constexpr int64_t kGrain = 32 * 1024;

inline int64_t first_valid(int64_t step, int64_t at) { return at >= 0 ? 0 : (-at + step - 1) / step; }

// One line of output positions of one channel, channels first.
template <class T, class Acc>
void line_of_channel(const Window& w, const T* x, const T* filter, int64_t z, int64_t y, int64_t x0, int64_t count,
                     Acc* sum) {
  for (int64_t tz = 0; tz < w.taps[0]; ++tz) {
    const int64_t sz = z * w.step[0] + w.base[0] + tz * w.tap_step[0];
    if (sz < 0 || sz >= w.size[0]) continue;
    for (int64_t ty = 0; ty < w.taps[1]; ++ty) {
      const int64_t sy = y * w.step[1] + w.base[1] + ty * w.tap_step[1];
      if (sy < 0 || sy >= w.size[1]) continue;
      const T* line = x + (sz * w.size[1] + sy) * w.size[2];
      for (int64_t tx = 0; tx < w.taps[2]; ++tx) {
        const Acc f = widen(filter[(tz * w.taps[1] + ty) * w.taps[2] + tx]);
        const int64_t at = x0 * w.step[2] + w.base[2] + tx * w.tap_step[2], step = w.step[2];
        const int64_t lo = std::min(count, first_valid(step, at));
        const int64_t hi = at >= w.size[2] ? lo : std::clamp((w.size[2] - at + step - 1) / step, lo, count);
        if (step == 1) {
          for (int64_t j = lo; j < hi; ++j) sum[j] += f * widen(line[j + at]);
        } else {
          for (int64_t j = lo; j < hi; ++j) sum[j] += f * widen(line[j * step + at]);
        }
      }
    }
  }
}

// Channels [c0, c0 + count) of one output position, channels last.
template <class T, class Acc>
void channels_of_pixel(const Window& w, const T* x, int64_t c_src, const T* filters, int64_t c0, int64_t count,
                       const int64_t at[3], Acc* sum) {
  const int64_t taps = w.tap_count();
  for (int64_t t = 0; t < taps; ++t) {
    const int64_t tap[3] = {t / (w.taps[1] * w.taps[2]), t / w.taps[2] % w.taps[1], t % w.taps[2]};
    int64_t pixel = 0;
    bool inside = true;
    for (int d = 0; d < 3; ++d) {
      const int64_t s = at[d] * w.step[d] + w.base[d] + tap[d] * w.tap_step[d];
      inside = inside && s >= 0 && s < w.size[d];
      pixel = pixel * w.size[d] + s;
    }
    if (!inside) continue;
    const T* from = x + pixel * c_src + c0;
    for (int64_t i = 0; i < count; ++i) sum[i] += widen(filters[(c0 + i) * taps + t]) * widen(from[i]);
  }
}

}  // namespace

template <class T>
void depthwise(const Phase& p, const ConvCall& c, int64_t c_out, const T* x, int64_t c_src, const T* w, const T* bias,
               T* y, const int64_t y_size[3]) {
  using Acc = accumulate_t<T>;
  const Window& win = p.window;
  const int64_t taps = win.tap_count(), source = win.source(), spatial = y_size[0] * y_size[1] * y_size[2];
  const auto place = [&](int64_t z, int64_t r, int64_t q) {
    const int64_t line = (p.start[0] + z * p.step[0]) * y_size[1] + p.start[1] + r * p.step[1];
    return line * y_size[2] + p.start[2] + q * p.step[2];
  };
  if (!c.channels_last) {
    const int64_t cost = std::max<int64_t>(1, win.positions() * std::max<int64_t>(1, taps));
    parallel_for(0, c.n * c_out, std::max<int64_t>(1, kGrain / cost), [&](int64_t begin, int64_t end) {
      Acc sum[kRun];
      for (int64_t i = begin; i < end; ++i) {
        const int64_t channel = i % c_out;
        for (int64_t line = 0; line < win.count[0] * win.count[1]; ++line) {
          const int64_t z = line / win.count[1], r = line % win.count[1];
          for (int64_t x0 = 0; x0 < win.count[2]; x0 += kRun) {
            const int64_t count = std::min(kRun, win.count[2] - x0);
            std::fill(sum, sum + count, Acc(0));
            line_of_channel(win, x + i * source, w + channel * taps, z, r, x0, count, sum);
            T* to = y + i * spatial + place(z, r, x0);
            const Acc b = bias ? Acc(widen(bias[channel])) : Acc(0);
            for (int64_t j = 0; j < count; ++j) to[j * p.step[2]] = static_cast<T>(sum[j] + b);
          }
        }
      }
    });
    return;
  }
  const int64_t lines = c.n * win.count[0] * win.count[1];
  const int64_t cost = std::max<int64_t>(1, win.count[2] * c_out * std::max<int64_t>(1, taps));
  parallel_for(0, lines, std::max<int64_t>(1, kGrain / cost), [&](int64_t begin, int64_t end) {
    Acc sum[kRun];
    for (int64_t line = begin; line < end; ++line) {
      const int64_t n = line / (win.count[0] * win.count[1]);
      const int64_t z = line / win.count[1] % win.count[0], r = line % win.count[1];
      for (int64_t q = 0; q < win.count[2]; ++q) {
        const int64_t at[3] = {z, r, q};
        T* to = y + (n * spatial + place(z, r, q)) * c_out;
        for (int64_t c0 = 0; c0 < c_out; c0 += kRun) {
          const int64_t count = std::min(kRun, c_out - c0);
          std::fill(sum, sum + count, Acc(0));
          channels_of_pixel(win, x + n * source * c_src, c_src, w, c0, count, at, sum);
          for (int64_t i = 0; i < count; ++i) {
            to[c0 + i] = static_cast<T>(bias ? sum[i] + widen(bias[c0 + i]) : sum[i]);
          }
        }
      }
    }
  });
}

template <class T>
void depthwise_weight(const ConvCall& c, const T* x, const T* dy, T* dw) {
  using Acc = accumulate_t<T>;
  const Window w = forward_window(c);
  const int64_t taps = w.tap_count(), channels = c.c_out, source = w.source(), positions = w.positions();
  const int64_t channel_step = c.channels_last ? channels : 1;
  const auto start = [&](int64_t n, int64_t ch, int64_t spatial) {
    return c.channels_last ? n * spatial * channels + ch : (n * channels + ch) * spatial;
  };
  const int64_t cost = std::max<int64_t>(1, c.n * positions);
  parallel_for(0, channels * taps, std::max<int64_t>(1, kGrain / cost), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t ch = i / taps, t = i % taps;
      const int64_t tap[3] = {t / (w.taps[1] * w.taps[2]), t / w.taps[2] % w.taps[1], t % w.taps[2]};
      int64_t at[3];
      for (int d = 0; d < 3; ++d) at[d] = w.base[d] + tap[d] * w.tap_step[d];
      const int64_t step = w.step[2];
      const int64_t lo = std::min(w.count[2], first_valid(step, at[2]));
      const int64_t hi = at[2] >= w.size[2] ? lo : std::clamp((w.size[2] - at[2] + step - 1) / step, lo, w.count[2]);
      Acc total = 0;
      for (int64_t n = 0; n < c.n; ++n) {
        for (int64_t z = 0; z < w.count[0]; ++z) {
          const int64_t sz = z * w.step[0] + at[0];
          if (sz < 0 || sz >= w.size[0]) continue;
          for (int64_t r = 0; r < w.count[1]; ++r) {
            const int64_t sy = r * w.step[1] + at[1];
            if (sy < 0 || sy >= w.size[1]) continue;
            const T* a = dy + start(n, ch, positions) + (z * w.count[1] + r) * w.count[2] * channel_step;
            const T* b = x + start(n, ch, source) + (sz * w.size[1] + sy) * w.size[2] * channel_step;
            Acc line = 0;
            for (int64_t j = lo; j < hi; ++j) {
              line += widen(a[j * channel_step]) * widen(b[(j * step + at[2]) * channel_step]);
            }
            total += line;
          }
        }
      }
      dw[i] = static_cast<T>(total);
    }
  });
}

#define DEFT_INSTANTIATE(T)                                                                                  \
  template void depthwise(const Phase&, const ConvCall&, int64_t, const T*, int64_t, const T*, const T*, T*, \
                          const int64_t[3]);                                                                 \
  template void depthwise_weight(const ConvCall&, const T*, const T*, T*);
DEFT_INSTANTIATE(float)
DEFT_INSTANTIATE(double)
DEFT_INSTANTIATE(BFloat16)
DEFT_INSTANTIATE(Half)

}  // namespace deft::cpu::detail
