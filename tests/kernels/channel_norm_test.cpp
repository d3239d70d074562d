#include "kernels/cpu/norm/channel_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/copy/streaming_store.h"
#include "kernels/cpu/elementwise/elementwise.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace {

double value(int64_t i, double phase) { return std::sin(0.37 * static_cast<double>(i * i % 1009) + phase) + 0.5; }

// Elements of a dtype with guard bytes around them, at an odd offset.
struct Data {
  DType dtype;
  size_t n, shift;
  std::vector<unsigned char> bytes;
  Data(DType t, size_t count, size_t misalign) : dtype(t), n(count), shift(64 + misalign * size_of(t)) {
    bytes.assign(shift + n * size_of(t) + 64, 0xa5);
  }
  Data(DType t, const std::vector<double>& v, size_t misalign) : Data(t, v.size(), misalign) {
    convert(v.data(), f64, data(), t, n);
  }
  void* data() { return bytes.data() + shift; }
  std::vector<double> read() {
    std::vector<double> v(n);
    convert(data(), dtype, v.data(), f64, n);
    return v;
  }
  bool guards_hold() const {
    for (size_t i = 0; i < bytes.size(); ++i)
      if ((i < shift || i >= shift + n * size_of(dtype)) && bytes[i] != 0xa5) return false;
    return true;
  }
};

struct Layout {
  ChannelsView v;
  size_t misalign;
  size_t count() const { return static_cast<size_t>(v.n * v.c * v.s); }
  size_t planes() const { return static_cast<size_t>(v.n * v.c); }
  size_t plane_of(size_t i) const {
    auto at = static_cast<int64_t>(i);
    return static_cast<size_t>(v.last ? at / (v.s * v.c) * v.c + at % v.c : at / v.s);
  }
};

std::vector<Layout> layouts() {
  std::vector<Layout> all;
  for (DType t : {f32, f64, bf16, f16})
    for (bool last : {false, true}) {
      for (int64_t tail = 1; tail <= 19; ++tail) {
        all.push_back({{t, 2, last ? tail : 3, last ? 5 : tail, last}, static_cast<size_t>(tail % 3)});
      }
      all.push_back({{t, 2, 131, 9, last}, 1});
      all.push_back({{t, 1, 1030, 67, last}, 1});
      all.push_back({{t, 1, 3, 2500, last}, 0});
      all.push_back({{t, 2, 5, 1090, last}, 1});
    }
  return all;
}
std::vector<double> values(size_t n, double phase) {
  std::vector<double> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = value(static_cast<int64_t>(i), phase);
  return v;
}
double eps_of(DType t) { return t == f64 ? 0x1p-52 : 0x1p-23; }

TEST(Channels, Moments) {
  for (const Layout& s : layouts()) {
    Data x(s.v.dtype, values(s.count(), 0), s.misalign);
    std::vector<double> mean(s.planes() + 1, -7), squares(s.planes() + 1, -7);
    plane_moments(s.v, x.data(), mean.data(), squares.data());
    auto xs = x.read();
    std::vector<double> want_mean(s.planes()), want(s.planes());
    double n = static_cast<double>(s.v.s);
    for (size_t i = 0; i < xs.size(); ++i) want_mean[s.plane_of(i)] += xs[i] / n;
    for (size_t i = 0; i < xs.size(); ++i) want[s.plane_of(i)] += std::pow(xs[i] - want_mean[s.plane_of(i)], 2);
    double tol = 16 * eps_of(s.v.dtype);
    for (size_t p = 0; p < s.planes(); ++p) {
      ASSERT_TRUE(std::fabs(mean[p] - want_mean[p]) <= tol * 2)
          << p << " of " << s.v.c << "x" << s.v.s << " last " << s.v.last;
      ASSERT_TRUE(std::fabs(squares[p] - want[p]) <= tol * 4 * n)
          << p << " of " << s.v.c << "x" << s.v.s << " last " << s.v.last;
    }
    EXPECT_EQ(mean.back(), -7);
    EXPECT_EQ(squares.back(), -7);
    EXPECT_TRUE(x.guards_hold());
  }
}

