#include "kernels/cpu/reduce/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/strided_data.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace {

using testing::Block;
using testing::kEveryDType;

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Case {
  ReduceOp op;
  double param;
  const char* name;
};
const Case kCases[] = {{ReduceOp::sum, 0, "sum"},
                       {ReduceOp::prod, 0, "prod"},
                       {ReduceOp::max, 0, "max"},
                       {ReduceOp::min, 0, "min"},
                       {ReduceOp::any, 0, "any"},
                       {ReduceOp::all, 0, "all"},
                       {ReduceOp::argmax, 0, "argmax"},
                       {ReduceOp::argmin, 0, "argmin"},
                       {ReduceOp::mean, 0, "mean"},
                       {ReduceOp::var, 1, "var"},
                       {ReduceOp::var, 0, "var0"},
                       {ReduceOp::logsumexp, 0, "logsumexp"},
                       {ReduceOp::norm, 0, "norm0"},
                       {ReduceOp::norm, 1, "norm1"},
                       {ReduceOp::norm, 2, "norm2"},
                       {ReduceOp::norm, 3, "norm3"},
                       {ReduceOp::norm, kInf, "ninf"},
                       {ReduceOp::norm, -kInf, "n-inf"},
                       {ReduceOp::sum_abs, 0, "abs"},
                       {ReduceOp::sum_squares, 0, "squares"},
                       {ReduceOp::count_nonzero, 0, "count"}};

// The value, and the size of the terms that went into it (for the tolerance).
struct Expected {
  double value, scale;
};

// Compensated, so that the reference is exact enough in double.
template <class F>
double sum_of(const std::vector<double>& x, const F& f) {
  double sum = 0, lost = 0;
  for (double v : x) {
    const double y = f(v), t = sum + y;
    lost += std::fabs(sum) >= std::fabs(y) ? (sum - t) + y : (y - t) + sum;
    sum = t;
  }
  return sum + lost;
}

Expected norm_reference(double p, const std::vector<double>& x) {
  double top = 0, bottom = kInf;
  for (double v : x) top = std::max(top, std::fabs(v)), bottom = std::min(bottom, std::fabs(v));
  if (p == 0) return {sum_of(x, [](double v) { return v != 0; }), 0};
  if (std::isinf(p)) return {p > 0 ? top : bottom, 0};
  const double r = std::pow(sum_of(x, [&](double v) { return std::pow(std::fabs(v), p); }), 1 / p);
  return {r, r};
}

Expected reference(const Case& c, const std::vector<double>& x) {
  const double n = static_cast<double>(x.size());
  const auto top = std::max_element(x.begin(), x.end()), bottom = std::min_element(x.begin(), x.end());
  auto plain = [](double v) { return v; };
  auto magnitude = [](double v) { return std::fabs(v); };
  switch (c.op) {
    case ReduceOp::sum:
      return {sum_of(x, plain), sum_of(x, magnitude)};
    case ReduceOp::mean:
      return {sum_of(x, plain) / n, sum_of(x, magnitude) / n};
    case ReduceOp::max:
      return {*top, 0};
    case ReduceOp::min:
      return {*bottom, 0};
    case ReduceOp::argmax:
      return {static_cast<double>(top - x.begin()), 0};
    case ReduceOp::argmin:
      return {static_cast<double>(bottom - x.begin()), 0};
    case ReduceOp::any:
      return {double(norm_reference(0, x).value > 0), 0};
    case ReduceOp::all:
      return {double(norm_reference(0, x).value == n), 0};
    case ReduceOp::count_nonzero:
      return norm_reference(0, x);
    case ReduceOp::sum_abs:
      return {sum_of(x, magnitude), sum_of(x, magnitude)};
    case ReduceOp::norm:
      return norm_reference(c.param, x);
    default:
      break;
  }
  double r = 1;
  if (c.op == ReduceOp::prod) {
    for (double v : x) r *= v;
  } else if (c.op == ReduceOp::sum_squares) {
    r = sum_of(x, [](double v) { return v * v; });
  } else if (c.op == ReduceOp::var) {
    const double mean = sum_of(x, plain) / n;
    r = sum_of(x, [&](double v) { return (v - mean) * (v - mean); }) / (n - c.param);
  } else {
    r = *top + std::log(sum_of(x, [&](double v) { return std::exp(v - *top); }));
    return {r, std::fabs(*top) + 1};
  }
  return {r, std::fabs(r)};
}

