#include "kernels/cpu/gemm.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/cpu/autotune.h"
#include "kernels/cpu/gemm_internal.h"
#include "kernels/cpu/product.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace detail {
namespace {

constexpr int64_t kSmallWork = 24 * 24 * 24;  // below this packing costs more than it gives
constexpr int64_t kNarrow = 3;

// Whether to skip packing, judged by shape and strides only: never by the number of threads.
template <class T>
DirectForm direct_form(const TypedGemm<T>& g, bool small) {
  if (!small && g.m > kNarrow) return DirectForm::none;
  if (g.b_col == 1) return DirectForm::rows;
  if (g.b_row == 1 && (g.a_col == 1 || g.k <= kDirectMaxK)) return DirectForm::dots;
  return DirectForm::none;
}

// Few rows times a matrix too large to be worth packing: columns in lanes, each line of b read once.
template <class T>
bool run_dots(const TypedGemm<T>& g, bool small) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, BFloat16>) {
    if (small || g.m > kDotsMaxRows || g.a_col != 1 || g.b_row != 1 || !dots_apply(dtype_of<T>, g.k)) return false;
    const int64_t blocks = (g.n + kDirectBlock - 1) / kDirectBlock;
    const int64_t grain = std::max<int64_t>(1, 64 * 1024 / (kDirectBlock * g.m * g.k));
    parallel_for(0, blocks, grain, [&](int64_t begin, int64_t end) {
      gemm_dots(g, begin * kDirectBlock, std::min(g.n, end * kDirectBlock));
    });
    return true;
  }
  return false;
}

template <class T>
void run_direct(const TypedGemm<T>& g, DirectForm form, double work) {
  if (work < 128 * 1024) return gemm_direct(g, form, 0, g.n);
  const int64_t blocks = (g.n + kDirectBlock - 1) / kDirectBlock;
  const int64_t grain = std::max<int64_t>(1, 64 * 1024 / (kDirectBlock * g.m * g.k));
  parallel_for(0, blocks, grain, [&](int64_t begin, int64_t end) {
    gemm_direct(g, form, begin * kDirectBlock, std::min(g.n, end * kDirectBlock));
  });
}

struct Candidate {
  const GemmTile* tile;
  int64_t block_bytes;
};
// Tiles times sizes of blocks; the first is what calculation says is best.
int candidates(Panel panel, int64_t m, int64_t n, Candidate* out) {
  int count = 0;
  const GemmTile* best = &best_tile(panel, m, n);
  out[count++] = {best, kBlockBytes[0]};
  for (const GemmTile& t : gemm_tiles(panel)) {
    // Another group is another instruction, which may sum in another order (AMX and AVX-512 for bf16).
    const bool same_bits = t.a_group == best->a_group && !t.portable;
    if (&t != best && same_bits && count < 3) out[count++] = {&t, kBlockBytes[0]};
  }
  for (size_t i = 1; i < std::size(kBlockBytes); ++i) out[count++] = {best, kBlockBytes[i]};
  return count;
}

// Through the engine. c may have any strides; the epilogue stores it.
template <class T>
void run_packed(const TypedGemm<T>& g) {
  constexpr DType dtype = dtype_of<T>;
  Candidate list[Tuner::kMostCandidates];
  const int count = candidates(panel_for(dtype), g.m, g.n, list);
  const uint32_t layout = 1u << 15 | (g.a_col == 1) << 2 | (g.b_row == 1) << 1 | (g.c_col == 1);
  const TunedRun run(TuneKey(TunedOp::gemm, dtype, layout, {g.m, g.n, g.k}), count, g.m * g.n * g.k);
  const StridedSource a({dtype, g.a, g.a_row, g.a_col}), b({dtype, g.b, g.b_col, g.b_row});
  Product p;
  p.tile = list[run.choice()].tile, p.block_bytes = list[run.choice()].block_bytes;
  p.m = g.m, p.n = g.n, p.k = g.k;
  p.a = &a, p.b = &b;
  p.c = g.c, p.c_dtype = dtype, p.c_row = g.c_row, p.c_col = g.c_col;
  p.epilogue.bias = g.bias, p.epilogue.bias_dtype = dtype, p.epilogue.on_rows = g.bias_on_rows;
  p.epilogue.accumulate = g.accumulate;
  run_product(p);
}

