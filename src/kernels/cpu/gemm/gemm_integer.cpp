// Integer GEMMs. Sums wrap in the unsigned type, whose low bits are those of the exact result.
#include <algorithm>
#include <type_traits>

#include "kernels/cpu/gemm/gemm_internal.h"
#include "runtime/parallel.h"

namespace deft::cpu::detail {
namespace {

template <class T>
using wrap_t = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

constexpr int64_t kColumns = 512;

template <class T>
void rows(const TypedGemm<T>& g, int64_t i0, int64_t i1) {
  using U = wrap_t<T>;
  U sum[kColumns];
  for (int64_t i = i0; i < i1; ++i) {
    for (int64_t j0 = 0; j0 < g.n; j0 += kColumns) {
      const int64_t count = std::min(kColumns, g.n - j0);
      std::fill(sum, sum + count, U(0));
      if (g.b_row == 1 && g.b_col != 1) {
        for (int64_t q = 0; q < count; ++q) {
          const T* b = g.b + (j0 + q) * g.b_col;
          const T* a = g.a + i * g.a_row;
          U s = 0;
          if (g.a_col == 1) {
            for (int64_t p = 0; p < g.k; ++p) s += static_cast<U>(a[p]) * static_cast<U>(b[p]);
          } else {
            for (int64_t p = 0; p < g.k; ++p) s += static_cast<U>(a[p * g.a_col]) * static_cast<U>(b[p]);
          }
          sum[q] = s;
        }
      } else {
        for (int64_t p = 0; p < g.k; ++p) {
          const U x = static_cast<U>(g.a[i * g.a_row + p * g.a_col]);
          const T* b = g.b + p * g.b_row + j0 * g.b_col;
          if (g.b_col == 1) {
            for (int64_t q = 0; q < count; ++q) sum[q] += x * static_cast<U>(b[q]);
          } else {
            for (int64_t q = 0; q < count; ++q) sum[q] += x * static_cast<U>(b[q * g.b_col]);
          }
        }
      }
      for (int64_t q = 0; q < count; ++q) {
        T& out = g.c[i * g.c_row + (j0 + q) * g.c_col];
        U s = sum[q];
        if (g.bias) s += static_cast<U>(g.bias[g.bias_on_rows ? i : j0 + q]);
        if (g.accumulate) s += static_cast<U>(out);
        out = static_cast<T>(s);
      }
    }
  }
}

template <class T>
void run(const GemmCall& x) {
  TypedGemm<T> g{x.m,
                 x.n,
                 x.k,
                 static_cast<const T*>(x.a),
                 x.a_row,
                 x.a_col,
                 static_cast<const T*>(x.b),
                 x.b_row,
                 x.b_col,
                 static_cast<T*>(x.c),
                 x.c_row,
                 x.c_col,
                 x.accumulate,
                 static_cast<const T*>(x.bias),
                 false};
  if constexpr (std::is_same_v<T, int8_t>) {
    if (dots_apply(g)) return gemm_dots(g);
    if (dots_apply(g.transposed())) return gemm_dots(g.transposed());
  }
  if (g.m < g.n && g.m < 4) g = g.transposed();  // threads take rows
  const int64_t grain = std::max<int64_t>(1, 64 * 1024 / std::max<int64_t>(1, g.n * g.k));
  if (g.m <= grain) return rows(g, 0, g.m);
  parallel_for(0, g.m, grain, [&](int64_t begin, int64_t end) { rows(g, begin, end); });
}

}  // namespace

void gemm_integer(const GemmCall& call) {
  switch (call.dtype) {
    case DType::i8:
      return run<int8_t>(call);
    case DType::u8:
      return run<uint8_t>(call);
    case DType::i32:
      return run<int32_t>(call);
    default:
      return run<int64_t>(call);
  }
}

}  // namespace deft::cpu::detail
