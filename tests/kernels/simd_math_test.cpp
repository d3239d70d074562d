// Accuracy and special values of every function on Vec<T>, against <cmath> in a wider type.
#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd_math_test.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/cpu/elementwise/chunk-inl.h"

// Largest error in ulp for f32 and f64. The first group is also swept over all float bit patterns. Without FMA (SSE4
// and the scalar target) the bounds of f32 are one ulp wider.
#define DEFT_TEST_SWEPT(X) \
  X(exp, 1, 1.5)           \
  X(expm1, 2, 4)           \
  X(exp2, 1.5, 2)          \
  X(log, 1, 2)             \
  X(log1p, 2, 3)           \
  X(log2, 3, 3)            \
  X(log10, 3, 3)           \
  X(sin, 2, 3)             \
  X(cos, 2, 3)             \
  X(tanh, 2, 5)            \
  X(sigmoid, 2, 3)         \
  X(erf, 2, 1)
#define DEFT_TEST_UNARY(X) \
  DEFT_TEST_SWEPT(X)       \
  X(sinh, 5, 5)            \
  X(cosh, 5, 5)            \
  X(asin, 3, 3)            \
  X(acos, 3, 3)            \
  X(atan, 3, 3)            \
  X(tan, 4, 6)             \
  X(asinh, 3, 3)           \
  X(acosh, 3, 3)           \
  X(atanh, 3, 3)           \
  X(erfc, 5, 5)            \
  X(sqrt, 0.5, 0.5)        \
  X(rsqrt, 1.5, 1.5)       \
  X(reciprocal, 0.5, 0.5)  \
  X(abs, 0, 0)             \
  X(sign, 0, 0)            \
  X(floor, 0, 0)           \
  X(ceil, 0, 0)            \
  X(trunc, 0, 0)           \
  X(round, 0, 0)
#define DEFT_TEST_BINARY(X) X(pow, 2) X(atan2, 4) X(fmod, 0) X(remainder, 0.5) X(copysign, 0) X(min, 0) X(max, 0)

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

#define X(name, ...)                   \
  struct Op_##name {                   \
    template <class... V>              \
    DEFT_HD static auto call(V... v) { \
      using math::name;                \
      return name(v...);               \
    }                                  \
  };
DEFT_TEST_UNARY(X)
DEFT_TEST_BINARY(X)
#undef X

template <class T>
const ChunkFn* unary_table() {
#define X(name, ...) unary_chunk<Op_##name, T>,
  static constexpr ChunkFn table[] = {DEFT_TEST_UNARY(X)};
#undef X
  return table;
}
template <class T>
const ChunkFn* binary_table() {
#define X(name, ...) binary_chunk<Op_##name, T>,
  static constexpr ChunkFn table[] = {DEFT_TEST_BINARY(X)};
#undef X
  return table;
}
const ChunkFn* unary_f32() { return unary_table<float>(); }
const ChunkFn* unary_f64() { return unary_table<double>(); }
const ChunkFn* binary_f32() { return binary_table<float>(); }
const ChunkFn* binary_f64() { return binary_table<double>(); }
bool has_fma() { return HWY_NATIVE_FMA; }

struct Op_gelu {
  template <class V>
  DEFT_HD static auto call(V x) {
    return gelu_erf(x);
  }
};
struct Op_gelu_slope {
  template <class V>
  DEFT_HD static auto call(V x) {
    return gelu_erf_slope(x);
  }
};
struct Op_gelu_bf16 {
  template <class V>
  DEFT_HD static auto call(V x) {
    V one[] = {x};
    gelu_bf16(one);
    return one[0];
  }
};
const ChunkFn* gelu_table() {
  static constexpr ChunkFn table[] = {unary_chunk<Op_gelu, float>, unary_chunk<Op_gelu_slope, float>,
                                      unary_chunk<Op_gelu_bf16, float>};
  return table;
}

}  // namespace
}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "ops/elementwise.h"
#include "ops/op_table.h"

