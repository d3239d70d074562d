#include "kernels/cpu/norm/softmax_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/strided_data.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace {

using testing::Block;

constexpr DType kFloating[] = {f32, f64, bf16, f16};
constexpr double kInf = std::numeric_limits<double>::infinity();

DType compute_of(DType t) { return t == f64 ? f64 : f32; }
Block flat(DType t, int64_t n, int64_t shift = 0) { return Block(t, {n}, {1}, shift); }

// Half a unit of the stored type, and a few of the compute type for each of the sums it depends on.
void expect_close(double got, double want, double scale, DType t, double steps, const char* what) {
  const double subnormal = t == f16 ? 0x1p-24 : 0;
  const double tol = std::fabs(want) * epsilon_of(t) + subnormal + scale * epsilon_of(compute_of(t)) * steps;
  if (!(std::fabs(got - want) <= tol)) ADD_FAILURE() << what << " " << name_of(t) << ": " << got << " want " << want;
}

struct Shape {
  int64_t outer, n, inner;
};

void check_softmax(DType t, Shape s, int64_t shift) {
  const int64_t total = s.outer * s.n * s.inner;
  Block x = flat(t, total, shift), y = flat(t, total, shift), ly = flat(t, total), g = flat(t, total);
  Block dx = flat(t, total), ldx = flat(t, total, shift);
  x.fill_random(1, -4, 4);
  g.fill_random(2, -2, 2);
  const RowsView v{t, s.outer, s.n, s.inner};
  softmax(v, x.data(), y.data());
  log_softmax(v, x.data(), ly.data());
  softmax_backward(v, g.data(), y.data(), dx.data());
  log_softmax_backward(v, g.data(), ly.data(), ldx.data());
  const double steps = 16 + static_cast<double>(std::min<int64_t>(s.n, 256));
  for (int64_t o = 0; o < s.outer; ++o) {
    for (int64_t k = 0; k < s.inner; ++k) {
      auto at = [&](int64_t i) { return (o * s.n + i) * s.inner + k; };
      double top = -kInf, sum = 0, dot = 0, total_g = 0, scale = 0;
      for (int64_t i = 0; i < s.n; ++i) top = std::max(top, x.at(at(i)));
      for (int64_t i = 0; i < s.n; ++i) {
        sum += std::exp(x.at(at(i)) - top);
        dot += g.at(at(i)) * y.at(at(i));
        total_g += g.at(at(i));
        scale += std::fabs(g.at(at(i)));
      }
      for (int64_t i = 0; i < s.n; ++i) {
        const double p = std::exp(x.at(at(i)) - top) / sum;
        expect_close(y.at(at(i)), p, p, t, steps, "softmax");
        expect_close(ly.at(at(i)), x.at(at(i)) - top - std::log(sum), 8 + std::log(sum), t, steps, "log_softmax");
        expect_close(dx.at(at(i)), y.at(at(i)) * (g.at(at(i)) - dot), y.at(at(i)) * 4, t, steps, "softmax grad");
        const double want = g.at(at(i)) - std::exp(ly.at(at(i))) * total_g;
        expect_close(ldx.at(at(i)), want, 2 + scale, t, steps, "log_softmax grad");
      }
    }
  }
  ASSERT_TRUE(y.guards_intact() && ly.guards_intact() && dx.guards_intact() && ldx.guards_intact());
}