// Sums are made in blocks of at most 1024 over 16 or more accumulators.
double tolerance(DType in, DType out, const Expected& e, size_t n) {
  double eps = in == f64 ? epsilon_of(f64) : epsilon_of(f32);
  double length = static_cast<double>(std::min<size_t>(n, 256)) + 8;
  return e.scale * eps * length + std::fabs(e.value) * epsilon_of(out) / 2;
}

DType out_dtype(const Case& c, DType in) {
  if (c.op == ReduceOp::any || c.op == ReduceOp::all) return boolean;
  if (c.op == ReduceOp::argmax || c.op == ReduceOp::argmin || c.op == ReduceOp::count_nonzero) return i64;
  if (c.op == ReduceOp::mean || c.op == ReduceOp::var || c.op == ReduceOp::logsumexp || c.op == ReduceOp::norm) {
    return is_floating(in) ? in : f32;
  }
  return is_floating(in) ? in : i64;
}

void run(const Case& c, Block& in, Block& out, const std::vector<int64_t>& sizes, const std::vector<bool>& reduced) {
  ReduceCall call{};
  call.ndim = static_cast<int>(sizes.size());
  for (size_t d = 0; d < sizes.size(); ++d) call.sizes[d] = sizes[d], call.reduced[d] = reduced[d];
  call.in = in.operand();
  call.out = out.operand();
  call.op = c.op;
  call.param = c.param;
  reduce(call);
}

void check(const Case& c, Block& in, Block& out, const std::vector<int64_t>& sizes, const std::vector<bool>& reduced,
           const std::string& what) {
  run(c, in, out, sizes, reduced);
  std::vector<std::vector<double>> groups(static_cast<size_t>(out.total()));
  for (int64_t i = 0; i < in.total(); ++i) {
    int64_t rest = i, o = 0, scale = 1;
    for (size_t d = sizes.size(); d-- > 0; rest /= sizes[d]) {
      if (reduced[d]) continue;
      o += rest % sizes[d] * scale;
      scale *= sizes[d];
    }
    groups[static_cast<size_t>(o)].push_back(in.at(i));
  }
  for (size_t o = 0; o < groups.size(); ++o) {
    Expected e = reference(c, groups[o]);
    double got = out.at(static_cast<int64_t>(o)), tol = tolerance(in.dtype(), out.dtype(), e, groups[o].size());
    if (std::isnan(e.value)) {
      ASSERT_TRUE(std::isnan(got)) << c.name << " " << what;
    } else if (!(got == e.value) && !(std::fabs(got - e.value) <= tol)) {
      FAIL() << c.name << " " << what << " " << name_of(in.dtype()) << ": " << got << " want " << e.value << " tol "
             << tol << " n " << groups[o].size();
    }
  }
  ASSERT_TRUE(out.guards_intact()) << c.name << " " << what;
}

std::vector<int64_t> kept_sizes(std::vector<int64_t> sizes, const std::vector<bool>& reduced) {
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (reduced[d]) sizes[d] = 1;
  }
  return sizes;
}