namespace deft::cpu {
HWY_EXPORT(unary_f32);
HWY_EXPORT(unary_f64);
HWY_EXPORT(binary_f32);
HWY_EXPORT(binary_f64);
HWY_EXPORT(has_fma);
HWY_EXPORT(gelu_table);

namespace {

using Wide = long double;

template <class T>
struct Tables;
template <>
struct Tables<float> {
  static const ChunkFn* unary() { return HWY_DYNAMIC_DISPATCH(unary_f32)(); }
  static const ChunkFn* binary() { return HWY_DYNAMIC_DISPATCH(binary_f32)(); }
};
template <>
struct Tables<double> {
  static const ChunkFn* unary() { return HWY_DYNAMIC_DISPATCH(unary_f64)(); }
  static const ChunkFn* binary() { return HWY_DYNAMIC_DISPATCH(binary_f64)(); }
};

namespace wide {
using namespace std;
#define X(name, ...)       \
  template <class T>       \
  inline T name(T x) {     \
    return T(__VA_ARGS__); \
  }
X(rsqrt, 1 / std::sqrt(x))
X(reciprocal, 1 / x)
X(sigmoid, (x < 0 ? std::exp(x) : T(1)) / (1 + std::exp(-std::fabs(x))))
X(sign, x > 0 ? T(1) : x < 0 ? T(-1) : x)
X(round, std::nearbyint(x))
#undef X
inline Wide remainder(Wide a, Wide b) {
  Wide r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
inline Wide min(Wide a, Wide b) { return a != a ? a : b != b ? b : a < b ? a : b; }
inline Wide max(Wide a, Wide b) { return a != a ? a : b != b ? b : a > b ? a : b; }
}  // namespace wide

template <class T, class W>
double ulps(T got, W want) {
  T rounded = static_cast<T>(want);
  if (std::isnan(rounded) || std::isnan(got)) return std::isnan(rounded) && std::isnan(got) ? 0 : INFINITY;
  if (std::isinf(rounded)) return got == rounded ? 0 : INFINITY;
  if (std::isinf(got)) return std::fabs(rounded) > std::numeric_limits<T>::max() * T(0.9999998) ? 1 : INFINITY;
  if (rounded == 0 && got == 0) return std::signbit(rounded) == std::signbit(got) ? 0 : INFINITY;
  if (rounded == got) return 0.5;  // or less
  int e = rounded == 0 ? std::numeric_limits<int>::min() : std::ilogb(rounded);
  e = std::max(e, std::numeric_limits<T>::min_exponent - 1);
  W ulp = std::ldexp(W(1), e - std::numeric_limits<T>::digits + 1);
  return static_cast<double>(std::fabs(W(got) - want) / ulp);
}

// Every binade, many magnitudes near one, integers and half-integers, multiples of pi/4, and the special values.
template <class T>
std::vector<T> arguments() {
  using L = std::numeric_limits<T>;
  std::vector<T> x = {0,        -T(0),       1,        -1,        L::infinity(),   -L::infinity(),   L::quiet_NaN(),
                      L::max(), L::lowest(), L::min(), -L::min(), L::denorm_min(), -L::denorm_min(), L::epsilon(),
                      T(0.5),   T(1.5),      T(2.5),   -T(2.5)};
  std::mt19937_64 rng(7);
  std::uniform_real_distribution<double> unit(0, 1);
  for (int e = L::min_exponent - L::digits; e < L::max_exponent; ++e) {
    for (int k = 0; k < 12; ++k) x.push_back(std::ldexp(T(1 + unit(rng)), e) * (k % 2 ? -1 : 1));
  }
  for (double r : {1.0, 1.2, 4.0, 20.0, 104.0, 150.0, 750.0, 1000.0, 1100.0, 40000.0}) {
    for (int k = 0; k < 4000; ++k) x.push_back(T((2 * unit(rng) - 1) * r));
  }
  for (int k = -400; k <= 400; ++k) {
    x.push_back(T(k * 0.78539816339744830962));
    for (double off = 1e-10; off < 1e-3; off *= 1.7) x.push_back(T(k * 0.78539816339744830962 + off));
    x.push_back(T(k * 0.5));
    x.push_back(std::nextafter(T(1), T(2)) + T(k) * L::epsilon());
  }
  return x;
}

struct UnaryCase {
  const char* name;
  double f32_bound, f64_bound;
  Wide (*reference)(Wide);
  double (*reference64)(double);  // enough for floats

