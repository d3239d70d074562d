#include "kernels/cpu/gemm/gemm.h"

#include <vector>

#include "base/error.h"
#include "kernels/dense_util.h"
#include "runtime/cpu_isa.h"

namespace deft::test {
namespace {

struct Layout {
  int64_t row, col, offset, size;  // offset: where element (0, 0) lies
};

// 0 rows contiguous, 1 columns contiguous, 2 gaps everywhere, 3 reversed rows, 4 one row repeated.
Layout layout(int kind, int64_t rows, int64_t cols) {
  switch (kind) {
    case 0:
      return {cols, 1, 0, rows * cols};
    case 1:
      return {1, rows, 0, rows * cols};
    case 2:
      return {3 * cols + 1, 2, 1, 1 + rows * (3 * cols + 1) + 2 * cols};
    case 3:
      return {-cols, 1, cols * (rows > 0 ? rows - 1 : 0), rows * cols};
    default:
      return {0, 1, 0, cols};
  }
}

struct Case {
  int64_t m, n, k;
  int a_kind = 0, b_kind = 0, c_kind = 0;
  bool accumulate = false, bias = false;
};

template <class T>
void check_case(const Case& t, int64_t batch = 1) {
  SCOPED_TRACE(::testing::Message() << name_of(dtype_of<T>) << " " << t.m << "x" << t.n << "x" << t.k << " layouts "
                                    << t.a_kind << t.b_kind << t.c_kind << " acc " << t.accumulate << " bias " << t.bias
                                    << " batch " << batch);
  const Layout la = layout(t.a_kind, t.m, t.k), lb = layout(t.b_kind, t.k, t.n), lc = layout(t.c_kind, t.m, t.n);
  const auto a = filled<T>(la.size * batch, 1), b = filled<T>(lb.size * batch, 2), bias = filled<T>(t.n, 3);
  const auto start = filled<T>(lc.size * batch, 4);
  const auto c = run_both(start, [&](T* out) {
    const cpu::GemmCall call{dtype_of<T>,
                             t.m,
                             t.n,
                             t.k,
                             a.data() + la.offset,
                             la.row,
                             la.col,
                             b.data() + lb.offset,
                             lb.row,
                             lb.col,
                             out + lc.offset,
                             lc.row,
                             lc.col,
                             t.accumulate,
                             t.bias ? bias.data() : nullptr};
    batch == 1 ? cpu::gemm(call) : cpu::gemm_batched(call, batch, la.size, lb.size, lc.size);
  });
  std::vector<bool> touched(static_cast<size_t>(c.size()), false);
  for (int64_t s = 0; s < batch; ++s) {
    for (int64_t i = 0; i < t.m; ++i) {
      for (int64_t j = 0; j < t.n; ++j) {
        const int64_t at = s * lc.size + lc.offset + i * lc.row + j * lc.col;
        touched[static_cast<size_t>(at)] = true;
        if constexpr (std::is_integral_v<T>) {
          uint64_t sum = t.accumulate ? static_cast<uint64_t>(start[at]) : 0;
          if (t.bias) sum += static_cast<uint64_t>(bias[j]);
          for (int64_t p = 0; p < t.k; ++p) {
            sum += static_cast<uint64_t>(a[s * la.size + la.offset + i * la.row + p * la.col]) *
                   static_cast<uint64_t>(b[s * lb.size + lb.offset + p * lb.row + j * lb.col]);
          }
          ASSERT_EQ(c[at], static_cast<T>(sum)) << "at " << i << "," << j;
        } else {
          double sum = t.accumulate ? as_double(start[at]) : 0, norm = std::abs(sum);
          if (t.bias) sum += as_double(bias[j]), norm += std::abs(as_double(bias[j]));
          for (int64_t p = 0; p < t.k; ++p) {
            const double x = as_double(a[s * la.size + la.offset + i * la.row + p * la.col]) *
                             as_double(b[s * lb.size + lb.offset + p * lb.row + j * lb.col]);
            sum += x;
            norm += std::abs(x);
          }
          // Error of the additions (they grow like a random walk), then one rounding at the store.
          const double eps = epsilon_of(dtype_of<accumulate_t<T>>);
          const double tolerance = eps * norm * (1 + std::sqrt(static_cast<double>(t.k)) / 4) +
                                   epsilon_of(dtype_of<T>) * std::abs(sum) * 0.5001 + 1e-7 * (sizeof(T) == 2);
          expect_near(as_double(c[at]), sum, tolerance, "c", at);
        }
      }
    }
  }
  for (int64_t at = 0; at < c.size(); ++at) {
    if (!touched[static_cast<size_t>(at)]) {
      ASSERT_EQ(std::memcmp(&c[at], &start[at], sizeof(T)), 0) << "gap at " << at << " was written";
    }
  }
}

template <class T>
class Gemm : public ::testing::Test {};
using Types = ::testing::Types<float, double, BFloat16, Half, int8_t, uint8_t, int32_t, int64_t>;
TYPED_TEST_SUITE(Gemm, Types);

TYPED_TEST(Gemm, EverySmallSize) {
  for (int64_t m = 1; m <= 10; ++m) {
    for (int64_t n = 1; n <= 18; ++n) {
      for (int64_t k : {1, 2, 3, 4, 5, 8, 13}) check_case<TypeParam>({m, n, k});
    }
  }
}

TYPED_TEST(Gemm, EveryLayout) {
  for (int a = 0; a < 5; ++a) {
    for (int b = 0; b < 5; ++b) {
      for (int c = 0; c < 4; ++c) {
        check_case<TypeParam>({5, 7, 9, a, b, c, (a + b) % 2 == 1, (b + c) % 2 == 1});
        check_case<TypeParam>({2, 37, 50, a, b, c, true, true});
        check_case<TypeParam>({37, 2, 50, a, b, c, (a + c) % 2 == 1, true});
        check_case<TypeParam>({33, 41, 29, a, b, c, (a + b) % 2 == 0, (b + c) % 2 == 0});
      }
    }
  }
}

TYPED_TEST(Gemm, BlockedEdges) {
  for (int64_t m : {31, 32, 33, 193}) {
    for (int64_t n : {35, 36, 37}) {
      for (int64_t k : {383, 384, 385, 800}) {
        check_case<TypeParam>({m, n, k, 0, 1, 0, false, true});
        check_case<TypeParam>({m, n, k, 1, 0, 1, true, true});
        check_case<TypeParam>({m, n, k, 0, 0, 2, true, false});
      }
    }
  }
}

TYPED_TEST(Gemm, WideAndTall) {
  check_case<TypeParam>({7, 2100, 40});
  check_case<TypeParam>({2100, 7, 40, 0, 1});
  check_case<TypeParam>({1, 2100, 401, 0, 0, 0, false, true});
  check_case<TypeParam>({1, 2100, 401, 0, 1, 0, true, false});
  check_case<TypeParam>({2100, 1, 401, 0, 0, 0, false, true});
  check_case<TypeParam>({2100, 1, 401, 1, 0, 0, false, true});
  check_case<TypeParam>({1100, 20, 390, 0, 0, 2});
}

// Rows and columns contiguous over k: blocks of 8, 4, 2 and 1 rows, columns that end within a step, with every
// instruction set.
TYPED_TEST(Gemm, FewRowsOfLines) {
  const auto step = static_cast<int64_t>(64 / sizeof(TypeParam));
  for (int level = isa_choice().level; level >= 0; --level) {
    const char* name = isa_choice().levels[static_cast<size_t>(level)].name;
    SCOPED_TRACE(name);
    IsaGuard guard(name);
    for (int64_t m = 1; m <= 17; ++m) {
      for (int64_t k : {step - 1, step, step + 1, step + step / 2, 2 * step - 1, 4 * step + 3}) {
        const int64_t n = 24 * 24 * 24 / (m * k) + 1 + (m + k) % 7;
        check_case<TypeParam>({m, n, k, m % 2 ? 0 : 3, 1, static_cast<int>(k % 4), m % 3 == 0, k % 2 == 0});
        check_case<TypeParam>({n, m, k, 0, 1, static_cast<int>(m % 4), k % 3 == 0, m % 2 == 0});
      }
    }
    check_case<TypeParam>({3, 700, 3 * step, 4, 1});
  }
}

// A column that holds infinity changes nothing next to it, nor do the zeros that end rows and columns.
TEST(Gemm, FewRowsKeepInfinityInItsLine) {
  const int64_t n = 301, k = 77;
  for (int64_t m : {1, 2, 4, 8}) {
    std::vector<Half> a(static_cast<size_t>(m * k), Half(1.0f)), b(static_cast<size_t>(n * k), Half(1.0f));
    std::vector<Half> c(static_cast<size_t>(m * n));
    b[static_cast<size_t>(100 * k + k - 1)] = Half(INFINITY);
    cpu::gemm({DType::f16, m, n, k, a.data(), k, 1, b.data(), 1, k, c.data(), n, 1, false, nullptr});
    for (int64_t i = 0; i < m * n; ++i)
      ASSERT_EQ(static_cast<float>(c[static_cast<size_t>(i)]), i % n == 100 ? INFINITY : 77.0f) << i;
  }
}

TYPED_TEST(Gemm, ZeroSizes) {
  for (bool accumulate : {false, true}) {
    for (bool bias : {false, true}) {
      check_case<TypeParam>({4, 5, 0, 0, 0, 0, accumulate, bias});
      check_case<TypeParam>({0, 5, 3, 0, 0, 0, accumulate, bias});
      check_case<TypeParam>({4, 0, 3, 0, 0, 0, accumulate, bias});
    }
  }
}

TYPED_TEST(Gemm, Batched) {
  for (int64_t batch : {2, 9}) {
    check_case<TypeParam>({8, 8, 8}, batch);
    check_case<TypeParam>({33, 35, 34, 0, 1, 0, true, true}, batch);
    check_case<TypeParam>({4, 6, 0, 0, 0, 0, false, true}, batch);
  }
  check_case<TypeParam>({3, 3, 3}, 0);
}

// Small f32 GEMMs in batches: every transposition and tail, with every instruction set.
TEST(Gemm, SmallBatches) {
  for (int level = isa_choice().level; level >= 0; --level) {
    const char* name = isa_choice().levels[static_cast<size_t>(level)].name;
    SCOPED_TRACE(name);
    IsaGuard guard(name);
    for (int64_t size = 1; size <= 20; ++size) {
      for (int b : {0, 1}) {
        check_case<float>({size, size, size, 0, b}, 3);
        check_case<float>({size, 21 - size, 7, 1, b, static_cast<int>(size % 4), size % 2 == 0, size % 3 == 0}, 2);
        check_case<float>({9, 40 - size, size, 0, b, 0, size % 3 == 0, size % 2 == 0}, 2);
      }
    }
    for (int a = 0; a < 5; ++a) {
      for (int b = 0; b < 5; ++b) {
        for (int c = 0; c < 4; ++c) check_case<float>({13, 19, 11, a, b, c, (a + b) % 2 == 1, (b + c) % 2 == 1}, 3);
        check_case<float>({50, 50, 33, a, b, 0, (a + b) % 2 == 1}, 2);
      }
    }
    for (int b : {0, 1, 2}) {
      check_case<float>({64, 64, 64, 0, b}, 2);
      check_case<float>({70, 128, 64, 1, b}, 2);
    }
  }
}

// One operand of all GEMMs may be the same matrix.
TEST(Gemm, SmallBatchesThatShareASide) {
  const int64_t m = 7, n = 21, k = 10, batch = 5;
  const auto a = filled<float>(m * k * batch, 1), b = filled<float>(n * k * batch, 2);
  for (bool lines : {false, true}) {
    for (bool transposed : {false, true}) {
      for (const auto& [a_batch, b_batch] : {std::pair{m * k, int64_t{0}}, {int64_t{0}, n * k}, {m * k, n * k}}) {
        std::vector<float> together(static_cast<size_t>(m * n * batch)), alone = together;
        const auto call = [&](std::vector<float>& c, int64_t s) {
          return cpu::GemmCall{DType::f32,
                               m,
                               n,
                               k,
                               a.data() + s * a_batch,
                               k,
                               1,
                               b.data() + s * b_batch,
                               lines ? 1 : n,
                               lines ? k : 1,
                               c.data() + s * m * n,
                               transposed ? 1 : n,
                               transposed ? m : 1,
                               false,
                               nullptr};
        };
        cpu::gemm_batched(call(together, 0), batch, a_batch, b_batch, m * n);
        for (int64_t s = 0; s < batch; ++s) cpu::gemm(call(alone, s));
        EXPECT_EQ(0, std::memcmp(together.data(), alone.data(), alone.size() * sizeof(float))) << lines << transposed;
      }
    }
  }
}

TEST(Gemm, OuterProducts) {
  for (int level = isa_choice().level; level >= 0; --level) {
    const char* name = isa_choice().levels[static_cast<size_t>(level)].name;
    SCOPED_TRACE(name);
    IsaGuard guard(name);
    for (int64_t n : {16, 17, 31, 100, 1000}) {
      for (int c = 0; c < 4; ++c) {
        check_case<float>({200, n, 1, 0, 0, c});
        check_case<float>({n, 200, 1, 2, 0, c});
        check_case<float>({200, n, 1, 2, 2, c, c % 2 == 0, c % 2 == 1});
      }
    }
  }
}

TEST(Gemm, BoolIsRefused) {
  const cpu::GemmCall call{DType::boolean, 1, 1, 1, nullptr, 1, 1, nullptr, 1, 1, nullptr, 1, 1, false, nullptr};
  EXPECT_THROW(cpu::gemm(call), DTypeError);
}

// The stride of a dim of size one is irrelevant, so it changes no bit: compile() gives it another value.
TYPED_TEST(Gemm, StridesOfSingleLinesDoNotCount) {
  using T = TypeParam;
  const int64_t sizes[][3] = {{3, 1, 33}, {1, 3, 33}, {1, 1, 70}, {2, 1, 500}, {9, 1, 40}, {1, 9, 40}, {5, 7, 1}};
  for (const auto& [m, n, k] : sizes) {
    std::vector<T> a(static_cast<size_t>(m * k)), b(static_cast<size_t>(n * k));
    for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<T>(static_cast<float>(i * 37 % 11) / 7 - 0.7f);
    for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<T>(static_cast<float>(i * 29 % 13) / 9 - 0.6f);
    auto run_call = [&](int64_t free) {
      std::vector<T> c(static_cast<size_t>(m * n));
      cpu::gemm({dtype_of<T>, m, n, k, a.data(), m == 1 ? free : k, k == 1 ? free : 1, b.data(), k == 1 ? free : 1,
                 n == 1 ? free : k, c.data(), n, 1, false, nullptr});
      return c;
    };
    const std::vector<T> want = run_call(1);
    for (int64_t free : {int64_t{2}, k, n})
      EXPECT_EQ(0, std::memcmp(run_call(free).data(), want.data(), want.size() * sizeof(T))) << m << n << k << free;
  }
}

// bf16 must sum the whole of k in f32: 4096 ones are exact there, and would stop at 256 in bf16.
TEST(Gemm, SixteenBitSumsAreWide) {
  const int64_t k = 4096;
  std::vector<BFloat16> a(k * 40, BFloat16(1.0f)), c(40 * 40);
  cpu::gemm({DType::bf16, 40, 40, k, a.data(), k, 1, a.data(), 1, k, c.data(), 40, 1, false, nullptr});
  for (BFloat16 x : c) ASSERT_EQ(static_cast<float>(x), 4096.0f);
}

}  // namespace
}  // namespace deft::test
