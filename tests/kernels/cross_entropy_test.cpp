#include "kernels/cpu/norm/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/strided_data.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace {

using testing::Block;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr int64_t kIgnored = -5;

DType compute_of(DType t) { return t == f64 ? f64 : f32; }
Block flat(DType t, int64_t n, int64_t shift = 0) { return Block(t, {n}, {1}, shift); }

struct Data {
  RowsView v;
  Block x, weight, dx, saved;
  std::vector<int64_t> target;
  std::vector<double> loss, scale;
  Data(RowsView view, int64_t shift)
      : v(view),
        x(flat(v.dtype, v.outer * v.n * v.inner, shift)),
        weight(flat(v.dtype, v.n, shift)),
        dx(flat(v.dtype, v.outer * v.n * v.inner, shift)),
        saved(flat(compute_of(v.dtype), 2 * v.outer * v.inner)) {
    x.fill_random(1, -4, 4);
    weight.fill_random(2, 0.5, 2);
    for (int64_t r = 0; r < v.outer * v.inner; ++r) {
      target.push_back(r % 5 == 3 ? kIgnored : r * 7 % v.n);
      scale.push_back(0.25 * double(r % 4 + 1));
    }
    loss.assign(target.size() + 1, -7);
  }
  CrossEntropyCall call(bool weighted, double smoothing) {
    return {v, x.data(), target.data(), weighted ? weight.data() : nullptr, kIgnored, smoothing};
  }
};

// Relative to the largest term: half a unit of the stored type, and a few of the compute type.
void expect_close(double got, double want, double size, DType stored, DType computed, const char* what) {
  const double tol =
      std::fabs(want) * epsilon_of(stored) + (stored == f16 ? 0x1p-24 : 0) + size * 64 * epsilon_of(computed);
  if (!(std::fabs(got - want) <= tol))
    ADD_FAILURE() << what << " " << name_of(stored) << ": " << got << " want " << want;
}

void check(const RowsView& v, int64_t shift, bool weighted, double smoothing) {
  Data d(v, shift);
  const CrossEntropyCall c = d.call(weighted, smoothing);
  cross_entropy(c, d.loss.data(), d.saved.data());
  cross_entropy_backward(c, d.saved.data(), d.scale.data(), false, d.dx.data());
  EXPECT_EQ(d.loss.back(), -7);
  ASSERT_TRUE(d.dx.guards_intact() && d.saved.guards_intact());
  auto w = [&](int64_t i) { return weighted ? d.weight.at(i) : 1.0; };
  const DType t = compute_of(v.dtype);
  for (int64_t row = 0; row < v.outer * v.inner; ++row) {
    auto at = [&](int64_t i) { return (row / v.inner * v.n + i) * v.inner + row % v.inner; };
    const int64_t target = d.target[static_cast<size_t>(row)];
    const double scale = d.scale[static_cast<size_t>(row)], loss = d.loss[static_cast<size_t>(row)];
    if (target == kIgnored) {
      EXPECT_EQ(loss, 0);
      for (int64_t i = 0; i < v.n; ++i) EXPECT_EQ(d.dx.at(at(i)), 0);
      continue;
    }
    double sum = 0, all = 0, spread = 0;
    for (int64_t i = 0; i < v.n; ++i) sum += std::exp(d.x.at(at(i)));
    for (int64_t i = 0; i < v.n; ++i) all += w(i), spread += w(i) * (std::log(sum) - d.x.at(at(i)));
    const double share = smoothing / double(v.n), whole = (1 - smoothing) * w(target) + share * all;
    const double want = (1 - smoothing) * w(target) * (std::log(sum) - d.x.at(at(target))) + share * spread;
    expect_close(loss, want, 16 + std::log(sum), t, t, "loss");
    for (int64_t i = 0; i < v.n; ++i) {
      const double p = std::exp(d.x.at(at(i))) / sum;
      const double own = i == target ? (1 - smoothing) * w(i) : 0, slope = whole * p - share * w(i) - own;
      expect_close(d.dx.at(at(i)), scale * slope, scale * (whole * p + share * w(i) + own), v.dtype, t, "gradient");
    }
  }
}