// The moments are those of the whole plane where its first elements are nothing like the others.
TEST(Channels, MomentsOfFarFirstElements) {
  for (bool last : {false, true}) {
    Layout s{{f32, 1, 5, 3000, last}, 0};
    std::vector<double> x = values(s.count(), 0);
    for (size_t i = 0; i < x.size(); ++i) {
      size_t k = last ? i / 5 : i % 3000;
      x[i] = static_cast<double>(static_cast<float>(k < 8 && s.plane_of(i) % 2 ? 2000 : x[i]));
    }
    Data d(f32, x, 0);
    std::vector<double> mean(5), squares(5), want_mean(5), want(5);
    plane_moments(s.v, d.data(), mean.data(), squares.data());
    for (size_t i = 0; i < x.size(); ++i) want_mean[s.plane_of(i)] += x[i] / 3000;
    for (size_t i = 0; i < x.size(); ++i) want[s.plane_of(i)] += std::pow(x[i] - want_mean[s.plane_of(i)], 2);
    for (size_t p = 0; p < 5; ++p) {
      EXPECT_NEAR(mean[p], want_mean[p], 1e-6 * (1 + std::fabs(want_mean[p]))) << p << " last " << last;
      EXPECT_NEAR(squares[p] / want[p], 1, 4e-6) << p << " last " << last;
    }
  }
}

TEST(Channels, GradSums) {
  for (const Layout& s : layouts()) {
    Data x(s.v.dtype, values(s.count(), 0), s.misalign), g(s.v.dtype, values(s.count(), 1), 0);
    std::vector<double> center(s.planes()), sum(s.planes() + 1, -7), product(s.planes() + 1, -7);
    for (size_t p = 0; p < center.size(); ++p)
      center[p] = static_cast<double>(static_cast<float>(value(static_cast<int64_t>(p), 2)));
    plane_grad_sums(s.v, g.data(), x.data(), center.data(), sum.data(), product.data());
    auto xs = x.read(), gs = g.read();
    std::vector<double> want(s.planes()), want_product(s.planes());
    for (size_t i = 0; i < xs.size(); ++i) {
      want[s.plane_of(i)] += gs[i];
      want_product[s.plane_of(i)] += gs[i] * (xs[i] - center[s.plane_of(i)]);
    }
    double tol = 32 * eps_of(s.v.dtype) * static_cast<double>(s.v.s);
    for (size_t p = 0; p < s.planes(); ++p) {
      ASSERT_TRUE(std::fabs(sum[p] - want[p]) <= tol) << p;
      ASSERT_TRUE(std::fabs(product[p] - want_product[p]) <= 4 * tol) << p;
    }
    EXPECT_EQ(sum.back(), -7);
    EXPECT_EQ(product.back(), -7);
  }
}

TEST(Channels, Map) {
  for (const Layout& s : layouts())
    for (bool with_g : {false, true}) {
      Data x(s.v.dtype, values(s.count(), 0), s.misalign), g(s.v.dtype, values(s.count(), 1), 1);
      Data out(s.v.dtype, s.count(), s.misalign);
      auto of_g = values(s.planes(), 3), of_x = values(s.planes(), 4), center = values(s.planes(), 5),
           offset = values(s.planes(), 6);
      apply_affine(s.v, with_g ? g.data() : nullptr, x.data(),
                   {with_g ? of_g.data() : nullptr, of_x.data(), center.data(), offset.data()}, out.data());
      auto xs = x.read(), gs = g.read(), got = out.read();
      double eps = s.v.dtype == bf16 ? 0x1p-8 : s.v.dtype == f16 ? 0x1p-11 : eps_of(s.v.dtype);
      for (size_t i = 0; i < got.size(); ++i) {
        size_t p = s.plane_of(i);
        double want = of_x[p] * (xs[i] - center[p]) + offset[p] + (with_g ? of_g[p] * gs[i] : 0);
        ASSERT_TRUE(std::fabs(got[i] - want) <= eps * std::fabs(want) + 16 * eps_of(s.v.dtype))
            << i << " of " << s.v.c << "x" << s.v.s;
      }
      EXPECT_TRUE(out.guards_hold());
      // In place.
      apply_affine(s.v, with_g ? g.data() : nullptr, x.data(),
                   {with_g ? of_g.data() : nullptr, of_x.data(), center.data(), offset.data()}, x.data());
      EXPECT_EQ(x.read(), got);
      EXPECT_TRUE(x.guards_hold());
    }
}

