#include "kernels/cpu/image/pad.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/cpu/image/axis_map.h"

namespace deft::cpu {
namespace {

// Where output position o of dim d comes from; -1 for the constant.
int64_t source(const PadCall& c, int d, int64_t o) {
  const int64_t n = c.sizes[d], i = o - c.before[d];
  if (i >= 0 && i < n) return i;
  switch (c.mode) {
    case PadMode::constant:
      return -1;
    case PadMode::replicate:
      return std::clamp<int64_t>(i, 0, n - 1);
    case PadMode::reflect:
      return i < 0 ? -i : 2 * (n - 1) - i;
    default:
      return i < 0 ? i + n : i - n;
  }
}

void check(const PadCall& c) {
  DEFT_CHECK(c.ndim >= 0 && c.ndim <= kMaxDims, ShapeError, "pad: found {} dims, expected at most {}", c.ndim,
             kMaxDims);
  for (int d = 0; d < c.ndim; ++d) {
    const int64_t least = std::min(c.before[d], c.after[d]), most = std::max(c.before[d], c.after[d]), n = c.sizes[d];
    DEFT_CHECK(c.out_size(d) >= 0, ShapeError,
               "pad: found size {} with padding ({}, {}) in dim {}; it leaves less than nothing", n, c.before[d],
               c.after[d], d);
    if (c.mode == PadMode::constant) continue;
    DEFT_CHECK(least >= 0, ValueError, "pad: found padding ({}, {}) in dim {}; only constant mode may crop",
               c.before[d], c.after[d], d);
    const int64_t limit = c.mode == PadMode::reflect ? n - 1 : c.mode == PadMode::circular ? n : n > 0 ? most : 0;
    DEFT_CHECK(most == 0 || most <= limit, ShapeError,
               "pad: found padding ({}, {}) in dim {} of size {}, expected at most {}", c.before[d], c.after[d], d, n,
               std::max<int64_t>(0, limit));
  }
}

// A last dim that is not padded becomes part of the one before it, so that lines are not as short as the channels of a
// pixel. Where the border repeats values, this works only if neither is padded.
PadCall with_long_lines(PadCall c) {
  constexpr int64_t kLongest = 4096;  // a map has an entry for every element of a line
  const auto plain = [&](int d) { return c.before[d] == 0 && c.after[d] == 0; };
  for (int d = c.ndim - 1; d > 0; --d, --c.ndim) {
    const bool fits =
        c.sizes[d] <= kLongest && c.out_size(d - 1) <= kLongest && c.sizes[d] * c.out_size(d - 1) <= kLongest;
    if (!fits || !plain(d) || (c.mode != PadMode::constant && !plain(d - 1))) break;
    c.sizes[d - 1] *= c.sizes[d], c.before[d - 1] *= c.sizes[d], c.after[d - 1] *= c.sizes[d];
  }
  return c;
}

}  // namespace

void pad_forward(const PadCall& call, const void* x, void* y) {
  check(call);
  const PadCall c = with_long_lines(call);
  int64_t out[kMaxDims], total = 0;
  for (int d = 0; d < c.ndim; ++d) total += out[d] = c.out_size(d);
  int64_t stack[512];
  Workspace<int64_t> heap(total > 512 ? total : 0);
  int64_t* next = total > 512 ? heap.data() : stack;
  const int64_t* maps[kMaxDims];
  for (int d = 0; d < c.ndim; ++d) {
    maps[d] = next;
    for (int64_t o = 0; o < out[d]; ++o) *next++ = source(c, d, o);
  }
  detail::map_copy(c.dtype, c.ndim, c.sizes, out, maps, c.value, x, y);
}

void pad_backward(const PadCall& c, const void* dy, void* dx) {
  check(c);
  DEFT_CHECK(is_floating(c.dtype), DTypeError, "pad_backward: found {}, expected a floating type", name_of(c.dtype));
  DEFT_CHECK(c.mode != PadMode::constant, ValueError,
             "pad_backward: found constant mode, expected reflect, replicate or circular; crop dy instead");
  int first = 0;
  int64_t outer = 1, inner = 1;
  int last = c.ndim;
  while (first < c.ndim && c.before[first] == 0 && c.after[first] == 0) outer *= c.sizes[first++];
  while (last > first && c.before[last - 1] == 0 && c.after[last - 1] == 0) inner *= c.sizes[--last];
  DEFT_CHECK(last - first <= 3, UnsupportedError,
             "pad_backward: found {} dims from the first padded to the last, expected at most 3; pad in two steps",
             last - first);
  // The three axes, ones in front.
  const auto axis = [&](int k) {
    const int d = last - 3 + k;
    const int64_t out = d < first ? 1 : c.out_size(d);
    detail::AxisSum sum(d < first ? 1 : c.sizes[d], out, out);
    for (int64_t o = 0; o < out; ++o) {
      sum.add(d < first ? 0 : source(c, d, o), 1.0);
      sum.close(o);
    }
    return detail::AxisSum(sum, true);
  };
  detail::apply_sums(c.dtype, axis(0), axis(1), axis(2), outer, inner, dy, dx);
}

}  // namespace deft::cpu
