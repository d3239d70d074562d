#include "kernels/cpu/norm/pair_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/cpu/copy/streaming_store.h"
#include "kernels/strided_data.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace {

using testing::Block;

constexpr PairLossKind kKinds[] = {PairLossKind::squared, PairLossKind::absolute, PairLossKind::huber,
                                   PairLossKind::logistic};
constexpr double kWidth = 0.75, kScale = 1.5;

double loss_of(PairLossKind kind, double x, double t) {
  const double d = std::fabs(x - t);
  if (kind == PairLossKind::squared) return d * d;
  if (kind == PairLossKind::absolute) return d;
  if (kind == PairLossKind::huber) return kScale * (d <= kWidth ? d * d / 2 : kWidth * (d - kWidth / 2));
  return x * (1 - t) + std::log1p(std::exp(-x));
}
double slope_of(PairLossKind kind, double x, double t) {
  const double d = x - t, sign = d > 0 ? 1 : d < 0 ? -1 : 0;
  if (kind == PairLossKind::squared) return 2 * d;
  if (kind == PairLossKind::absolute) return sign;
  if (kind == PairLossKind::huber) return kScale * (std::fabs(d) <= kWidth ? d : sign * kWidth);
  return 1 / (1 + std::exp(-x)) - t;
}

struct Data {
  DType dtype;
  int64_t n;
  Block x, t, dx;
  Data(DType type, int64_t count, int64_t shift)
      : dtype(type), n(count), x(type, {n}, {1}, shift), t(type, {n}, {1}, 1), dx(type, {n}, {1}, shift) {
    x.fill_random(1, -3, 3);
    t.fill_random(2, -1, 2);
  }
  PairLossCall call(PairLossKind kind) { return {kind, dtype, n, x.data(), t.data(), kWidth, kScale}; }
};

void check(DType dtype, int64_t n, PairLossKind kind, int64_t shift) {
  Data d(dtype, n, shift);
  const double g = 0.3, eps = epsilon_of(dtype == f64 ? f64 : f32);
  const double sum = pair_loss(d.call(kind));
  pair_loss_backward(d.call(kind), g, d.dx.data());
  ASSERT_TRUE(d.dx.guards_intact());
  double want = 0;
  for (int64_t i = 0; i < n; ++i) {
    want += loss_of(kind, d.x.at(i), d.t.at(i));
    const double slope = g * slope_of(kind, d.x.at(i), d.t.at(i));
    const double tol = std::fabs(slope) * epsilon_of(dtype) + 16 * eps + (dtype == f16 ? 0x1p-24 : 0);
    if (!(std::fabs(d.dx.at(i) - slope) <= tol))
      ADD_FAILURE() << name_of(dtype) << " " << int(kind) << " slope " << i << ": " << d.dx.at(i) << " want " << slope;
  }
  // Blocks of 2048 in four times as many lanes as a vector has are at most 2048 long chains.
  if (!(std::fabs(sum - want) <= 64 * eps * (std::fabs(want) + 1)))
    ADD_FAILURE() << name_of(dtype) << " " << int(kind) << " of " << n << ": " << sum << " want " << want;
}

TEST(PairLossKernel, EveryTailAndDType) {
  for (DType t : {f32, f64, bf16, f16})
    for (PairLossKind kind : kKinds) {
      for (int64_t n = 0; n <= 67; ++n) check(t, n, kind, n % 5);
      for (int64_t n : {2047, 2049, 32768, 32769, 100003}) check(t, n, kind, n % 3);
    }
}

TEST(PairLossKernel, SpecialValues) {
  const double inf = std::numeric_limits<double>::infinity();
  Data d(f32, 5, 0);
  const double x[] = {100, -100, 0, inf, -inf}, t[] = {1, 0, 0, 1, 0};
  for (int64_t i = 0; i < 5; ++i) d.x.set(i, x[i]), d.t.set(i, t[i]);
  d.n = 2;
  EXPECT_NEAR(pair_loss(d.call(PairLossKind::logistic)), 2 * std::exp(-100.0), 0x1p-147);
  d.n = 5;
  pair_loss_backward(d.call(PairLossKind::logistic), 1, d.dx.data());
  const double slopes[] = {0, 0, 0.5, 0, 0};
  for (int64_t i = 0; i < 5; ++i) EXPECT_NEAR(d.dx.at(i), slopes[i], 1e-30) << i;
  pair_loss_backward(d.call(PairLossKind::absolute), 1, d.dx.data());
  EXPECT_EQ(d.dx.at(2), 0);  // both are 0
  for (PairLossKind kind : kKinds) {
    d.x.set(1, std::nan(""));
    EXPECT_TRUE(std::isnan(pair_loss(d.call(kind)))) << int(kind);
    pair_loss_backward(d.call(kind), 1, d.dx.data());
    if (kind == PairLossKind::absolute)
      EXPECT_EQ(d.dx.at(1), 0);  // the slope is sign(NaN), which is 0 as in PyTorch
    else
      EXPECT_TRUE(std::isnan(d.dx.at(1))) << int(kind);
  }
}

// Nor does writing past the caches.
TEST(PairLossKernel, ThreadsDoNotChangeResults) {
  const int before = num_threads();
  const int64_t bytes = stream_bytes_per_thread(), n = 200003;
  Data d(f32, n, 0);
  struct alignas(64) Line {
    float of[16];
  };
  for (PairLossKind kind : kKinds) {
    std::vector<Line> one(n / 16 + 1), four(n / 16 + 1);
    set_num_threads(1);
    set_stream_bytes_per_thread(0);
    const double sum = pair_loss(d.call(kind));
    pair_loss_backward(d.call(kind), 2, one.data());
    set_num_threads(4);
    set_stream_bytes_per_thread(1);
    EXPECT_EQ(pair_loss(d.call(kind)), sum);
    pair_loss_backward(d.call(kind), 2, four.data());
    EXPECT_EQ(std::memcmp(one.data(), four.data(), n * sizeof(float)), 0);
  }
  set_num_threads(before);
  set_stream_bytes_per_thread(bytes);
}

}  // namespace
}  // namespace deft::cpu
