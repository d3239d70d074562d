#include "runtime/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/random.h"

namespace deft {
namespace {

struct Format {
  int mantissa;      // stored bits
  int min_exponent;  // of the smallest normal number
  int max_exponent;
};
constexpr Format kBFloat16{7, -126, 127};
constexpr Format kHalf{10, -14, 15};

// Straight from the definition of the format.
double decode(uint16_t bits, Format f) {
  int exponent_bits = 15 - f.mantissa;
  int biased = bits >> f.mantissa & ((1 << exponent_bits) - 1);
  int fraction = bits & ((1 << f.mantissa) - 1);
  double sign = bits >> 15 ? -1 : 1;
  if (biased == (1 << exponent_bits) - 1) return fraction ? NAN : sign * INFINITY;
  if (biased == 0) return sign * std::ldexp(fraction, f.min_exponent - f.mantissa);
  return sign * std::ldexp(1 + std::ldexp(fraction, -f.mantissa), f.min_exponent + biased - 1);
}

// Nearest representable value, ties to even, in double: exact because a float has few bits.
double round_to(double x, Format f) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = std::max(std::ilogb(x), f.min_exponent);
  double unit = std::ldexp(1.0, exponent - f.mantissa);
  double rounded = std::nearbyint(x / unit) * unit;
  double largest = std::ldexp(2 - std::ldexp(1.0, -f.mantissa), f.max_exponent);
  return std::abs(rounded) > largest ? std::copysign(INFINITY, x) : rounded;
}

template <class T>
void check_value(float x, Format f) {
  double got = decode(T(x).bits, f), want = round_to(x, f);
  if (std::isnan(x)) {
    ASSERT_TRUE(std::isnan(got)) << x;
  } else {
    ASSERT_EQ(got, want) << std::hexfloat << x;
    ASSERT_EQ(std::signbit(got), std::signbit(want)) << std::hexfloat << x;
  }
}

template <class T>
void check_all_patterns(Format f) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    T v;
    v.bits = static_cast<uint16_t>(bits);
    float x = v;
    double want = decode(v.bits, f);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(x)) << bits;
      ASSERT_TRUE(std::isnan(static_cast<float>(T(x)))) << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(x), want) << bits;
    ASSERT_EQ(std::signbit(x), bits >> 15 != 0) << bits;
    ASSERT_EQ(T(x).bits, v.bits) << "round trip";
  }
}

// Every midpoint between neighbours, and the floats next to it, must round the right way.
template <class T>
void check_midpoints(Format f) {
  for (uint32_t bits = 0; bits < 32767; ++bits) {
    double a = decode(static_cast<uint16_t>(bits), f), b = decode(static_cast<uint16_t>(bits + 1), f);
    if (!std::isfinite(a) || !std::isfinite(b)) continue;
    float middle = static_cast<float>((a + b) / 2);
    for (float x : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, INFINITY)}) {
      check_value<T>(x, f);
      check_value<T>(-x, f);
    }
  }
}

template <class T>
void check_random_floats(Format f) {
  for (uint64_t i = 0; i < 500000; ++i) {
    for (uint32_t bits : philox({11, 0}, i)) check_value<T>(std::bit_cast<float>(bits), f);
  }
}
template <class T>
void check_edges(Format f) {
  using Limits = std::numeric_limits<float>;
  for (float x : {0.0f, 65504.0f, 65519.99f, 65520.0f, 65536.0f, 0x1p-24f, 0x1p-25f, 0x1.000002p-25f, 0x1p-14f,
                  0x1.ffcp-15f, 0x1.ffep-15f, Limits::max(), Limits::min(), Limits::denorm_min(), Limits::infinity(),
                  Limits::quiet_NaN(), std::bit_cast<float>(0x7f800001u), std::bit_cast<float>(0x7fffffffu)}) {
    check_value<T>(x, f);
    check_value<T>(-x, f);
  }
}

TEST(BFloat16, AllPatterns) { check_all_patterns<BFloat16>(kBFloat16); }
TEST(BFloat16, Midpoints) { check_midpoints<BFloat16>(kBFloat16); }
TEST(BFloat16, RandomFloats) { check_random_floats<BFloat16>(kBFloat16); }
TEST(BFloat16, Edges) { check_edges<BFloat16>(kBFloat16); }
TEST(Half, AllPatterns) { check_all_patterns<Half>(kHalf); }
TEST(Half, Midpoints) { check_midpoints<Half>(kHalf); }
TEST(Half, RandomFloats) { check_random_floats<Half>(kHalf); }
TEST(Half, Edges) { check_edges<Half>(kHalf); }

}  // namespace
}  // namespace deft