TEST(Softmax, OneClassIsCertain) {
  for (DType t : kFloating) {
    for (int64_t inner : {1, 40}) {
      const int64_t outer = inner == 1 ? 1000 : 25;
      Block x = flat(t, 1000), y = flat(t, 1000), ly = flat(t, 1000);
      x.fill_random(1, -50, 50);
      const RowsView v{t, outer, 1, inner};
      softmax(v, x.data(), y.data());
      log_softmax(v, x.data(), ly.data());
      for (int64_t i = 0; i < 1000; ++i) {
        ASSERT_EQ(y.at(i), 1) << name_of(t) << " " << x.at(i);
        ASSERT_EQ(ly.at(i), 0) << name_of(t) << " " << x.at(i);
      }
    }
  }
}
// One class far above the others: rounding must not make a probability more than 1.
TEST(Softmax, ProbabilitiesAreNeverAboveOne) {
  for (DType t : kFloating) {
    for (int64_t inner : {1, 40}) {
      const int64_t n = 5, rows = 1000;
      Block x = flat(t, n * rows), y = flat(t, n * rows), ly = flat(t, n * rows);
      x.fill_random(2, -3, 3);
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t top = r / inner * n * inner + r % inner + r % n * inner;
        x.set(top, x.at(top) + 12 + 0.01 * double(r));
      }
      const RowsView v{t, rows / inner, n, inner};
      softmax(v, x.data(), y.data());
      log_softmax(v, x.data(), ly.data());
      for (int64_t i = 0; i < n * rows; ++i) {
        ASSERT_LE(y.at(i), 1) << name_of(t);
        ASSERT_LE(ly.at(i), 0) << name_of(t);
      }
    }
  }
}
TEST(Softmax, EveryTailAndDType) {
  for (DType t : kFloating) {
    for (int64_t n = 1; n <= 35; ++n) {
      check_softmax(t, {2, n, 1}, n % 4);
      check_softmax(t, {2, 3, n}, n % 3);
    }
    for (int64_t n : {63, 64, 65, 79, 127, 128, 129, 143}) check_softmax(t, {3, n, 1}, n % 5);
    check_softmax(t, {3, 5000, 1}, 1);
    check_softmax(t, {2, 700, 33}, 0);
    check_softmax(t, {2, 300, 145}, 1);  // strips of several vectors, and what is left
    check_softmax(t, {300, 70, 1}, 0);
    check_softmax(t, {0, 7, 3}, 0);
  }
}

TEST(Softmax, LargeValuesInfinitiesAndInPlace) {
  Block x = flat(f32, 6), y = flat(f32, 6);
  const double values[] = {1000, 999, -kInf, 0, -kInf, 0};
  for (int i = 0; i < 6; ++i) x.set(i, values[i]);
  for (const RowsView& v : {RowsView{f32, 2, 3, 1}, RowsView{f32, 1, 3, 2}}) {
    softmax(v, x.data(), y.data());
    for (int i = 0; i < 6; ++i) EXPECT_TRUE(std::isfinite(y.at(i)));
  }
  softmax({f32, 2, 3, 1}, x.data(), y.data());
  EXPECT_NEAR(y.at(0), 1 / (1 + std::exp(-1.0)), 1e-6);
  EXPECT_EQ(y.at(2), 0);
  EXPECT_EQ(y.at(4), 0);
  log_softmax({f32, 2, 3, 1}, x.data(), y.data());
  EXPECT_EQ(y.at(2), -kInf);
  x.set(1, std::nan(""));
  softmax({f32, 2, 3, 1}, x.data(), x.data());
  EXPECT_TRUE(std::isnan(x.at(0)));
  EXPECT_EQ(x.at(3), 0.5);
}

// Rows of large numbers are as accurate as their differences.
TEST(Softmax, FarFromZero) {
  constexpr int64_t n = 37;
  Block x = flat(f32, n), y = flat(f32, n), ly = flat(f32, n);
  for (double base : {-7.3, 1000.3, -3e5, 1e6, 1.1e6, 5e6, -1e7}) {
    double top = -kInf, sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      x.set(i, base - 0.5 * static_cast<double>(i * 7 % n));
      top = std::max(top, x.at(i));
    }
    for (int64_t i = 0; i < n; ++i) sum += std::exp(x.at(i) - top);
    softmax({f32, 1, n, 1}, x.data(), y.data());
    log_softmax({f32, 1, n, 1}, x.data(), ly.data());
    for (int64_t i = 0; i < n; ++i) {
      const double d = x.at(i) - top, p = std::exp(d) / sum;
      EXPECT_TRUE(std::fabs(y.at(i) - p) <= (5e-7 - 1.2e-7 * d) * p)
          << base << " " << i << ": " << y.at(i) << " want " << p;
      EXPECT_TRUE(std::fabs(ly.at(i) - (d - std::log(sum))) <= 3e-6) << base << " " << i << ": " << ly.at(i);
    }
  }
}