  template <class T>
  double bound() const {
    double b = sizeof(T) == 8 ? f64_bound : f32_bound + !(HWY_DYNAMIC_DISPATCH(has_fma)());
    return std::max(0.5001, b);
  }
};
struct BinaryCase {
  const char* name;
  double bound;
  Wide (*reference)(Wide, Wide);
};
#define X(name, f32_bound, f64_bound) \
  {#name, f32_bound, f64_bound,       \
   [](Wide x) -> Wide {               \
     using namespace wide;            \
     return name(x);                  \
   },                                 \
   [](double x) -> double {           \
     using namespace wide;            \
     return name(x);                  \
   }},
constexpr UnaryCase kUnary[] = {DEFT_TEST_UNARY(X)};
#undef X
#define X(name, bound)                        \
  {#name, bound, [](Wide x, Wide y) -> Wide { \
     using namespace wide;                    \
     return name(x, y);                       \
   }},
constexpr BinaryCase kBinary[] = {DEFT_TEST_BINARY(X)};
#undef X

// Functions whose values lie in [-1, 1], and one in [0, 1]: not a step beyond.
bool beyond_range(std::string_view name, double y) {
  if (name == "sigmoid") return y < 0 || y > 1;
  return (name == "sin" || name == "cos" || name == "tanh" || name == "erf") && std::fabs(y) > 1;
}

template <class T>
void check_unary() {
  std::vector<T> x = arguments<T>(), y(x.size());
  const void* in[] = {x.data()};
  const ChunkFn* fn = Tables<T>::unary();
  for (const UnaryCase& c : kUnary) {
    (*fn++)(in, y.data(), x.size(), nullptr);
    double worst = 0;
    size_t at = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      double err = beyond_range(c.name, y[i]) ? INFINITY : ulps(y[i], c.reference(x[i]));
      if (err > worst) worst = err, at = i;
    }
    EXPECT_LE(worst, c.bound<T>()) << c.name << "(" << x[at] << ") = " << y[at] << ", want "
                                   << double(c.reference(x[at]));
    ::testing::Test::RecordProperty(std::string(c.name) + std::to_string(8 * sizeof(T)), std::to_string(worst));
  }
}
TEST(SimdMath, UnaryF32) { check_unary<float>(); }
TEST(SimdMath, UnaryF64) { check_unary<double>(); }

// Every `stride`-th bit pattern from `first` on.
struct Sweep {
  uint64_t first, stride, end;
};
constexpr uint64_t kAllPatterns = uint64_t{1} << 32;

struct Worst {
  double ulp = 0;
  float x = 0, y = 0;
};
template <class Error>
Worst sweep(ChunkFn fn, const void* params, Sweep range, Error error) {
  constexpr size_t kBatch = 4096;
  float x[kBatch], y[kBatch];
  const void* in[] = {x};
  Worst worst;
  for (uint64_t at = range.first; at < range.end;) {
    size_t n = 0;
    for (; n < kBatch && at < range.end; at += range.stride) x[n++] = std::bit_cast<float>(static_cast<uint32_t>(at));
    fn(in, y, n, params);
    for (size_t i = 0; i < n; ++i) {
      double e = error(x[i], y[i]);
      if (!(e <= worst.ulp)) worst = {e, x[i], y[i]};
    }
  }
  return worst;
}
// Sparse over all patterns, dense where something changes: around specials, powers of two, limits of reductions.
std::vector<Sweep> sweeps() {
  if (std::getenv("DEFT_TEST_EXHAUSTIVE")) return {{0, 1, kAllPatterns}};
  std::vector<Sweep> r = {{0, 1549, kAllPatterns}};
  for (float v : {0.0f,
                  1e-8f,
                  1.07691885e-4f,
                  0.17328679f,
                  0.34657359f,
                  0.5f,
                  0.69314718f,
                  0.70710678f,
                  1.0f,
                  1.41421356f,
                  1.5707964f,
                  3.1415927f,
                  3.95f,
                  7.8539816f,
                  8.0f,
                  9.01f,
                  9.2f,
                  5.65f,
                  6.22f,
                  8.5122f,
                  16.6f,
                  17.33f,
                  20.0f,
                  87.3f,
                  88.72284f,
                  89.0f,
                  103.97f,
                  104.0f,
                  126.0f,
                  128.0f,
                  149.0f,
                  150.0f,
                  1e5f,
                  std::numeric_limits<float>::min(),
                  std::numeric_limits<float>::infinity()}) {
    for (uint64_t sign : {uint64_t{0}, uint64_t{1} << 31}) {
      uint64_t bits = std::bit_cast<uint32_t>(v) | sign;
      r.push_back({bits > 2000 ? bits - 2000 : 0, 1, std::min(bits + 2000, kAllPatterns)});
    }
  }
  return r;
}
TEST(SimdMath, SweepF32) {
  const ChunkFn* fn = Tables<float>::unary();
#define X(...) +1
  constexpr size_t kSwept = 0 DEFT_TEST_SWEPT(X);
#undef X
  const char* only = std::getenv("DEFT_TEST_EXHAUSTIVE");
  for (size_t i = 0; i < kSwept; ++i) {
    const UnaryCase& c = kUnary[i];
    if (only && only != std::string("1") && only != std::string(c.name)) continue;
    Worst worst;
    for (const Sweep& s : sweeps()) {
      Worst w = sweep(fn[i], nullptr, s,
                      [&](float x, float y) { return beyond_range(c.name, y) ? INFINITY : ulps(y, c.reference64(x)); });
      if (w.ulp > worst.ulp) worst = w;
    }
    EXPECT_LE(worst.ulp, c.bound<float>()) << c.name << "(" << worst.x << ") = " << worst.y;
    ::testing::Test::RecordProperty(std::string("sweep_") + c.name, std::to_string(worst.ulp));
  }
}

// Errors as fractions of what is allowed: relative to the result above zero, to the argument below.
double gelu_error(float x, float y) {
  if (std::isnan(x)) return std::isnan(y) ? 0 : INFINITY;
  if (x == -INFINITY) return y == 0 && std::signbit(y) ? 0 : INFINITY;
  double want = x * 0.5 * std::erfc(-x * 0.70710678118654752440);
  if (x >= 0) return ulps(y, want) / 4;
  return y > 0 ? INFINITY : std::fabs(y - want) / (1.5e-7 * std::fabs(x) + std::numeric_limits<float>::denorm_min());
}
// Relative to the result, and zero with a sign where it ends.
double gelu_bf16_error(float x, float y) {
  if (std::isnan(x)) return std::isnan(y) ? 0 : INFINITY;
  if (x < -8.5122f) return y == 0 && std::signbit(y) ? 0 : INFINITY;
  if (x == INFINITY) return y == x ? 0 : INFINITY;
  if (y != 0 && std::signbit(x) != std::signbit(y)) return INFINITY;
  const double want = x * 0.5 * std::erfc(-x * 0.70710678118654752440);
  return std::fabs(y - want) / (1e-4 * std::fabs(want) + 5e-9);
}
double gelu_slope_error(float x, float y) {
  if (std::isnan(x)) return std::isnan(y) ? 0 : INFINITY;
  double density = 0.39894228040143267794 * std::exp(-0.5 * x * double(x));
  double want = 0.5 * std::erfc(-x * 0.70710678118654752440) + (std::isinf(x) ? 0 : x * density);
  return std::fabs(y - want) / 2.5e-7;
}
TEST(SimdMath, SweepGelu) {
  const ChunkFn* fn = HWY_DYNAMIC_DISPATCH(gelu_table)();
  Worst value, slope, bf16;
  for (const Sweep& s : sweeps()) {
    Worst v = sweep(fn[0], nullptr, s, gelu_error), d = sweep(fn[1], nullptr, s, gelu_slope_error);
    Worst b = sweep(fn[2], nullptr, s, gelu_bf16_error);
    if (v.ulp > value.ulp) value = v;
    if (d.ulp > slope.ulp) slope = d;
    if (b.ulp > bf16.ulp) bf16 = b;
  }
  EXPECT_LE(value.ulp, 1) << "gelu(" << value.x << ") = " << value.y;
  EXPECT_LE(slope.ulp, 1) << "slope of gelu at " << slope.x << " = " << slope.y;
  EXPECT_LE(bf16.ulp, 1) << "gelu for bf16 of " << bf16.x << " = " << bf16.y;
  RecordProperty("gelu", std::to_string(value.ulp));
  RecordProperty("gelu_bf16", std::to_string(bf16.ulp));
  RecordProperty("gelu_slope", std::to_string(slope.ulp));
}

template <class T>
void check_binary() {
  std::vector<T> base = arguments<T>(), a, b;
  std::mt19937 rng(3);
  for (T u : {T(0), -T(0), T(1), T(-1), T(2), T(0.5), T(3), T(-2.5), base[4], base[5], base[6]}) {
    for (T v : {T(0), -T(0), T(1), T(-1), T(2), T(0.5), T(3), T(-2.5), base[4], base[5], base[6]}) {
      a.push_back(u);
      b.push_back(v);
    }
  }
  for (int k = 0; k < 20000; ++k) {
    a.push_back(base[rng() % base.size()]);
    b.push_back(base[rng() % base.size()]);
  }
  std::vector<T> y(a.size());
  const void* in[] = {a.data(), b.data()};
  const ChunkFn* fn = Tables<T>::binary();
  for (const BinaryCase& c : kBinary) {
    (*fn++)(in, y.data(), a.size(), nullptr);
    for (size_t i = 0; i < a.size(); ++i) {
      Wide want = c.reference(a[i], b[i]);
      if (want == 0 && y[i] == 0) continue;  // the sign of a zero from min, max and remainder is not specified
      double err = ulps(y[i], want);
      if (err <= std::max(0.5001, c.bound)) continue;
      ADD_FAILURE() << c.name << "(" << a[i] << ", " << b[i] << ") = " << y[i] << ", want " << double(want);
      break;
    }
  }
}
TEST(SimdMath, BinaryF32) { check_binary<float>(); }
TEST(SimdMath, BinaryF64) { check_binary<double>(); }

// Every pair of special values, where the sign of a zero counts, too.
template <class T>
void check_special_powers() {
  using L = std::numeric_limits<T>;
  const T large = std::ldexp(T(1), L::digits);  // the first float without an odd neighbour
  const T special[] = {0,
                       T(0.25),
                       T(0.5),
                       1,
                       T(1.5),
                       2,
                       T(2.5),
                       3,
                       4,
                       5,
                       8,
                       127,
                       T(1e9),
                       large / 2,
                       large / 2 + 1,
                       large - 1,
                       large,
                       L::denorm_min(),
                       L::min(),
                       L::max(),
                       std::nextafter(T(1), T(0)),
                       std::nextafter(T(1), T(2)),
                       L::infinity(),
                       L::quiet_NaN()};
  std::vector<T> x, y;
  for (T u : special) {
    for (T v : special) {
      for (int signs = 0; signs < 4; ++signs) {
        x.push_back(signs & 1 ? -u : u);
        y.push_back(signs & 2 ? -v : v);
      }
    }
  }
  std::vector<T> r(x.size());
  const void* in[] = {x.data(), y.data()};
  Tables<T>::binary()[0](in, r.data(), x.size(), nullptr);
  for (size_t i = 0; i < x.size(); ++i) {
    const Wide want = std::pow(Wide(x[i]), Wide(y[i]));
    EXPECT_LE(ulps(r[i], want), 2) << "pow(" << x[i] << ", " << y[i] << ") = " << r[i] << ", want " << double(want);
  }
}
TEST(SimdMath, SpecialPowersF32) { check_special_powers<float>(); }
TEST(SimdMath, SpecialPowersF64) { check_special_powers<double>(); }

// Any x with a y that spreads the results over all floats, and any x with any y.
template <class T, class Reference>
void check_powers(double bound, size_t rounds) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  using L = std::numeric_limits<T>;
  std::mt19937_64 rng(11);
  std::uniform_real_distribution<double> exponent(L::min_exponent - L::digits - 3, L::max_exponent + 2);
  std::vector<T> x(200000), y(x.size()), r(x.size());
  if (std::getenv("DEFT_TEST_EXHAUSTIVE")) rounds *= 400;
  double worst = 0;
  for (size_t round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = std::bit_cast<T>(static_cast<Bits>(rng()));
      if (i % 4 == 1) x[i] = 1 + std::ldexp(T(rng() % 2000) - 1000, -8 - int(rng() % (L::digits - 8)));
      y[i] = i % 4 == 0 ? std::bit_cast<T>(static_cast<Bits>(rng()))
                        : T(exponent(rng) / std::log2(std::fabs(double(x[i]))));
      if (i % 4 == 3) y[i] = std::nearbyint(y[i]);
    }
    const void* in[] = {x.data(), y.data()};
    Tables<T>::binary()[0](in, r.data(), x.size(), nullptr);
    for (size_t i = 0; i < x.size(); ++i) {
      const bool is_short = std::fabs(y[i]) == T(0.5) || (y[i] == std::nearbyint(y[i]) && y[i] >= -2 && y[i] <= 4);
      const Reference want = std::pow(Reference(x[i]), Reference(y[i]));
      const double error = ulps(r[i], want);
      if (!is_short) worst = std::max(worst, error);
      ASSERT_LE(error, is_short ? 2 : bound) << "pow(" << x[i] << ", " << y[i] << ") = " << r[i] << ", want " << want;
    }
  }
  ::testing::Test::RecordProperty(sizeof(T) == 4 ? "pow32" : "pow64", std::to_string(worst));
}
TEST(SimdMath, PowersF32) { check_powers<float, double>(1, 5); }
TEST(SimdMath, PowersF64) { check_powers<double, Wide>(1.5, 1); }

