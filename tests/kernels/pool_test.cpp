#include "kernels/cpu/pool/pool.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "kernels/dense_util.h"

namespace deft::test {
namespace {

using cpu::PoolCall;

PoolCall make(DType t, std::vector<int64_t> in, int64_t outer, int64_t inner, int64_t kernel, int64_t stride,
              int64_t pad, int64_t dilation, bool ceil_mode) {
  PoolCall c{};
  c.dtype = t, c.spatial = static_cast<int>(in.size()), c.outer = outer, c.inner = inner;
  for (int d = 0; d < c.spatial; ++d) {
    c.in[d] = in[static_cast<size_t>(d)];
    c.kernel[d] = kernel + d % 2, c.stride[d] = stride, c.pad[d] = pad, c.dilation[d] = dilation;
    c.out[d] = cpu::pool_output_size(c.in[d], c.kernel[d], stride, pad, dilation, ceil_mode);
  }
  return c;
}
PoolCall make_adaptive(DType t, std::vector<int64_t> in, std::vector<int64_t> out, int64_t outer, int64_t inner) {
  PoolCall c{};
  c.dtype = t, c.spatial = static_cast<int>(in.size()), c.outer = outer, c.inner = inner, c.adaptive = true;
  for (int d = 0; d < c.spatial; ++d) c.in[d] = in[static_cast<size_t>(d)], c.out[d] = out[static_cast<size_t>(d)];
  return c;
}
int64_t product(const int64_t* v, int n) {
  int64_t p = 1;
  for (int i = 0; i < n; ++i) p *= v[i];
  return p;
}

// Input positions of window o, flat, in order; and the length with padding.
std::vector<int64_t> window(const PoolCall& c, int64_t o, int64_t* padded) {
  std::vector<std::vector<int64_t>> along;
  *padded = 1;
  int64_t at[3], rest = o;
  for (int d = c.spatial - 1; d >= 0; --d) at[d] = rest % c.out[d], rest /= c.out[d];
  for (int d = 0; d < c.spatial; ++d) {
    std::vector<int64_t> list;
    if (c.adaptive) {
      const double step = static_cast<double>(c.in[d]) / static_cast<double>(c.out[d]);
      const auto begin = static_cast<int64_t>(std::floor(static_cast<double>(at[d]) * step + 1e-9));
      const auto end = static_cast<int64_t>(std::ceil(static_cast<double>(at[d] + 1) * step - 1e-9));
      for (int64_t i = begin; i < end; ++i) list.push_back(i);
      *padded *= end - begin;
    } else {
      int64_t length = 0;
      for (int64_t k = 0; k < c.kernel[d]; ++k) {
        const int64_t i = at[d] * c.stride[d] - c.pad[d] + k * c.dilation[d];
        if (i >= 0 && i < c.in[d]) list.push_back(i);
        if (i < c.in[d] + c.pad[d]) ++length;
      }
      *padded *= length;
    }
    along.push_back(list);
  }
  std::vector<int64_t> flat = {0};
  for (int d = 0; d < c.spatial; ++d) {
    std::vector<int64_t> next;
    for (int64_t f : flat) {
      for (int64_t i : along[static_cast<size_t>(d)]) next.push_back(f * c.in[d] + i);
    }
    flat = next;
  }
  return flat;
}

template <class T>
void check_max(const PoolCall& c, bool with_nan) {
  const int64_t in = product(c.in, c.spatial), out = product(c.out, c.spatial);
  auto x = filled<T>(c.outer * in * c.inner, 1);
  if constexpr (!std::is_integral_v<T>) {
    for (int64_t i = 0; with_nan && i < x.size(); i += 11) x[i] = T(i % 2 ? NAN : -INFINITY);
  }
  Guarded<int64_t> indices(c.outer * out * c.inner);
  const auto y =
      run_both(filled<T>(indices.size(), 2), [&](T* to) { cpu::max_pool_forward(c, x.data(), to, indices.data()); });
  indices.check();
  const auto without =
      run_both(filled<T>(indices.size(), 2), [&](T* to) { cpu::max_pool_forward(c, x.data(), to, nullptr); });
  EXPECT_TRUE(without.same_bits(y)) << "without indices";
  const auto dy = filled<T>(indices.size(), 3);
  std::vector<double> sum(static_cast<size_t>(x.size()), 0), norm(sum);
  for (int64_t p = 0; p < c.outer; ++p) {
    for (int64_t o = 0; o < out; ++o) {
      int64_t padded;
      const auto cells = window(c, o, &padded);
      for (int64_t k = 0; k < c.inner; ++k) {
        const int64_t at = (p * out + o) * c.inner + k;
        int64_t best = -1;
        for (int64_t i : cells) {
          const double v = as_double(x[(p * in + i) * c.inner + k]);
          const double b = best < 0 ? 0 : as_double(x[(p * in + best) * c.inner + k]);
          if (best < 0 || v != v || v > b) best = i;
        }
        ASSERT_EQ(indices[at], best) << "at " << at;
        if (best < 0) continue;
        const int64_t from = (p * in + best) * c.inner + k;
        ASSERT_EQ(std::memcmp(&y[at], &x[from], sizeof(T)), 0) << "at " << at;
        sum[static_cast<size_t>(from)] += as_double(dy[at]);
        norm[static_cast<size_t>(from)] += std::abs(as_double(dy[at]));
      }
    }
  }
  if constexpr (!std::is_integral_v<T>) {
    const auto dx =
        run_both(filled<T>(x.size(), 4), [&](T* to) { cpu::max_pool_backward(c, dy.data(), indices.data(), to); });
    for (int64_t i = 0; i < dx.size(); ++i) {
      const double tolerance = 4 * epsilon_of(dtype_of<accumulate_t<T>>) * norm[static_cast<size_t>(i)] +
                               epsilon_of(dtype_of<T>) * std::abs(sum[static_cast<size_t>(i)]);
      expect_near(as_double(dx[i]), sum[static_cast<size_t>(i)], tolerance, "dx", i);
    }
  }
}

template <class T>
void check_avg(const PoolCall& c) {
  const int64_t in = product(c.in, c.spatial), out = product(c.out, c.spatial);
  const auto x = filled<T>(c.outer * in * c.inner, 1), dy = filled<T>(c.outer * out * c.inner, 2);
  const auto y = run_both(filled<T>(dy.size(), 3), [&](T* to) { cpu::avg_pool_forward(c, x.data(), to); });
  const auto dx = run_both(filled<T>(x.size(), 4), [&](T* to) { cpu::avg_pool_backward(c, dy.data(), to); });
  std::vector<double> sum(static_cast<size_t>(x.size()), 0);
  // Values below 1, short sums.
  const double eps = epsilon_of(dtype_of<accumulate_t<T>>) * 64 + epsilon_of(dtype_of<T>);
  for (int64_t p = 0; p < c.outer; ++p) {
    for (int64_t o = 0; o < out; ++o) {
      int64_t padded;
      const auto cells = window(c, o, &padded);
      const auto divisor = static_cast<double>(c.divisor_override    ? c.divisor_override
                                               : c.count_include_pad ? padded
                                                                     : static_cast<int64_t>(cells.size()));
      for (int64_t k = 0; k < c.inner; ++k) {
        double mean = 0;
        const int64_t at = (p * out + o) * c.inner + k;
        for (int64_t i : cells) {
          mean += as_double(x[(p * in + i) * c.inner + k]) / divisor;
          sum[static_cast<size_t>((p * in + i) * c.inner + k)] += as_double(dy[at]) / divisor;
        }
        expect_near(as_double(y[at]), mean, eps * (1 + std::abs(mean)), "y", at);
      }
    }
  }
  for (int64_t i = 0; i < dx.size(); ++i) {
    const double want = sum[static_cast<size_t>(i)];
    expect_near(as_double(dx[i]), want, eps * (1 + std::abs(want)), "dx", i);
  }
}

template <class T>
class Pool : public ::testing::Test {};
using Floats = ::testing::Types<float, double, BFloat16, Half>;
TYPED_TEST_SUITE(Pool, Floats);

const std::vector<std::vector<int64_t>>& inputs() {
  static const std::vector<std::vector<int64_t>> all = {{13}, {9, 10}, {40, 41}, {5, 6, 7}};
  return all;
}

TYPED_TEST(Pool, Max) {
  for (const auto& in : inputs()) {
    for (int64_t inner : {1, 5, 300}) {
      if (inner == 300 && in[0] > 20) continue;
      for (int64_t stride : {1, 2, 3}) {
        for (int64_t dilation : {1, 2}) {
          for (bool ceil_mode : {false, true}) {
            check_max<TypeParam>(make(dtype_of<TypeParam>, in, 3, inner, 2, stride, 1, dilation, ceil_mode),
                                 stride == 2);
          }
        }
      }
    }
  }
}

TYPED_TEST(Pool, Average) {
  for (const auto& in : inputs()) {
    for (int64_t inner : {1, 5}) {
      for (int64_t stride : {1, 2, 3}) {
        for (int mode = 0; mode < 6; ++mode) {
          PoolCall c = make(dtype_of<TypeParam>, in, 3, inner, 2, stride, 1, 1, mode % 2 == 1);
          c.count_include_pad = mode / 2 == 1;
          c.divisor_override = mode / 2 == 2 ? 7 : 0;
          check_avg<TypeParam>(c);
        }
      }
    }
  }
}

TYPED_TEST(Pool, Adaptive) {
  const DType t = dtype_of<TypeParam>;
  for (int64_t inner : {1, 5}) {
    for (int64_t out : {1, 2, 5, 7, 12, 20}) {
      for (const PoolCall& c : {make_adaptive(t, {12}, {out}, 4, inner), make_adaptive(t, {12, 5}, {out, 3}, 2, inner),
                                make_adaptive(t, {3, 12, 5}, {2, out, 5}, 2, inner)}) {
        check_max<TypeParam>(c, out % 2 == 0);
        check_avg<TypeParam>(c);
      }
    }
  }
}

// Windows side by side, with what is left over at the ends; strips of channels and their last vectors.
TYPED_TEST(Pool, SideBySide) {
  const DType t = dtype_of<TypeParam>;
  for (int64_t inner : {1, 3, 8, 70, 300}) {
    for (int64_t kernel : {1, 2, 3}) {
      for (int64_t pad : {0, 1}) {
        for (bool ceil_mode : {false, true}) {
          PoolCall c = make(t, {4, 9, 11}, 2, inner, kernel, kernel, std::min(pad, kernel / 2), 1, ceil_mode);
          for (int d = 0; d < 3; ++d) {
            c.kernel[d] = kernel;
            c.out[d] = cpu::pool_output_size(c.in[d], kernel, kernel, c.pad[d], 1, ceil_mode);
          }
          check_max<TypeParam>(c, kernel == 2);
          check_avg<TypeParam>(c);
        }
      }
    }
  }
}

// More elements in a window than are added in one run, and more windows over an input than are taken at a time.
TYPED_TEST(Pool, LargeWindows) {
  const DType t = dtype_of<TypeParam>;
  for (int64_t inner : {1, 20}) {
    for (const PoolCall& c :
         {make(t, {40, 41}, 2, inner, 6, 1, 2, 1, false), make(t, {40, 41}, 2, inner, 5, 2, 2, 1, true),
          make(t, {40, 41}, 2, inner, 20, 7, 4, 1, true), make(t, {30}, 2, inner, 17, 2, 3, 1, false),
          make_adaptive(t, {40, 41}, {1, 1}, 2, inner), make_adaptive(t, {5, 6, 7}, {1, 1, 1}, 2, inner),
          make_adaptive(t, {5, 6, 70}, {5, 1, 1}, 2, inner)}) {
      check_max<TypeParam>(c, false);
      check_avg<TypeParam>(c);
    }
  }
}

// Planes whose gradient is made in several bands.
TEST(Pool, Bands) {
  for (int64_t kernel : {2, 3}) {
    const PoolCall c = make(DType::f32, {2, 301, 45}, 2, 1, kernel, 2, 1, 1, true);
    check_max<float>(c, false);
    check_avg<float>(c);
    check_max<BFloat16>(make(DType::bf16, {301, 45}, 2, 1, kernel, 2, 1, 1, true), false);
  }
}

// Of zeros with different signs the first wins, and keeps its sign.
TEST(Pool, SignedZeros) {
  for (int64_t inner : {1, 12}) {
    const PoolCall c = make(DType::f32, {20, 21}, 2, inner, 2, 2, 1, 1, false);
    auto x = filled<float>(c.outer * 420 * inner, 1);
    for (int64_t i = 0; i < x.size(); ++i) x[i] = x[i] > 0 ? 0.0f : -0.0f;
    const int64_t out = c.out[0] * c.out[1];
    Guarded<int64_t> indices(c.outer * out * inner);
    Guarded<float> y(indices.size()), without(indices.size());
    cpu::max_pool_forward(c, x.data(), y.data(), indices.data());
    cpu::max_pool_forward(c, x.data(), without.data(), nullptr);
    for (int64_t i = 0; i < y.size(); ++i) {
      int64_t padded;
      const int64_t plane = i / inner / out, first = window(c, i / inner % out, &padded)[0];
      ASSERT_EQ(indices[i], first) << "at " << i;
      ASSERT_EQ(std::signbit(y[i]), std::signbit(x[(plane * 420 + first) * inner + i % inner])) << "at " << i;
    }
    EXPECT_TRUE(y.same_bits(without));
  }
}

TEST(Pool, IntegersAndEmpty) {
  check_max<int8_t>(make(DType::i8, {9, 10}, 3, 1, 2, 2, 1, 1, true), false);
  check_max<uint8_t>(make(DType::u8, {9, 10}, 3, 4, 2, 2, 1, 1, true), false);
  check_max<int32_t>(make(DType::i32, {9, 10}, 3, 1, 2, 2, 1, 1, true), false);
  check_max<int64_t>(make(DType::i64, {30}, 3, 1, 2, 2, 1, 1, true), false);
  check_max<float>(make(DType::f32, {9, 10}, 0, 1, 2, 2, 1, 1, false), false);
  check_avg<float>(make(DType::f32, {9, 10}, 0, 3, 2, 2, 1, 1, false));
  EXPECT_THROW(cpu::avg_pool_forward(make(DType::i32, {9}, 1, 1, 2, 1, 0, 1, false), nullptr, nullptr), DTypeError);
  PoolCall bad = make(DType::f32, {9}, 1, 1, 2, 1, 0, 1, false);
  bad.stride[0] = 0;
  EXPECT_THROW(cpu::max_pool_forward(bad, nullptr, nullptr, nullptr), ValueError);
}

TEST(Pool, OutputSizes) {
  EXPECT_EQ(cpu::pool_output_size(5, 2, 2, 0, 1, false), 2);
  EXPECT_EQ(cpu::pool_output_size(5, 2, 2, 0, 1, true), 3);
  EXPECT_EQ(cpu::pool_output_size(4, 1, 3, 1, 1, true), 2);  // a third window would start past the right padding
  EXPECT_EQ(cpu::pool_output_size(7, 3, 1, 1, 2, false), 5);
  EXPECT_EQ(cpu::pool_output_size(2, 5, 1, 0, 1, false), 0);
}

}  // namespace
}  // namespace deft::test