TEST(Reduce, RandomViewsEveryOpAndDType) {
  std::mt19937 rng(23);
  for (int trial = 0; trial < 3000; ++trial) {
    const Case& c = kCases[rng() % std::size(kCases)];
    std::vector<int64_t> sizes(1 + rng() % 4);
    std::vector<bool> reduced;
    for (int64_t& s : sizes) s = 1 + rng() % (sizes.size() > 2 ? 12 : sizes.size() > 1 ? 60 : 5000);
    for (size_t d = 0; d < sizes.size(); ++d) reduced.push_back(rng() % 2);
    const DType in_type = kEveryDType[rng() % 9];
    Block in(in_type, sizes, testing::random_strides(sizes, rng, false), rng() % 3);
    const bool product = c.op == ReduceOp::prod;
    for (int64_t i = 0; i < in.total(); ++i) {
      double v = is_floating(in_type) ? (product ? 0.9 + 0.01 * (rng() % 20) : -3 + (rng() % 768) / 128.0)
                                      : double(rng() % (product ? 2 : 50));
      if (rng() % 10 == 0 && !product) v = 0;
      in.set(i, v);
    }
    const std::vector<int64_t> kept = kept_sizes(sizes, reduced);
    Block out(out_dtype(c, in_type), kept, testing::random_strides(kept, rng, true), rng() % 3);
    if (product && is_floating(in_type) && in.total() > 300) continue;  // would overflow
    check(c, in, out, sizes, reduced, "trial " + std::to_string(trial));
    if (HasFatalFailure()) return;
  }
}

TEST(Reduce, LargeInnerOuterAndBoth) {
  struct Shape {
    std::vector<int64_t> sizes;
    std::vector<bool> reduced;
  };
  const Shape shapes[] = {{{140001}, {true}},
                          {{2, 140001}, {false, true}},
                          {{40001, 3}, {true, false}},
                          {{2000, 130}, {true, false}},
                          {{130, 2000}, {false, true}},
                          {{4, 33, 700}, {true, false, true}},
                          {{20, 17, 300}, {false, true, false}},
                          {{300, 5000}, {true, false}},  // more columns than a strip, more than one block of rows
                          {{7, 203, 9}, {false, true, false}},  // narrow rows end to end, with a rest
                          {{5000, 5}, {false, true}},
                          {{3, 2, 3000}, {true, false, true}}};
  for (const Shape& s : shapes) {
    const std::vector<int64_t> kept = kept_sizes(s.sizes, s.reduced);
    for (DType t : {f32, bf16, f64, i32}) {
      Block in(t, s.sizes, Block::row_major(s.sizes));
      in.fill_random(3, is_floating(t) ? -1 : 0, is_floating(t) ? 1.5 : 100);
      for (const Case& c : kCases) {
        if (c.op == ReduceOp::prod) continue;
        Block out(out_dtype(c, t), kept, Block::row_major(kept));
        check(c, in, out, s.sizes, s.reduced, "large");
        if (HasFatalFailure()) return;
      }
    }
  }
}

void same_for_any_thread_count(const std::vector<int64_t>& sizes) {
  Block in(f32, sizes, Block::row_major(sizes));
  in.fill_random(9, -1, 1);
  const std::vector<bool> sets[] = {{true, true, true}, {true, false, false}, {false, false, true}};
  for (const std::vector<bool>& reduced : sets) {
    const std::vector<int64_t> kept = kept_sizes(sizes, reduced);
    for (const Case& c : kCases) {
      Block one(f64, kept, Block::row_major(kept)), four(f64, kept, Block::row_major(kept));
      set_num_threads(1);
      run(c, in, one, sizes, reduced);
      set_num_threads(4);
      run(c, in, four, sizes, reduced);
      for (int64_t i = 0; i < one.total(); ++i) {
        ASSERT_TRUE(one.at(i) == four.at(i) || std::isnan(one.at(i))) << c.name;
      }
    }
  }
}

TEST(Reduce, ThreadCountDoesNotMatter) {
  const int before = num_threads();
  same_for_any_thread_count({70, 90, 110});
  same_for_any_thread_count({301, 97, 21});  // short lines, computed several at a time
  same_for_any_thread_count({70, 90, 3});
  set_num_threads(before);
}

TEST(Reduce, VarianceWithMeanFarFromZero) {
  const std::vector<int64_t> sizes = {100000, 4};
  Block in(f32, sizes, {4, 1}), out(f64, {1, 4}, {4, 1}), swapped(f32, sizes, {1, 100000});
  for (int64_t i = 0; i < in.total(); ++i) in.set(i, 10000.0 + (i / 4 % 2 ? 1 : -1) * (1 + i % 4));
  for (int64_t i = 0; i < in.total(); ++i) swapped.set(i, in.at(i));
  for (Block* x : {&in, &swapped}) {
    run({ReduceOp::var, 0, "var"}, *x, out, sizes, {true, false});
    for (int64_t c = 0; c < 4; ++c) EXPECT_NEAR(out.at(c), (1 + c) * (1 + c), 1e-6 * 16);
  }
}