// An element has the same power whatever its neighbours are, in the library's loops, too.
template <class T>
void check_powers_among_others() {
  constexpr size_t kCount = 4096;
  const T exponents[] = {-2, -1, T(-0.5), 0, T(0.5), 1, 2, 3, 4, T(2.5), -3};
  std::mt19937 rng(5);
  std::uniform_real_distribution<double> any(-3, 3);
  std::vector<T> x(kCount), mixed(kCount), same(kCount), r(kCount), alone(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    x[i] = T(any(rng));
    mixed[i] = exponents[rng() % std::size(exponents)];
  }
  const ChunkFn fn = Tables<T>::binary()[0];
  const ElementwiseDef& op = *find_op("pow")->elementwise;
  const ChunkFn of_library = op.table()[op.row * kDTypeCount + static_cast<int>(dtype_of<T>)];
  const void* in[] = {x.data(), mixed.data()};
  fn(in, r.data(), kCount, nullptr);
  for (T y : exponents) {
    same.assign(kCount, y);
    const void* one[] = {x.data(), same.data()};
    of_library(one, alone.data(), kCount, nullptr);
    for (size_t i = 0; i < kCount; ++i) {
      if (mixed[i] != y || (std::isnan(r[i]) && std::isnan(alone[i]))) continue;
      ASSERT_EQ(r[i], alone[i]) << "pow(" << x[i] << ", " << y << ")";
    }
  }
}
TEST(SimdMath, PowersAmongOthers) {
  check_powers_among_others<float>();
  check_powers_among_others<double>();
}