// Every kind of number, subnormal ones too, which the instruction of x86 would make zeros.
TEST(Channels, RoundsToBf16AsTheScalarDoes) {
  const int64_t limit = stream_bytes_per_thread();
  for (int64_t bytes : {int64_t{0}, int64_t{1} << 16}) {  // through the caches, and past them
    set_stream_bytes_per_thread(bytes);
    const ChannelsView v{bf16, 3, 64, 8192 / 3, true};
    const auto n = static_cast<size_t>(v.n * v.c * v.s);
    std::vector<BFloat16> x(n + 32), residual(n + 32);
    for (size_t i = 0; i < n; ++i) {
      x[i].bits = static_cast<uint16_t>(i * 40503 >> 3);
      residual[i].bits = static_cast<uint16_t>(i * 30011 >> 2);
      if (i / 4096 % 2 == 0) x[i].bits |= 0x0400, residual[i].bits |= 0x0400;  // normal ones
    }
    Data got(bf16, n, 0), summed(bf16, n, 0);
    const std::vector<double> of_x(192, 0.3f), zero(192, 0.0);
    apply_affine(v, nullptr, x.data(), {nullptr, of_x.data(), zero.data(), zero.data()}, got.data());
    apply_affine_relu(v, x.data(), residual.data(), {nullptr, of_x.data(), zero.data(), zero.data()}, summed.data());
    const auto *a = static_cast<const BFloat16*>(got.data()), *b = static_cast<const BFloat16*>(summed.data());
    const auto same = [](BFloat16 found, float want) {
      return std::isnan(want) ? std::isnan(static_cast<float>(found)) : found.bits == BFloat16(want).bits;
    };
    for (size_t i = 0; i < n; ++i) {
      const BFloat16 norm(std::fma(0.3f, static_cast<float>(x[i]), 0.0f));
      const BFloat16 sum(static_cast<float>(norm) + static_cast<float>(residual[i]));
      ASSERT_TRUE(same(a[i], static_cast<float>(norm))) << i;
      ASSERT_TRUE(same(b[i], static_cast<float>(sum) <= 0 ? 0.0f : static_cast<float>(sum))) << i;
    }
    EXPECT_TRUE(got.guards_hold() && summed.guards_hold());
  }
  set_stream_bytes_per_thread(limit);
}

TEST(Channels, ThreadsDoNotChangeResults) {
  int before = num_threads();
  for (bool last : {false, true}) {
    Layout s{{f32, 3, 70, 3000, last}, 0};
    Data x(f32, values(s.count(), 0), 0);
    std::vector<double> mean[2], squares[2];
    for (int k : {0, 1}) {
      set_num_threads(k ? 3 : 1);
      mean[k].resize(s.planes());
      squares[k].resize(s.planes());
      plane_moments(s.v, x.data(), mean[k].data(), squares[k].data());
    }
    EXPECT_EQ(mean[0], mean[1]);
    EXPECT_EQ(squares[0], squares[1]);
  }
  set_num_threads(before);
}

}  // namespace
}  // namespace deft::cpu
