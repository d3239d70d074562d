#include "kernels/cpu/image/interpolate.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/cpu/image/axis_map.h"

namespace deft::cpu {
namespace {

using detail::AxisSum;

struct AxisSize {
  int64_t in, out;
  double scale;
};

// Axis k of three, ones in front.
AxisSize axis_size(const InterpolateCall& c, int k) {
  const int d = k - (3 - c.spatial);
  return d < 0 ? AxisSize{1, 1, 0} : AxisSize{c.in[d], c.out[d], c.scale[d]};
}
bool is_nearest(Interpolate mode) { return mode == Interpolate::nearest || mode == Interpolate::nearest_exact; }

// In float whatever the dtype, as in PyTorch: at odd ratios the precision decides which source is nearest.
int64_t nearest_source(const AxisSize& a, bool exact, int64_t o) {
  const float derived = static_cast<float>(a.in) / static_cast<float>(a.out);
  const float scale = a.scale > 0 ? static_cast<float>(1.0 / a.scale) : derived;
  const float at = exact ? (static_cast<float>(o) + 0.5f) * scale : static_cast<float>(o) * scale;
  return std::clamp<int64_t>(static_cast<int64_t>(std::floor(at)), 0, a.in - 1);
}

template <class R>
R source_position(const AxisSize& a, bool align_corners, bool cubic, int64_t o) {
  if (align_corners) {
    const R step = a.out > 1 ? static_cast<R>(a.in - 1) / static_cast<R>(a.out - 1) : R(0);
    return step * static_cast<R>(o);
  }
  const R step = a.scale > 0 ? static_cast<R>(1.0 / a.scale) : static_cast<R>(a.in) / static_cast<R>(a.out);
  const R at = step * (static_cast<R>(o) + R(0.5)) - R(0.5);
  return !cubic && at < 0 ? R(0) : at;
}

template <class R>
void add_linear(AxisSum& sum, const AxisSize& a, R at) {
  const int64_t low = std::min(static_cast<int64_t>(std::floor(at)), a.in - 1);
  const R w = std::clamp<R>(at - static_cast<R>(low), R(0), R(1));
  sum.add(low, R(1) - w);
  sum.add(std::min(low + 1, a.in - 1), w);
}

template <class R>
void add_cubic(AxisSum& sum, const AxisSize& a, R at) {
  constexpr R kA = R(-0.75);
  const auto near = [](R x) { return ((kA + 2) * x - (kA + 3)) * x * x + 1; };
  const auto far = [](R x) { return ((kA * x - 5 * kA) * x + 8 * kA) * x - 4 * kA; };
  const R low = std::floor(at), t = at - low;
  const R weights[4] = {far(t + 1), near(t), near(1 - t), far(2 - t)};
  for (int k = 0; k < 4; ++k) sum.add(std::clamp<int64_t>(static_cast<int64_t>(low) - 1 + k, 0, a.in - 1), weights[k]);
}

template <class R>
AxisSum make_sum(const InterpolateCall& c, int k, bool transposed) {
  const AxisSize a = axis_size(c, k);
  const bool identity = k < 3 - c.spatial;
  AxisSum sum(a.in, a.out, a.out * 4);
  for (int64_t o = 0; o < a.out; ++o) {
    if (identity) {
      sum.add(0, 1);
    } else if (is_nearest(c.mode)) {
      sum.add(nearest_source(a, c.mode == Interpolate::nearest_exact, o), 1);
    } else if (c.mode == Interpolate::linear) {
      add_linear(sum, a, source_position<R>(a, c.align_corners, false, o));
    } else {
      add_cubic(sum, a, source_position<R>(a, c.align_corners, true, o));
    }
    sum.close(o);
  }
  return AxisSum(sum, transposed);
}

void check(const InterpolateCall& c, const char* op, bool floats) {
  DEFT_CHECK(c.spatial >= 1 && c.spatial <= 3, ShapeError, "{}: found {} spatial dims, expected 1, 2 or 3", op,
             c.spatial);
  DEFT_CHECK(!floats || is_floating(c.dtype), DTypeError, "{}: found {}, expected a floating type; cast first", op,
             name_of(c.dtype));
  for (int d = 0; d < c.spatial; ++d) {
    DEFT_CHECK(c.in[d] > 0 && c.out[d] > 0, ShapeError, "{}: found size {} to {} in dim {}, expected positive sizes",
               op, c.in[d], c.out[d], d);
  }
}

void run_sums(const InterpolateCall& c, bool transposed, const void* from, void* to) {
  const auto run = [&]<class R>() {
    detail::apply_sums(c.dtype, make_sum<R>(c, 0, transposed), make_sum<R>(c, 1, transposed),
                       make_sum<R>(c, 2, transposed), c.outer, c.inner, from, to);
  };
  if (c.dtype == DType::f64) {
    run.template operator()<double>();
  } else {
    run.template operator()<float>();
  }
}

// One bit copy per value: outer, three axes and the cell as dims of an index map.
void copy_nearest(const InterpolateCall& c, const void* x, void* y) {
  int64_t in[5] = {c.outer, 0, 0, 0, c.inner}, out[5] = {c.outer, 0, 0, 0, c.inner}, total = c.outer + c.inner;
  for (int k = 0; k < 3; ++k) {
    const AxisSize a = axis_size(c, k);
    in[k + 1] = a.in, out[k + 1] = a.out, total += a.out;
  }
  Workspace<int64_t> table(total);
  int64_t* next = table.data();
  const int64_t* maps[5];
  for (int d = 0; d < 5; ++d) {
    maps[d] = next;
    const bool plain = d == 0 || d == 4 || d - 1 < 3 - c.spatial;
    for (int64_t o = 0; o < out[d]; ++o) {
      *next++ = plain ? o : nearest_source(axis_size(c, d - 1), c.mode == Interpolate::nearest_exact, o);
    }
  }
  // With one value per cell the last axis is the line to copy.
  detail::map_copy(c.dtype, c.inner == 1 ? 4 : 5, in, out, maps, nullptr, x, y);
}

}  // namespace

void interpolate_forward(const InterpolateCall& call, const void* x, void* y) {
  check(call, "interpolate", !is_nearest(call.mode));
  if (call.outer * call.inner == 0) return;
  if (is_nearest(call.mode)) return copy_nearest(call, x, y);
  run_sums(call, false, x, y);
}

void interpolate_backward(const InterpolateCall& call, const void* dy, void* dx) {
  check(call, "interpolate_backward", true);
  if (call.outer * call.inner == 0) return;
  run_sums(call, true, dy, dx);
}

}  // namespace deft::cpu
