// Shared by the tests of dense kernels: filled and guarded buffers, one run per thread count.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "runtime/dtype.h"
#include "runtime/parallel.h"

namespace deft::test {

// `count` values between guard bytes; check() fails when a kernel wrote outside.
template <class T>
class Guarded {
 public:
  explicit Guarded(int64_t count) : count_(count), bytes_(kGuard * 2 + static_cast<size_t>(count) * sizeof(T), kMark) {}
  T* data() { return reinterpret_cast<T*>(bytes_.data() + kGuard); }
  const T* data() const { return reinterpret_cast<const T*>(bytes_.data() + kGuard); }
  T& operator[](int64_t i) { return data()[i]; }
  const T& operator[](int64_t i) const { return data()[i]; }
  int64_t size() const { return count_; }
  void check() const {
    for (size_t i = 0; i < kGuard; ++i) {
      ASSERT_EQ(bytes_[i], kMark) << "written before the buffer";
      ASSERT_EQ(bytes_[bytes_.size() - 1 - i], kMark) << "written after the buffer";
    }
  }
  bool same_bits(const Guarded& o) const { return bytes_ == o.bytes_; }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr unsigned char kMark = 0xA5;
  int64_t count_;
  std::vector<unsigned char> bytes_;
};

// Floats in [-1, 1]; integers over their whole range; bool both values.
template <class T>
void fill(T* p, int64_t count, uint32_t seed) {
  std::mt19937_64 gen(seed);
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = gen();
    if constexpr (std::is_same_v<T, bool>) {
      p[i] = bits & 1;
    } else if constexpr (std::is_integral_v<T>) {
      p[i] = static_cast<T>(bits);
    } else {
      p[i] = static_cast<T>(static_cast<float>(static_cast<double>(bits >> 40) * 0x1p-23 - 1.0));
    }
  }
}
template <class T>
Guarded<T> filled(int64_t count, uint32_t seed) {
  Guarded<T> g(count);
  fill(g.data(), count, seed);
  return g;
}

template <class T>
double as_double(T x) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>) {
    return static_cast<float>(x);
  } else {
    return static_cast<double>(x);
  }
}

// Fails on NaN too.
inline void expect_near(double found, double expected, double tolerance, const char* what, int64_t at) {
  if (!(std::abs(found - expected) <= tolerance)) {
    ADD_FAILURE() << what << " at " << at << ": found " << found << ", expected " << expected << " +- " << tolerance;
  }
}

// Runs with one and with three threads; results must be the same bits.
template <class T, class F>
Guarded<T> run_both(const Guarded<T>& start, F f) {
  Guarded<T> one = start, three = start;
  const int before = num_threads();
  set_num_threads(1);
  f(one.data());
  set_num_threads(3);
  f(three.data());
  set_num_threads(before);
  one.check();
  three.check();
  EXPECT_TRUE(one.same_bits(three)) << "the result depends on the number of threads";
  return one;
}

}  // namespace deft::test