// The exponentials themselves: with a gradient of -1 for the first element only, the others get exp(y).
std::vector<double> exponentials(const std::vector<float>& y) {
  const int64_t n = static_cast<int64_t>(y.size()) + 1;
  Block g = flat(f32, n), in = flat(f32, n), dx = flat(f32, n);
  for (int64_t i = 0; i < n; ++i) g.set(i, i == 0 ? -1 : 0), in.set(i, i == 0 ? 0 : y[static_cast<size_t>(i - 1)]);
  log_softmax_backward({f32, 1, n, 1}, g.data(), in.data(), dx.data());
  std::vector<double> e;
  for (int64_t i = 1; i < n; ++i) e.push_back(dx.at(i));
  return e;
}
TEST(Softmax, ExponentialsAreAccurate) {
#if defined(__aarch64__)
  auto bound = [](double) { return 2.6; };
#else
  auto bound = [](double x) { return 3 + std::fabs(x); };  // where fma() is two operations
#endif
  std::vector<float> y;
  for (uint32_t bits = 0x32000000; bits < 0x42aeac50; bits += 509) {  // -7.5e-9 to -87.34
    float v;
    std::memcpy(&v, &bits, sizeof v);
    y.push_back(-v);
  }
  const std::vector<double> got = exponentials(y);
  double worst = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    const double want = std::exp(static_cast<double>(y[i]));
    const float near = static_cast<float>(want);
    const double ulp = std::ldexp(1.0, std::max(-149, std::ilogb(near) - 23));
    worst = std::max(worst, std::fabs(got[i] - want) / ulp);
    ASSERT_TRUE(std::fabs(got[i] - want) <= bound(y[i]) * ulp) << y[i] << ": " << got[i] << " want " << want;
  }
  EXPECT_GT(worst, 0.5);
}
TEST(Softmax, ExponentialsOfSmallAndSpecialNumbers) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> y = {0, -0.0f, -inf, -87.4f, -87.6f, -87.7f, -88, -100, -1e30f, std::nanf("1234567")};
  for (size_t pad : {0, 5, 60}) {  // in the tail and in whole vectors
    std::vector<float> padded = y;
    padded.resize(y.size() + pad, -1);
    const std::vector<double> e = exponentials(padded);
    EXPECT_EQ(e[0], 1);
    EXPECT_EQ(e[1], 1);
    EXPECT_EQ(e[2], 0);
    for (size_t i = 3; i < 9; ++i) EXPECT_TRUE(std::fabs(e[i] - std::exp(double(y[i]))) <= 0x1p-126) << y[i];
    for (size_t i = 6; i < 9; ++i) EXPECT_EQ(e[i], 0);
    EXPECT_TRUE(std::isnan(e[9]));
  }
}

// A NaN, or a largest element that is infinite, makes the whole row NaN and no other row.
TEST(Softmax, RowsThatAreNaN) {
  for (DType t : {f32, f64, bf16, f16}) {
    for (int64_t n : {1, 3, 4, 17, 37}) {
      for (double bad : {std::nan(""), kInf, -kInf}) {
        for (int64_t at = 0; at < n; ++at) {
          Block x = flat(t, 3 * n), y = flat(t, 3 * n), ly = flat(t, 3 * n);
          x.fill_random(1, -4, 4);
          for (int64_t i = 0; i < n; ++i)
            if (i == at || bad == -kInf) x.set(n + i, bad);
          softmax({t, 3, n, 1}, x.data(), y.data());
          log_softmax({t, 3, n, 1}, x.data(), ly.data());
          for (int64_t i = 0; i < 3 * n; ++i) {
            ASSERT_EQ(std::isnan(y.at(i)), i / n == 1) << name_of(t) << " " << n << " " << bad << " " << at;
            ASSERT_EQ(std::isnan(ly.at(i)), i / n == 1) << name_of(t) << " " << n << " " << bad << " " << at;
          }
        }
      }
    }
  }
  Block one = flat(f32, 3), y = flat(f32, 3);
  one.fill_random(1, -4, 4);
  softmax({f32, 3, 1, 1}, one.data(), y.data());
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(y.at(i), 1);
}

struct NormData {
  NormData(DType t, int64_t rows, int64_t n, int64_t shift)
      : x(flat(t, rows * n, shift)),
        gamma(flat(t, n, shift)),
        beta(flat(t, n)),
        y(flat(t, rows * n, shift)),
        g(flat(t, rows * n)),
        dx(flat(t, rows * n, shift)),
        dgamma(flat(t, n, shift)),
        dbeta(flat(t, n)),
        mean(flat(compute_of(t), rows)),
        rstd(flat(compute_of(t), rows)) {
    x.fill_random(1, 1, 5);
    gamma.fill_random(2, 0.5, 2);
    beta.fill_random(3, -1, 1);
    g.fill_random(4, -1, 1);
  }
  bool intact() {
    return y.guards_intact() && dx.guards_intact() && dgamma.guards_intact() && dbeta.guards_intact() &&
           mean.guards_intact() && rstd.guards_intact();
  }
  Block x, gamma, beta, y, g, dx, dgamma, dbeta, mean, rstd;
};

