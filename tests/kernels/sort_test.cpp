#include "kernels/cpu/reduce/sort.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "kernels/dense_util.h"

namespace deft::test {
namespace {

// NaN above everything.
template <class T>
bool less(T a, T b) {
  if (a != a) return false;
  if (b != b) return true;
  return a < b;
}

// Few distinct values, so that ties happen; NaN, infinities and both zeros for floats.
template <class T>
std::vector<T> values_with_ties(int64_t n, uint32_t seed) {
  std::mt19937 gen(seed);
  std::vector<T> v;
  for (int64_t i = 0; i < n; ++i) {
    const int r = static_cast<int>(gen() % 40);
    if constexpr (std::is_same_v<T, bool>) {
      v.push_back(r % 2);
    } else if constexpr (std::is_integral_v<T>) {
      v.push_back(r == 0   ? std::numeric_limits<T>::min()
                  : r == 1 ? std::numeric_limits<T>::max()
                           : static_cast<T>(r < 20 ? r - 10 : static_cast<int64_t>(gen())));
    } else {
      const float special[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, -NAN};
      const float many = static_cast<float>(gen()) * 1e-6f;
      v.push_back(static_cast<T>(r < 6 ? special[r] : r < 30 ? static_cast<float>(r - 18) : many));
    }
  }
  return v;
}

template <class T>
std::vector<int64_t> expected_order(const T* row, int64_t n, bool descending) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return descending ? less(row[b], row[a]) : less(row[a], row[b]); });
  return order;
}

template <class T>
class Sort : public ::testing::Test {};
using Types = ::testing::Types<float, double, BFloat16, Half, int8_t, uint8_t, int32_t, int64_t, bool>;
TYPED_TEST_SUITE(Sort, Types);

// std::vector<bool> has no data().
template <class T>
Guarded<T> guarded(const std::vector<T>& v) {
  Guarded<T> g(static_cast<int64_t>(v.size()));
  std::copy(v.begin(), v.end(), g.data());
  return g;
}

TYPED_TEST(Sort, RowsOfEveryLength) {
  using T = TypeParam;
  for (int64_t n : {1, 2, 3, 7, 16, 17, 33, 255, 256, 257, 1023, 1024, 1025, 5000}) {
    for (bool descending : {false, true}) {
      const int64_t outer = n < 100 ? 300 : 5;
      const auto in = guarded(values_with_ties<T>(outer * n, static_cast<uint32_t>(n)));
      const auto values = run_both(filled<T>(outer * n, 1), [&](T* out) {
        cpu::sort(dtype_of<T>, in.data(), outer, n, descending, out, nullptr);
      });
      const auto indices = run_both(filled<int64_t>(outer * n, 1), [&](int64_t* out) {
        cpu::sort(dtype_of<T>, in.data(), outer, n, descending, nullptr, out);
      });
      for (int64_t r = 0; r < outer; ++r) {
        const auto order = expected_order(in.data() + r * n, n, descending);
        for (int64_t i = 0; i < n; ++i) {
          ASSERT_EQ(indices[r * n + i], order[static_cast<size_t>(i)]) << "n " << n << " row " << r << " at " << i;
          ASSERT_EQ(std::memcmp(&values[r * n + i], &in[r * n + order[static_cast<size_t>(i)]], sizeof(T)), 0);
        }
      }
    }
  }
}

TYPED_TEST(Sort, TopK) {
  using T = TypeParam;
  for (int64_t n : {1, 5, 100, 300, 2000}) {
    for (int64_t k : {int64_t{0}, int64_t{1}, int64_t{3}, n / 2, n}) {
      if (k > n) continue;
      for (bool largest : {false, true}) {
        const int64_t outer = 7;
        const auto in = guarded(values_with_ties<T>(outer * n, static_cast<uint32_t>(n + k)));
        Guarded<T> values(outer * k);
        const auto indices = run_both(filled<int64_t>(outer * k, 1), [&](int64_t* out) {
          cpu::topk(dtype_of<T>, in.data(), outer, n, k, largest, values.data(), out);
        });
        values.check();
        for (int64_t r = 0; r < outer; ++r) {
          const auto order = expected_order(in.data() + r * n, n, largest);
          for (int64_t i = 0; i < k; ++i) {
            ASSERT_EQ(indices[r * k + i], order[static_cast<size_t>(i)]) << "n " << n << " k " << k << " at " << i;
            ASSERT_EQ(std::memcmp(&values[r * k + i], &in[r * n + order[static_cast<size_t>(i)]], sizeof(T)), 0);
          }
        }
      }
    }
  }
}

TYPED_TEST(Sort, Unique) {
  using T = TypeParam;
  for (int64_t n : {0, 1, 2, 50, 3000}) {
    const auto in = guarded(values_with_ties<T>(n, static_cast<uint32_t>(n)));
    Guarded<T> values(n);
    Guarded<int64_t> inverse(n), counts(n);
    const int64_t found = cpu::unique(dtype_of<T>, in.data(), n, values.data(), inverse.data(), counts.data());
    values.check(), inverse.check(), counts.check();
    std::vector<int64_t> seen(static_cast<size_t>(n), 0);
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_GE(inverse[i], 0);
      ASSERT_LT(inverse[i], found);
      const T a = in[i], b = values[inverse[i]];
      ASSERT_TRUE(a == b || (a != a && b != b)) << "at " << i;
      ++seen[static_cast<size_t>(inverse[i])];
    }
    for (int64_t u = 0; u < found; ++u) {
      ASSERT_EQ(counts[u], seen[static_cast<size_t>(u)]);
      if (values[u] != values[u]) {
        ASSERT_EQ(counts[u], 1) << "every NaN is its own value";
      }
      if (u > 0 && values[u] == values[u]) {
        ASSERT_TRUE(less(values[u - 1], values[u]));
      }
    }
    ASSERT_EQ(cpu::unique(dtype_of<T>, in.data(), n, values.data(), nullptr, nullptr), found);
  }
}

TEST(Sort, EmptyAndBadCalls) {
  cpu::sort(DType::f32, nullptr, 0, 5, false, nullptr, nullptr);
  cpu::sort(DType::f32, nullptr, 5, 0, false, nullptr, nullptr);
  EXPECT_THROW(cpu::topk(DType::f32, nullptr, 1, 3, 4, true, nullptr, nullptr), ValueError);
  EXPECT_THROW(cpu::topk(DType::f32, nullptr, 1, 3, -1, true, nullptr, nullptr), ValueError);
}

}  // namespace
}  // namespace deft::test
