// Kernels that move values between grids: interpolate, pad, unfold and fold.
#include <functional>
#include <limits>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/conv/unfold.h"
#include "kernels/cpu/copy/streaming_store.h"
#include "kernels/cpu/image/interpolate.h"
#include "kernels/cpu/image/pad.h"
#include "kernels/cpu/workspace.h"
#include "kernels/dense_util.h"

namespace deft::test {
namespace {

using cpu::Interpolate;
using cpu::InterpolateCall;
using cpu::PadCall;
using cpu::PadMode;
using cpu::UnfoldCall;

// A linear map as a list of (output, input, weight); forward and transposed application in double.
struct Entry {
  int64_t out, in;
  double weight;
};
std::vector<double> apply(const std::vector<Entry>& map, const std::vector<double>& x, int64_t size, bool transposed) {
  std::vector<double> y(static_cast<size_t>(size), 0.0);
  for (const Entry& e : map) {
    const auto to = static_cast<size_t>(transposed ? e.in : e.out);
    const auto from = static_cast<size_t>(transposed ? e.out : e.in);
    y[to] += e.weight * x[from];
  }
  return y;
}
// The product of per-axis maps, with outer (NCHW planes) and inner (NHWC cells) dims that map to themselves.
std::vector<Entry> combine(const std::vector<std::vector<Entry>>& axes, const std::vector<int64_t>& in,
                           const std::vector<int64_t>& out, int64_t outer, int64_t inner) {
  std::vector<Entry> map;
  for (int64_t p = 0; p < outer; ++p) map.push_back({p, p, 1});
  for (size_t d = 0; d < axes.size(); ++d) {
    std::vector<Entry> next;
    for (const Entry& a : map) {
      for (const Entry& b : axes[d]) next.push_back({a.out * out[d] + b.out, a.in * in[d] + b.in, a.weight * b.weight});
    }
    map = next;
  }
  std::vector<Entry> cells;
  for (const Entry& a : map) {
    for (int64_t c = 0; c < inner; ++c) cells.push_back({a.out * inner + c, a.in * inner + c, a.weight});
  }
  return cells;
}
int64_t product(const std::vector<int64_t>& v) {
  int64_t p = 1;
  for (int64_t x : v) p *= x;
  return p;
}
template <class T>
std::vector<double> doubles(const Guarded<T>& g) {
  std::vector<double> v;
  for (int64_t i = 0; i < g.size(); ++i) v.push_back(as_double(g[i]));
  return v;
}
template <class T>
void compare(const Guarded<T>& found, const std::vector<double>& expected, double slack, const char* what) {
  const double eps = slack * epsilon_of(dtype_of<accumulate_t<T>>) + epsilon_of(dtype_of<T>);
  for (int64_t i = 0; i < found.size(); ++i) {
    const double want = expected[static_cast<size_t>(i)];
    expect_near(as_double(found[i]), want, eps * (1 + std::abs(want)), what, i);
  }
}

template <class T>
class Resize : public ::testing::Test {};
using Floats = ::testing::Types<float, double, BFloat16, Half>;
TYPED_TEST_SUITE(Resize, Floats);

// ---- interpolate

double cubic_weight(double x) {
  const double a = -0.75;
  x = std::abs(x);
  if (x <= 1) return (a + 2) * x * x * x - (a + 3) * x * x + 1;
  return x < 2 ? a * x * x * x - 5 * a * x * x + 8 * a * x - 4 * a : 0;
}

std::vector<Entry> axis_map(Interpolate mode, int64_t in, int64_t out, double scale, bool align) {
  std::vector<Entry> map;
  const double step = scale > 0 ? 1 / scale : static_cast<double>(in) / static_cast<double>(out);
  const double corner = out > 1 ? static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0;
  const auto clamp = [&](int64_t i) { return std::min(std::max<int64_t>(i, 0), in - 1); };
  for (int64_t o = 0; o < out; ++o) {
    const auto at = static_cast<double>(o);
    if (mode == Interpolate::nearest) {
      map.push_back({o, clamp(static_cast<int64_t>(std::floor(at * step))), 1});
    } else if (mode == Interpolate::nearest_exact) {
      map.push_back({o, clamp(static_cast<int64_t>(std::floor((at + 0.5) * step))), 1});
    } else {
      double s = align ? at * corner : (at + 0.5) * step - 0.5;
      if (mode == Interpolate::linear) s = std::max(0.0, s);
      const auto low = static_cast<int64_t>(std::floor(s));
      for (int64_t i = low - 1; i <= low + 2; ++i) {
        const double x = s - static_cast<double>(i);
        const double w = mode == Interpolate::linear ? std::max(0.0, 1 - std::abs(x)) : cubic_weight(x);
        if (w != 0) map.push_back({o, clamp(i), w});
      }
    }
  }
  return map;
}

template <class T>
void check_interpolate(Interpolate mode, std::vector<int64_t> in, std::vector<int64_t> out, double scale, bool align,
                       int64_t inner) {
  SCOPED_TRACE(::testing::Message() << "mode " << static_cast<int>(mode) << " in " << in[0] << " out " << out[0]
                                    << " scale " << scale << " align " << align << " inner " << inner);
  InterpolateCall c{};
  c.dtype = dtype_of<T>, c.mode = mode, c.spatial = static_cast<int>(in.size()), c.outer = 3, c.inner = inner;
  c.align_corners = align;
  std::vector<std::vector<Entry>> axes;
  for (size_t d = 0; d < in.size(); ++d) {
    c.in[d] = in[d], c.out[d] = out[d], c.scale[d] = scale;
    axes.push_back(axis_map(mode, in[d], out[d], scale, align));
  }
  const auto map = combine(axes, in, out, c.outer, inner);
  const auto x = filled<T>(c.outer * product(in) * inner, 1), dy = filled<T>(c.outer * product(out) * inner, 2);
  const auto y = run_both(filled<T>(dy.size(), 3), [&](T* to) { cpu::interpolate_forward(c, x.data(), to); });
  const bool nearest = mode == Interpolate::nearest || mode == Interpolate::nearest_exact;
  // The source position itself is rounded: in/out up to 20 means 20 eps in a weight.
  compare(y, apply(map, doubles(x), dy.size(), false), nearest ? 0 : 64, "y");
  const auto dx = run_both(filled<T>(x.size(), 4), [&](T* to) { cpu::interpolate_backward(c, dy.data(), to); });
  compare(dx, apply(map, doubles(dy), x.size(), true), 256, "dx");
}

TYPED_TEST(Resize, Interpolate) {
  for (Interpolate mode : {Interpolate::nearest, Interpolate::nearest_exact, Interpolate::linear, Interpolate::cubic}) {
    for (bool align : {false, true}) {
      for (int64_t inner : {1, 4}) {
        for (int64_t out : {1, 4, 8, 11, 16}) {
          check_interpolate<TypeParam>(mode, {8}, {out}, 0, align, inner);
          check_interpolate<TypeParam>(mode, {8, 5}, {out, 7}, 0, align, inner);
          check_interpolate<TypeParam>(mode, {3, 8, 5}, {4, out, 6}, 0, align, inner);
        }
        check_interpolate<TypeParam>(mode, {8, 6}, {20, 15}, 2.5, align, inner);
        check_interpolate<TypeParam>(mode, {9, 7}, {16, 12}, 1.8, align, inner);
        check_interpolate<TypeParam>(mode, {1, 1}, {5, 3}, 0, align, inner);
        check_interpolate<TypeParam>(mode, {4, 40}, {3, 1300}, 0, align, inner);
      }
    }
  }
}

// Cells of a few vectors and a part of one.
TYPED_TEST(Resize, InterpolateWideCells) {
  for (Interpolate mode : {Interpolate::nearest, Interpolate::linear, Interpolate::cubic}) {
    for (int64_t inner : {3, 16, 19, 83}) check_interpolate<TypeParam>(mode, {8, 5}, {11, 7}, 0, false, inner);
  }
}

// A result that begins with a line of the caches is written past them.
template <class T>
void check_streamed(int64_t inner) {
  const InterpolateCall c{dtype_of<T>, Interpolate::linear,       2,         3,    inner,
                          {20, 40, 0}, {520 / inner + 64, 64, 0}, {0, 0, 0}, false};
  const auto x = filled<T>(c.outer * 800 * inner, 1);
  auto plain = filled<T>(c.outer * c.out[0] * 64 * inner, 2);
  cpu::interpolate_forward(c, x.data(), plain.data());
  cpu::Workspace<T> streamed(plain.size());
  const int64_t before = cpu::stream_bytes_per_thread();
  cpu::set_stream_bytes_per_thread(1 << 12);
  EXPECT_EQ(cpu::streams(plain.size() * static_cast<int64_t>(sizeof(T))), cpu::kHasStreams);
  cpu::interpolate_forward(c, x.data(), streamed.data());
  cpu::set_stream_bytes_per_thread(before);
  for (int64_t i = 0; i < plain.size(); ++i) ASSERT_EQ(as_double(streamed[i]), as_double(plain[i])) << i;
}
TYPED_TEST(Resize, InterpolateStreams) {
  check_streamed<TypeParam>(1);
  check_streamed<TypeParam>(64);
}

// Sums of vectors that lie side by side have different numbers of terms; what one has not must not reach it.
TYPED_TEST(Resize, InterpolateInfinity) {
  using T = TypeParam;
  InterpolateCall c{dtype_of<T>, Interpolate::linear, 1, 8, 1, {40, 0, 0}, {80, 0, 0}, {0, 0, 0}, false};
  const auto map = combine({axis_map(c.mode, 40, 80, 0, false)}, {40}, {80}, c.outer, 1);
  for (int64_t at = 1; at < 80; ++at) {
    auto dy = filled<T>(c.outer * 80, 2);
    dy[at] = static_cast<T>(std::numeric_limits<float>::infinity());
    auto dx = filled<T>(c.outer * 40, 3);
    cpu::interpolate_backward(c, dy.data(), dx.data());
    const auto expected = apply(map, doubles(dy), dx.size(), true);
    for (int64_t i = 0; i < dx.size(); ++i) {
      EXPECT_EQ(std::isinf(as_double(dx[i])), std::isinf(expected[static_cast<size_t>(i)])) << at << " in " << i;
      EXPECT_FALSE(std::isnan(as_double(dx[i]))) << at << " in " << i;
    }
  }
}

TEST(Resize, InterpolateRefusals) {
  InterpolateCall c{DType::i32, Interpolate::linear, 1, 1, 1, {3, 0, 0}, {6, 0, 0}, {0, 0, 0}, false};
  EXPECT_THROW(cpu::interpolate_forward(c, nullptr, nullptr), DTypeError);
  c.mode = Interpolate::nearest;
  const std::vector<int32_t> x = {1, 2, 3};
  Guarded<int32_t> y(6);
  cpu::interpolate_forward(c, x.data(), y.data());
  y.check();
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(y[i], x[static_cast<size_t>(i / 2)]);
  EXPECT_THROW(cpu::interpolate_backward(c, nullptr, nullptr), DTypeError);
  c.out[0] = 0;
  EXPECT_THROW(cpu::interpolate_forward(c, nullptr, nullptr), ShapeError);
}

// ---- pad

int64_t pad_source(PadMode mode, int64_t n, int64_t i) {
  if (i >= 0 && i < n) return i;
  if (mode == PadMode::constant) return -1;
  if (mode == PadMode::replicate) return i < 0 ? 0 : n - 1;
  if (mode == PadMode::circular) return (i % n + n) % n;
  return i < 0 ? -i : 2 * (n - 1) - i;
}

template <class T>
void check_pad(PadMode mode, std::vector<int64_t> sizes, std::vector<int64_t> before, std::vector<int64_t> after) {
  PadCall c{};
  c.dtype = dtype_of<T>, c.mode = mode, c.ndim = static_cast<int>(sizes.size());
  const T value = [] {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(1);
    } else {
      return static_cast<T>(0.5f);
    }
  }();
  c.value = &value;
  std::vector<int64_t> out;
  for (size_t d = 0; d < sizes.size(); ++d) {
    c.sizes[d] = sizes[d], c.before[d] = before[d], c.after[d] = after[d];
    out.push_back(sizes[d] + before[d] + after[d]);
  }
  const auto x = filled<T>(product(sizes), 1);
  const auto y = run_both(filled<T>(product(out), 2), [&](T* to) { cpu::pad_forward(c, x.data(), to); });
  std::vector<double> sum(static_cast<size_t>(x.size()), 0);
  const auto dy = filled<T>(product(out), 3);
  for (int64_t p = 0; p < y.size(); ++p) {
    int64_t rest = p, from = 0, scale = 1;
    bool inside = true;
    for (size_t d = sizes.size(); d-- > 0;) {
      const int64_t i = pad_source(mode, sizes[d], rest % out[d] - before[d]);
      inside = inside && i >= 0;
      from += i * scale;
      scale *= sizes[d];
      rest /= out[d];
    }
    const T want = inside ? x[from] : value;
    ASSERT_EQ(std::memcmp(&y[p], &want, sizeof(T)), 0) << "at " << p;
    if (inside) sum[static_cast<size_t>(from)] += as_double(dy[p]);
  }
  if constexpr (!std::is_integral_v<T>) {
    if (mode == PadMode::constant) return;
    const auto dx = run_both(filled<T>(x.size(), 4), [&](T* to) { cpu::pad_backward(c, dy.data(), to); });
    compare(dx, sum, 32, "dx");
  }
}

template <class T>
void check_pads() {
  for (PadMode mode : {PadMode::constant, PadMode::reflect, PadMode::replicate, PadMode::circular}) {
    SCOPED_TRACE(static_cast<int>(mode));
    check_pad<T>(mode, {7}, {3}, {2});
    check_pad<T>(mode, {3, 6}, {0, 5}, {0, 4});
    check_pad<T>(mode, {2, 5, 6}, {0, 1, 4}, {0, 4, 0});
    check_pad<T>(mode, {2, 3, 4, 5, 6}, {0, 0, 1, 2, 3}, {0, 0, 3, 0, 1});
    check_pad<T>(mode, {2, 4, 3}, {0, 2, 0}, {0, 1, 0});
    check_pad<T>(mode, {3, 40, 900}, {0, 7, 30}, {0, 2, 31});
  }
  check_pad<T>(PadMode::constant, {5, 6, 3, 4}, {1, 0, 2, 1}, {2, 3, 0, 1});
  check_pad<T>(PadMode::constant, {5, 6}, {-2, 3}, {1, -4});
  check_pad<T>(PadMode::constant, {5, 6}, {-2, 0}, {-3, 0});
  check_pad<T>(PadMode::constant, {0, 6}, {2, 0}, {1, 0});
  check_pad<T>(PadMode::constant, {}, {}, {});
}

TYPED_TEST(Resize, Pad) { check_pads<TypeParam>(); }
TEST(Resize, PadOtherTypes) {
  check_pads<int8_t>();
  check_pads<uint8_t>();
  check_pads<int32_t>();
  check_pads<int64_t>();
  check_pads<bool>();
}

TEST(Resize, PadRefusals) {
  PadCall c{DType::f32, PadMode::reflect, 1, {4}, {4}, {0}, nullptr};
  EXPECT_THROW(cpu::pad_forward(c, nullptr, nullptr), ShapeError);
  c.mode = PadMode::circular, c.before[0] = 5;
  EXPECT_THROW(cpu::pad_forward(c, nullptr, nullptr), ShapeError);
  c.before[0] = -1;
  EXPECT_THROW(cpu::pad_forward(c, nullptr, nullptr), ValueError);
  c.mode = PadMode::constant, c.before[0] = -5;
  EXPECT_THROW(cpu::pad_forward(c, nullptr, nullptr), ShapeError);
  c.before[0] = 0;
  EXPECT_THROW(cpu::pad_backward(c, nullptr, nullptr), ValueError);
}

// ---- unfold and fold

template <class T>
void check_unfold(std::vector<int64_t> in, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation) {
  UnfoldCall c{};
  c.dtype = dtype_of<T>, c.spatial = static_cast<int>(in.size()), c.n = 2, c.channels = 3;
  std::vector<int64_t> out, taps;
  for (size_t d = 0; d < in.size(); ++d) {
    c.in[d] = in[d], c.kernel[d] = kernel + static_cast<int64_t>(d % 2), c.stride[d] = stride, c.pad[d] = pad;
    c.dilation[d] = dilation;
    c.out[d] = std::max<int64_t>(0, (in[d] + 2 * pad - dilation * (c.kernel[d] - 1) - 1) / stride + 1);
    out.push_back(c.out[d]);
    taps.push_back(c.kernel[d]);
  }
  const int64_t planes = 6, rows = planes * product(taps), size = product(in), positions = product(out);
  const auto x = filled<T>(planes * size, 1), g = filled<T>(rows * positions, 2);
  const auto columns = run_both(filled<T>(rows * positions, 3), [&](T* to) { cpu::unfold(c, x.data(), to); });
  std::vector<double> sum(static_cast<size_t>(x.size()), 0);
  std::vector<uint64_t> wrapped(static_cast<size_t>(x.size()), 0);
  for (int64_t p = 0; p < columns.size(); ++p) {
    int64_t o = p % positions, t = p / positions % product(taps), from = 0, scale = 1;
    bool inside = true;
    for (size_t d = in.size(); d-- > 0;) {
      const int64_t i = o % out[d] * stride - pad + t % taps[d] * dilation;
      inside = inside && i >= 0 && i < in[d];
      from += i * scale;
      scale *= in[d], o /= out[d], t /= taps[d];
    }
    from += p / (positions * product(taps)) * size;
    T want{};
    std::memset(static_cast<void*>(&want), 0, sizeof(T));
    if (inside) want = x[from];
    ASSERT_EQ(std::memcmp(&columns[p], &want, sizeof(T)), 0) << "at " << p;
    if (!inside) continue;
    if constexpr (std::is_integral_v<T>) {
      wrapped[static_cast<size_t>(from)] += static_cast<uint64_t>(g[p]);
    } else {
      sum[static_cast<size_t>(from)] += as_double(g[p]);
    }
  }
  if constexpr (std::is_same_v<T, bool>) return;
  const auto back = run_both(filled<T>(x.size(), 4), [&](T* to) {
    if constexpr (!std::is_same_v<T, bool>) cpu::fold(c, g.data(), to);
  });
  if constexpr (std::is_integral_v<T>) {
    for (int64_t i = 0; i < back.size(); ++i) ASSERT_EQ(back[i], static_cast<T>(wrapped[static_cast<size_t>(i)]));
  } else {
    compare(back, sum, 32, "fold");
  }
}

template <class T>
void check_unfolds() {
  for (int64_t stride : {1, 2, 3}) {
    for (int64_t pad : {0, 1, 2}) {
      for (int64_t dilation : {1, 2}) {
        check_unfold<T>({17}, 3, stride, pad, dilation);
        check_unfold<T>({7, 9}, 2, stride, pad, dilation);
        check_unfold<T>({4, 7, 6}, 2, stride, pad, dilation);
      }
    }
  }
  check_unfold<T>({40, 700}, 3, 1, 1, 1);
  check_unfold<T>({2, 2}, 5, 1, 0, 1);
}

TYPED_TEST(Resize, Unfold) { check_unfolds<TypeParam>(); }
TEST(Resize, UnfoldOtherTypes) {
  check_unfolds<int8_t>();
  check_unfolds<uint8_t>();
  check_unfolds<int32_t>();
  check_unfolds<int64_t>();
  check_unfolds<bool>();
}

}  // namespace
}  // namespace deft::test