void check_norm(DType t, int64_t rows, int64_t n, bool layer, bool affine, int64_t shift) {
  NormData d(t, rows, n, shift);
  const double eps = 1e-5;
  const void *gamma = affine ? d.gamma.data() : nullptr, *beta = affine ? d.beta.data() : nullptr;
  const NormCall c{t, rows, n, d.x.data(), gamma, beta, eps, d.y.data(), d.mean.data(), d.rstd.data()};
  const NormBackwardCall b{t,
                           rows,
                           n,
                           d.g.data(),
                           d.x.data(),
                           gamma,
                           d.mean.data(),
                           d.rstd.data(),
                           d.dx.data(),
                           d.dgamma.data(),
                           layer ? d.dbeta.data() : nullptr};
  layer ? layer_norm(c) : rms_norm(c);
  layer ? layer_norm_backward(b) : rms_norm_backward(b);
  const double steps = 32 + static_cast<double>(std::min<int64_t>(n, 256));
  std::vector<double> dgamma(static_cast<size_t>(n)), dbeta(static_cast<size_t>(n)), size(static_cast<size_t>(n));
  for (int64_t r = 0; r < rows; ++r) {
    double mean = 0, var = 0, slope = 0, offset = 0, top = 0;
    for (int64_t i = 0; layer && i < n; ++i) mean += d.x.at(r * n + i) / double(n);
    for (int64_t i = 0; i < n; ++i) var += std::pow(d.x.at(r * n + i) - mean, 2) / double(n);
    const double rstd = 1 / std::sqrt(var + eps);
    auto w = [&](int64_t i) { return affine ? d.gamma.at(i) : 1.0; };
    auto normal = [&](int64_t i) { return (d.x.at(r * n + i) - mean) * rstd; };
    for (int64_t i = 0; i < n; ++i) {
      slope += d.g.at(r * n + i) * w(i) * normal(i) / double(n);
      if (layer) offset += d.g.at(r * n + i) * w(i) / double(n);
      top = std::max(top, std::fabs(normal(i)));
      dgamma[static_cast<size_t>(i)] += d.g.at(r * n + i) * normal(i);
      size[static_cast<size_t>(i)] += std::fabs(d.g.at(r * n + i)) * (1 + std::fabs(normal(i)));
      dbeta[static_cast<size_t>(i)] += d.g.at(r * n + i);
    }
    // Cancellation in x - mean: the error is relative to |x| * rstd <= 5 * rstd.
    const double spread = (5 * rstd + top) * 2;
    if (layer) expect_close(d.mean.at(r), mean, 5, compute_of(t), steps, "mean");
    const double rstd_scale = rstd * (1 + 25 * rstd * rstd * epsilon_of(compute_of(t)));
    expect_close(d.rstd.at(r), rstd, rstd_scale, compute_of(t), steps, "rstd");
    for (int64_t i = 0; i < n; ++i) {
      const double y = normal(i) * w(i) + (affine && layer ? d.beta.at(i) : 0);
      expect_close(d.y.at(r * n + i), y, spread + 1, t, steps, "norm");
      const double dx = rstd * (d.g.at(r * n + i) * w(i) - offset - normal(i) * slope);
      const double scale = rstd * (2 + spread * (1 + std::fabs(slope))) * (1 + top);
      expect_close(d.dx.at(r * n + i), dx, scale, t, steps, "norm dx");
    }
  }
  const double row_steps = 16 + static_cast<double>(std::min<int64_t>(rows, 64)) + steps;
  for (int64_t i = 0; i < n && n > 1; ++i) {
    const size_t k = static_cast<size_t>(i);
    expect_close(d.dgamma.at(i), dgamma[k], size[k] * 8, t, row_steps, "dgamma");
    if (layer) expect_close(d.dbeta.at(i), dbeta[k], size[k], t, row_steps, "dbeta");
  }
  ASSERT_TRUE(d.intact());
}

TEST(Norm, EveryTailAndDType) {
  for (DType t : kFloating) {
    for (bool layer : {true, false}) {
      for (int64_t n = 2; n <= 35; ++n) check_norm(t, 3, n, layer, n % 3 != 0, n % 4);
      for (int64_t n : {63, 64, 65, 79, 127, 128, 129, 143}) check_norm(t, 3, n, layer, n % 2, n % 5);
      check_norm(t, 200, 300, layer, true, 0);
      check_norm(t, 3, 5000, layer, true, 1);
      check_norm(t, 1000, 40, layer, false, 0);
    }
  }
}