TEST(Reduce, SumErrorDoesNotGrow) {
  const int64_t n = 4'000'000;
  Block in(f32, {n}, {1}), out(f32, {1}, {1});
  for (int64_t i = 0; i < n; ++i) in.set(i, 0.1f);
  run({ReduceOp::sum, 0, "sum"}, in, out, {n}, {true});
  EXPECT_NEAR(out.at(0), double(0.1f) * n, double(0.1f) * n * 70 * 0x1p-24);
}

void check_nan_infinity_and_ties(int64_t n, int64_t width, bool columns) {
  const double nan = std::nan("");
  const std::vector<int64_t> sizes = {n, width};
  const std::vector<int64_t> strides = columns ? std::vector<int64_t>{width, 1} : std::vector<int64_t>{1, n};
  Block x(f32, sizes, strides), y(f32, {1, width}, {width, 1}), index(i64, {1, width}, {width, 1});
  for (int64_t i = 0; i < x.total(); ++i) x.set(i, 0.5);
  x.set(width + 1, nan), x.set(2 * width + 1, nan), x.set(2 * width + 2, kInf), x.set(width + 3, -kInf);
  for (int64_t i = 0; i < n; ++i) x.set(i * width + 4, -kInf);
  run({ReduceOp::max, 0, ""}, x, y, sizes, {true, false});
  EXPECT_TRUE(std::isnan(y.at(1)));
  EXPECT_EQ(y.at(0), 0.5);
  EXPECT_EQ(y.at(2), kInf);
  run({ReduceOp::min, 0, ""}, x, y, sizes, {true, false});
  EXPECT_TRUE(std::isnan(y.at(1)));
  EXPECT_EQ(y.at(3), -kInf);
  run({ReduceOp::logsumexp, 0, ""}, x, y, sizes, {true, false});
  EXPECT_NEAR(y.at(0), 0.5 + std::log(double(n)), 1e-5);
  EXPECT_TRUE(std::isnan(y.at(1)));
  EXPECT_EQ(y.at(2), kInf);
  EXPECT_NEAR(y.at(3), 0.5 + std::log(double(n - 1)), 1e-5);
  EXPECT_EQ(y.at(4), -kInf);
  run({ReduceOp::argmax, 0, ""}, x, index, sizes, {true, false});
  EXPECT_EQ(index.at(0), 0);
  EXPECT_EQ(index.at(1), 1);
  EXPECT_EQ(index.at(2), 2);
  run({ReduceOp::argmin, 0, ""}, x, index, sizes, {true, false});
  EXPECT_EQ(index.at(1), 1);
  EXPECT_EQ(index.at(3), 1);
  EXPECT_EQ(index.at(4), 0);
}
TEST(Reduce, NanInfinityAndTies) {
  for (int64_t n : {3, 7, 64, 1500}) {
    for (int64_t width : {5, 21}) {  // fewer than a tile needs, and more
      for (bool columns : {false, true}) check_nan_infinity_and_ties(n, width, columns);
    }
  }
}

TEST(Reduce, Empty) {
  Block x(f32, {0, 3}, {3, 1}), y(f32, {1, 3}, {3, 1});
  const double want[] = {0, 1, 0, 1};
  const ReduceOp ops[] = {ReduceOp::sum, ReduceOp::prod, ReduceOp::any, ReduceOp::all};
  for (int k = 0; k < 4; ++k) {
    run({ops[k], 0, ""}, x, y, {0, 3}, {true, false});
    for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(y.at(i), want[k]);
  }
  Block none(f32, {3, 0}, {1, 1}), nothing(f32, {1, 0}, {1, 1});
  run({ReduceOp::sum, 0, ""}, none, nothing, {3, 0}, {true, false});
  EXPECT_TRUE(nothing.guards_intact());
}

}  // namespace
}  // namespace deft::cpu