template <class T>
void gemm_floating(const GemmCall& x) {
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
  const double work = static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k);
  const bool small = work <= kSmallWork;
  if (g.n <= kDotsMaxRows && g.m > kDotsMaxRows && g.a_col == 1 && g.b_row == 1) {
    if (run_dots(g.transposed(), small)) return;
  }
  if (g.n <= kNarrow && g.m > kNarrow) g = g.transposed();
  if (run_dots(g, small)) return;
  DirectForm form = direct_form(g, small);
  if (form == DirectForm::none && small) {
    const TypedGemm<T> other = g.transposed();
    form = direct_form(other, small);
    if (form == DirectForm::none) {
      form = DirectForm::strided;
    } else {
      g = other;
    }
  }
  if (form != DirectForm::none) return run_direct(g, form, work);
  if (g.c_col != 1 && g.c_row == 1) g = g.transposed();
  run_packed(g);
}

// k == 0: nothing to add up.
template <class T>
void fill_empty(const GemmCall& x) {
  if (x.accumulate && !x.bias) return;
  T* c = static_cast<T*>(x.c);
  const T* bias = static_cast<const T*>(x.bias);
  for (int64_t i = 0; i < x.m; ++i) {
    for (int64_t j = 0; j < x.n; ++j) {
      T& out = c[i * x.c_row + j * x.c_col];
      if constexpr (std::is_integral_v<T>) {
        uint64_t v = x.accumulate ? static_cast<uint64_t>(out) : 0;
        out = static_cast<T>(v + (bias ? static_cast<uint64_t>(bias[j]) : 0));
      } else {
        accumulate_t<T> v = x.accumulate ? widen(out) : 0;
        out = static_cast<T>(bias ? v + widen(bias[j]) : v);
      }
    }
  }
}

}  // namespace
}  // namespace detail

void gemm(const GemmCall& call) {
  DEFT_CHECK(call.dtype != DType::boolean, DTypeError,
             "matmul: found bool operands, expected a number type; cast first");
  if (call.m <= 0 || call.n <= 0) return;
  if (call.k <= 0) {
    return dispatch_all(call.dtype, [&]<class T>() {
      if constexpr (!std::is_same_v<T, bool>) detail::fill_empty<T>(call);
    });
  }
  if (!is_floating(call.dtype)) return detail::gemm_integer(call);
  dispatch_floating(call.dtype, [&]<class T>() { detail::gemm_floating<T>(call); });
}

void gemm_batched(const GemmCall& call, int64_t batch, int64_t a_batch, int64_t b_batch, int64_t c_batch) {
  if (batch == 1) return gemm(call);
  const int64_t size = static_cast<int64_t>(size_of(call.dtype));
  const auto run = [&](int64_t begin, int64_t end) {
    GemmCall one = call;
    for (int64_t i = begin; i < end; ++i) {
      one.a = static_cast<const char*>(call.a) + i * a_batch * size;
      one.b = static_cast<const char*>(call.b) + i * b_batch * size;
      one.c = static_cast<char*>(call.c) + i * c_batch * size;
      gemm(one);
    }
  };
  const double work = static_cast<double>(call.m) * static_cast<double>(call.n) * static_cast<double>(call.k);
  // A large product fills the machine by itself; otherwise lanes take whole products.
  if (work >= 8e6 && batch < 4 * num_threads()) return run(0, batch);
  const int64_t grain = std::max<int64_t>(1, static_cast<int64_t>(64 * 1024 / std::max(1.0, work)));
  if (batch <= grain) return run(0, batch);
  parallel_for(0, batch, grain, run);
}

}  // namespace deft::cpu