TEST(CrossEntropyKernel, EveryTailAndDType) {
  for (DType t : {f32, f64, bf16, f16}) {
    for (int64_t n = 1; n <= 35; ++n) {
      check({t, 7, n, 1}, n % 4, n % 2, n % 3 ? 0 : 0.1);
      check({t, 2, 3, n}, n % 3, n % 2, n % 3 ? 0.1 : 0);
    }
    check({t, 6, 5000, 1}, 1, true, 0.2);
    check({t, 6, 5000, 1}, 0, false, 0);
    check({t, 2, 700, 9}, 0, true, 0.2);
    check({t, 0, 4, 1}, 0, false, 0);
  }
}

TEST(CrossEntropyKernel, SpecialValues) {
  for (const RowsView& v : {RowsView{f32, 4, 3, 1}, RowsView{f32, 1, 3, 4}}) {
    Data d(v, 0);
    const double rows[4][3] = {{1000, 990, -kInf}, {-kInf, 0, 1}, {-kInf, -kInf, -kInf}, {0, std::nan(""), 1}};
    auto at = [&](int64_t r, int64_t i) { return v.inner == 1 ? r * 3 + i : i * 4 + r; };
    for (int64_t r = 0; r < 4; ++r)
      for (int64_t i = 0; i < 3; ++i) d.x.set(at(r, i), rows[r][i]);
    d.target = {1, 0, kIgnored, 0};
    const CrossEntropyCall c = d.call(false, 0);
    cross_entropy(c, d.loss.data(), d.saved.data());
    const double one = 1;
    cross_entropy_backward(c, d.saved.data(), &one, true, d.dx.data());
    EXPECT_NEAR(d.loss[0], 10 + std::log1p(std::exp(-10.0)), 1e-6);  // 1000 does not swamp it
    EXPECT_NEAR(d.dx.at(at(0, 1)), std::exp(-10.0) / (1 + std::exp(-10.0)) - 1, 1e-7);
    EXPECT_EQ(d.dx.at(at(0, 2)), 0);
    EXPECT_EQ(d.loss[1], kInf);
    EXPECT_EQ(d.loss[2], 0);
    for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(d.dx.at(at(2, i)), 0);
    EXPECT_TRUE(std::isnan(d.loss[3]));
    for (int64_t i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(d.dx.at(at(3, i))));
  }
}

// A target that is nearly certain, or the only class: rounding must not make a loss below zero of it.
TEST(CrossEntropyKernel, LossesAreNeverNegative) {
  for (DType t : {f32, f64, bf16, f16}) {
    for (int64_t inner : {1, 20}) {
      for (int64_t n : {1, 10}) {
        Data d({t, 1000 / inner, n, inner}, 0);
        for (int64_t row = 0; row < 1000; ++row) {
          const int64_t target = d.target[static_cast<size_t>(row)] = row * 7 % n;
          const int64_t at = (row / inner * n + target) * inner + row % inner;
          d.x.set(at, d.x.at(at) + 14 + 0.01 * double(row));
        }
        for (double smoothing : {0.0, 0.1}) {
          cross_entropy(d.call(false, smoothing), d.loss.data(), d.saved.data());
          for (size_t row = 0; row < 1000; ++row) {
            ASSERT_GE(d.loss[row], 0) << name_of(t);
            ASSERT_TRUE(n > 1 || d.loss[row] == 0) << d.loss[row] << ", " << name_of(t);
          }
        }
      }
    }
  }
}

TEST(CrossEntropyKernel, ThreadsDoNotChangeResults) {
  const int before = num_threads();
  Data a({f32, 300, 130, 1}, 0), b({f32, 300, 130, 1}, 0);
  for (Data* d : {&a, &b}) {
    set_num_threads(d == &a ? 1 : 4);
    cross_entropy(d->call(true, 0.1), d->loss.data(), d->saved.data());
    cross_entropy_backward(d->call(true, 0.1), d->saved.data(), d->scale.data(), false, d->dx.data());
  }
  set_num_threads(before);
  EXPECT_EQ(a.loss, b.loss);
  for (int64_t i = 0; i < 300 * 130; ++i) ASSERT_EQ(a.dx.at(i), b.dx.at(i));
}

}  // namespace
}  // namespace deft::cpu