// Every function: a value does not depend on where it lies, nor on what lies beside it.
template <class T, size_t k>
std::vector<T> values_at(ChunkFn fn, const std::vector<T> (&x)[k], const std::vector<size_t>& order) {
  std::vector<T> in[k], y(order.size()), back(order.size());
  const void* from[k];
  for (size_t a = 0; a < k; ++a) {
    for (size_t i : order) in[a].push_back(x[a][i]);
    from[a] = in[a].data();
  }
  fn(from, y.data(), y.size(), nullptr);
  for (size_t i = 0; i < order.size(); ++i) back[order[i]] = y[i];
  return back;
}
template <class T, size_t k>
void check_shuffled(const char* name, ChunkFn fn, const std::vector<T> (&x)[k]) {
  std::mt19937 rng(13);
  std::vector<size_t> order(x[0].size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const std::vector<T> want = values_at(fn, x, order);
  for (int round = 0; round < 3; ++round) {
    std::shuffle(order.begin(), order.end(), rng);
    const std::vector<T> got = values_at(fn, x, order);
    for (size_t i = 0; i < got.size(); ++i) {
      if (std::isnan(got[i]) && std::isnan(want[i])) continue;
      ASSERT_TRUE(got[i] == want[i] && std::signbit(got[i]) == std::signbit(want[i]))
          << name << "(" << x[0][i] << ") = " << got[i] << " and " << want[i];
    }
  }
}
template <class T>
void check_all_shuffled() {
  std::vector<T> x = arguments<T>(), other = x;
  if (x.size() % 16 == 0) x.pop_back(), other.pop_back();  // so that the end is no whole vector
  std::shuffle(other.begin(), other.end(), std::mt19937(17));
  const ChunkFn* fn = Tables<T>::unary();
  for (const UnaryCase& c : kUnary) check_shuffled<T, 1>(c.name, *fn++, {x});
  fn = Tables<T>::binary();
  for (const BinaryCase& c : kBinary) check_shuffled<T, 2>(c.name, *fn++, {x, other});
}
TEST(SimdMath, ShuffledF32) { check_all_shuffled<float>(); }
TEST(SimdMath, ShuffledF64) { check_all_shuffled<double>(); }
TEST(SimdMath, NeighboursFarAway) {
  float a[16], b[16], ya[16], yb[16];
  std::fill_n(a, 16, -118.45f);
  std::copy_n(a, 16, b);
  b[15] = 1e6f;
  const void *in_a[] = {a}, *in_b[] = {b};
  for (const char* name : {"sin", "cos", "tan"}) {
    const ElementwiseDef& op = *find_op(name)->elementwise;
    const ChunkFn fn = op.table()[op.row * kDTypeCount + static_cast<int>(DType::f32)];
    fn(in_a, ya, 16, nullptr);
    fn(in_b, yb, 16, nullptr);
    for (int i = 0; i < 15; ++i) EXPECT_EQ(ya[i], yb[i]) << name;
  }
}

TEST(ScalarMath, Integers) {
  EXPECT_EQ(math::abs(int32_t{-5}), 5);
  EXPECT_EQ(math::abs(std::numeric_limits<int32_t>::min()), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(math::sign(int8_t{-3}), -1);
  EXPECT_EQ(math::sign(uint8_t{3}), 1);
  EXPECT_EQ(math::remainder(int64_t{-7}, int64_t{3}), 2);
  EXPECT_EQ(math::remainder(int64_t{7}, int64_t{-3}), -2);
  EXPECT_EQ(math::remainder(7, 0), 0);
  EXPECT_EQ(math::fmod(std::numeric_limits<int64_t>::min(), int64_t{-1}), 0);
  EXPECT_EQ(math::pow(int64_t{3}, int64_t{4}), 81);
  EXPECT_EQ(math::pow(-1, -3), -1);
  EXPECT_EQ(math::pow(2, -1), 0);
  EXPECT_EQ(math::max(true, false), true);
  EXPECT_EQ(math::round(2.5), 2.0);
  EXPECT_TRUE(std::isnan(math::max(1.0, std::nan(""))));
  EXPECT_TRUE(std::isnan(math::min(std::nan(""), 1.0)));
}

}  // namespace
}  // namespace deft::cpu
#endif  // HWY_ONCE