TEST(Norm, MeanFarFromZero) {
  const int64_t n = 4096;
  Block x = flat(f32, n), y = flat(f32, n), rstd = flat(f32, 1);
  for (int64_t i = 0; i < n; ++i) x.set(i, 10000 + (i % 2 ? 1 : -1));
  layer_norm({f32, 1, n, x.data(), nullptr, nullptr, 0, y.data(), nullptr, rstd.data()});
  EXPECT_NEAR(rstd.at(0), 1, 1e-6);
  for (int64_t i = 0; i < n; ++i) ASSERT_NEAR(y.at(i), i % 2 ? 1 : -1, 1e-6);
}

// The variance is that of the whole row where the first elements are nothing like the others.
TEST(Norm, FirstElementsFarFromTheMean) {
  for (int64_t n : {40, 4096, 50000}) {
    Block x = flat(f32, n), y = flat(f32, n), rstd = flat(f32, 1), mean = flat(f32, 1);
    x.fill_random(1, -1, 1);
    for (int64_t i = 0; i < 16; ++i) x.set(i, 3000);
    layer_norm({f32, 1, n, x.data(), nullptr, nullptr, 0, y.data(), mean.data(), rstd.data()});
    double want_mean = 0, var = 0;
    for (int64_t i = 0; i < n; ++i) want_mean += x.at(i) / double(n);
    for (int64_t i = 0; i < n; ++i) var += std::pow(x.at(i) - want_mean, 2) / double(n);
    EXPECT_NEAR(mean.at(0), want_mean, 1e-6 * std::fabs(want_mean));
    EXPECT_NEAR(rstd.at(0) * std::sqrt(var), 1, 1e-6);
  }
}

// A NaN or an infinity spoils its own row only: rows share loops.
TEST(Norm, NaNStaysInItsRow) {
  for (double bad : {std::nan(""), kInf}) {
    for (int64_t at = 0; at < 21; ++at) {
      NormData d(f32, 3, 21, 0), clean(f32, 3, 21, 0);
      d.x.set(21 + at, bad);
      for (NormData* p : {&d, &clean}) {
        layer_norm({f32, 3, 21, p->x.data(), p->gamma.data(), p->beta.data(), 1e-5, p->y.data(), p->mean.data(),
                    p->rstd.data()});
        layer_norm_backward({f32, 3, 21, p->g.data(), p->x.data(), p->gamma.data(), p->mean.data(), p->rstd.data(),
                             p->dx.data(), nullptr, nullptr});
      }
      for (int64_t i = 0; i < 63; ++i) {
        ASSERT_EQ(std::isnan(d.y.at(i)), i / 21 == 1) << at << " " << i;
        ASSERT_EQ(std::isnan(d.dx.at(i)), i / 21 == 1) << at << " " << i;
        if (i / 21 == 1) continue;
        ASSERT_EQ(d.y.at(i), clean.y.at(i));
        ASSERT_EQ(d.dx.at(i), clean.dx.at(i));
      }
    }
  }
}

TEST(Norm, OptionalOutputsEmptyRowsAndThreads) {
  NormData d(f32, 300, 65, 0), e(f32, 300, 65, 0);
  const int before = num_threads();
  for (NormData* p : {&d, &e}) {
    set_num_threads(p == &d ? 1 : 4);
    layer_norm(
        {f32, 300, 65, p->x.data(), p->gamma.data(), nullptr, 1e-5, p->y.data(), p->mean.data(), p->rstd.data()});
    layer_norm_backward({f32, 300, 65, p->g.data(), p->x.data(), p->gamma.data(), p->mean.data(), p->rstd.data(),
                         nullptr, p->dgamma.data(), p->dbeta.data()});
    layer_norm_backward({f32, 300, 65, p->g.data(), p->x.data(), p->gamma.data(), p->mean.data(), p->rstd.data(),
                         p->g.data(), nullptr, nullptr});  // in place
  }
  set_num_threads(before);
  for (int64_t i = 0; i < 65; ++i) ASSERT_EQ(d.dgamma.at(i), e.dgamma.at(i));
  for (int64_t i = 0; i < 65; ++i) ASSERT_EQ(d.dbeta.at(i), e.dbeta.at(i));
  for (int64_t i = 0; i < 300 * 65; ++i) ASSERT_EQ(d.g.at(i), e.g.at(i));
  layer_norm_backward(
      {f32, 0, 65, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, d.dgamma.data(), d.dbeta.data()});
  for (int64_t i = 0; i < 65; ++i) ASSERT_EQ(d.dgamma.at(i), 0);
}

}  // namespace
}  // namespace deft::cpu
