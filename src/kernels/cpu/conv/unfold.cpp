#include "kernels/cpu/conv/unfold.h"

#include "base/check.h"
#include "kernels/cpu/conv/conv_internal.h"
#include "kernels/cpu/workspace.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace {

using detail::Window;

constexpr int64_t kGrain = 32 * 1024;
constexpr int64_t kStackRow = 512;

Window window_of(const UnfoldCall& u, const char* op) {
  DEFT_CHECK(u.spatial >= 1 && u.spatial <= 3, ShapeError, "{}: found {} spatial dims, expected 1, 2 or 3", op,
             u.spatial);
  Window w;
  for (int d = 0; d < 3; ++d) {
    const int s = d - (3 - u.spatial);
    w.count[d] = s < 0 ? 1 : u.out[s];
    w.step[d] = s < 0 ? 1 : u.stride[s];
    w.base[d] = s < 0 ? 0 : -u.pad[s];
    w.taps[d] = s < 0 ? 1 : u.kernel[s];
    w.tap_step[d] = s < 0 ? 1 : u.dilation[s];
    w.size[d] = s < 0 ? 1 : u.in[s];
    DEFT_CHECK(w.step[d] > 0 && w.tap_step[d] > 0 && w.taps[d] > 0, ValueError,
               "{}: found stride {}, dilation {}, kernel {}, expected positive values", op, w.step[d], w.tap_step[d],
               w.taps[d]);
  }
  return w;
}

template <class T>
using sum_t = std::conditional_t<std::is_integral_v<T>, uint64_t, accumulate_t<T>>;

// The window position that reads source s through tap t, or -1.
int64_t position_of(const Window& w, int d, int64_t s, int64_t t) {
  const int64_t at = s - w.base[d] - t * w.tap_step[d];
  return at < 0 || at % w.step[d] != 0 || at / w.step[d] >= w.count[d] ? -1 : at / w.step[d];
}

// Adds row (z, y) of one channel.
template <class T>
void fold_row(const Window& w, const T* columns, int64_t z, int64_t y, sum_t<T>* sum) {
  using S = sum_t<T>;
  std::fill_n(sum, w.size[2], S(0));
  for (int64_t tz = 0; tz < w.taps[0]; ++tz) {
    const int64_t oz = position_of(w, 0, z, tz);
    if (oz < 0) continue;
    for (int64_t ty = 0; ty < w.taps[1]; ++ty) {
      const int64_t oy = position_of(w, 1, y, ty);
      if (oy < 0) continue;
      for (int64_t tx = 0; tx < w.taps[2]; ++tx) {
        const int64_t tap = (tz * w.taps[1] + ty) * w.taps[2] + tx;
        const T* row = columns + tap * w.positions() + (oz * w.count[1] + oy) * w.count[2];
        const int64_t at = w.base[2] + tx * w.tap_step[2], step = w.step[2];
        const int64_t lo = std::min(w.count[2], at >= 0 ? 0 : (-at + step - 1) / step);
        const int64_t hi = at >= w.size[2] ? lo : std::clamp((w.size[2] - at + step - 1) / step, lo, w.count[2]);
        for (int64_t o = lo; o < hi; ++o) sum[o * step + at] += static_cast<S>(row[o]);
      }
    }
  }
}

template <class T>
void fold_typed(const Window& w, int64_t planes, const T* columns, T* x) {
  const int64_t lines = w.size[0] * w.size[1], width = w.size[2], block = w.tap_count() * w.positions();
  const int64_t cost = std::max<int64_t>(1, width * w.tap_count());
  parallel_for(0, planes * lines, std::max<int64_t>(1, kGrain / cost), [&](int64_t begin, int64_t end) {
    sum_t<T> stack[kStackRow];
    Workspace<sum_t<T>> heap(width > kStackRow ? width : 0);
    sum_t<T>* sum = width > kStackRow ? heap.data() : stack;
    for (int64_t l = begin; l < end; ++l) {
      const int64_t line = l % lines;
      fold_row(w, columns + l / lines * block, line / w.size[1], line % w.size[1], sum);
      for (int64_t i = 0; i < width; ++i) x[l * width + i] = static_cast<T>(sum[i]);
    }
  });
}

}  // namespace

void unfold(const UnfoldCall& call, const void* x, void* columns) {
  const Window w = window_of(call, "unfold");
  const int64_t taps = w.tap_count(), positions = w.positions(), rows = call.n * call.channels * taps;
  if (rows * positions == 0) return;
  dispatch_bits(call.dtype, [&]<class T>() {
    // Samples and channels form one dim: row r reads image r / taps.
    const detail::Source source{call.n * call.channels, 0, false};
    parallel_for(0, rows, std::max<int64_t>(1, kGrain / positions), [&](int64_t begin, int64_t end) {
      detail::gather_rows(w, source, static_cast<const T*>(x), 0, positions, begin, end,
                          static_cast<T*>(columns) + begin * positions);
    });
  });
}

void fold(const UnfoldCall& call, const void* columns, void* x) {
  DEFT_CHECK(call.dtype != DType::boolean, DTypeError, "fold: found bool, expected a number type; cast first");
  const Window w = window_of(call, "fold");
  if (call.n * call.channels * w.source() == 0) return;
  dispatch_all(call.dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>) {
      fold_typed(w, call.n * call.channels, static_cast<const T*>(columns), static_cast<T*>(x));
    }
  });
}

}  // namespace deft::cpu
