#include "kernels/cpu/gemm/gemm.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/cpu/autotune.h"
#include "kernels/cpu/gemm/blocked_gemm.h"
#include "kernels/cpu/gemm/gemm_internal.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace detail {
namespace {

constexpr int64_t kSmallWork = 24 * 24 * 24;  // smaller GEMMs lose more by packing than they gain
constexpr int64_t kNarrow = 3;
// The same for f32 alone, where one thread suffices anyway, and in batches, where each thread takes whole GEMMs.
constexpr int64_t kSmallWorkAlone = 64 * 1024, kSmallWorkInBatch = 128 * 128 * 64;

template <class T>
double work_of(const TypedGemm<T>& g) {
  return static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k);
}

// Whether to skip packing; depends on shape and strides only, never on the number of threads.
template <class T>
DirectForm direct_form(const TypedGemm<T>& g, bool small) {
  if (!small && g.m > kNarrow) return DirectForm::none;
  if (g.b_col == 1) return DirectForm::rows;
  if (g.b_row == 1 && (g.a_col == 1 || g.k <= kDirectMaxK)) return DirectForm::dots;
  return DirectForm::none;
}

// Few rows times a matrix too large to be worth packing: SIMD lanes run over columns, and b is read once.
template <class T>
bool dots_fit(const TypedGemm<T>& g, bool small) {
  return !small && dots_apply(g);
}

template <class T>
void run_direct(const TypedGemm<T>& g, DirectForm form) {
  if (work_of(g) < 128 * 1024) return gemm_direct(g, form, 0, g.n);
  const int64_t blocks = (g.n + kDirectBlock - 1) / kDirectBlock;
  const int64_t grain = std::max<int64_t>(1, 64 * 1024 / (kDirectBlock * g.m * g.k));
  parallel_for(0, blocks, grain, [&](int64_t begin, int64_t end) {
    gemm_direct(g, form, begin * kDirectBlock, std::min(g.n, end * kDirectBlock));
  });
}

void run_outer(const TypedGemm<float>& g) {
  parallel_for(0, g.m, std::max<int64_t>(1, 64 * 1024 / g.n),
               [&](int64_t begin, int64_t end) { gemm_outer(g, begin, end); });
}

struct Candidate {
  const GemmTile* tile;
  int64_t block_bytes;
};
// The choices are tiles times block sizes; the first is the best by calculation.
int candidates(Panel panel, int64_t m, int64_t n, Candidate* out) {
  int count = 0;
  const GemmTile* best = &best_tile(panel, m, n);
  out[count++] = {best, kBlockBytes[0]};
  out[count++] = {best, kBlockBytes[1]};
  for (const GemmTile& t : gemm_tiles(panel)) {
    // Another group means another instruction, which may sum in another order (AMX and AVX-512 for bf16).
    const bool same_bits = t.a_group == best->a_group && !t.portable;
    const bool lower = t.begin && t.mr < best->mr;  // a lower AMX tile is always slower
    if (&t != best && same_bits && !lower && count < 4) out[count++] = {&t, kBlockBytes[0]};
  }
  for (size_t i = 2; i < std::size(kBlockBytes); ++i) out[count++] = {best, kBlockBytes[i]};
  return count;
}

// Runs the blocked GEMM. c may have any strides; the epilogue stores it.
template <class T>
void run_packed(const TypedGemm<T>& g, const PackedMatrix* packed_b) {
  constexpr DType dtype = dtype_of<T>;
  const StridedSource a({dtype, g.a, g.a_row, g.a_col}), b({dtype, g.b, g.b_col, g.b_row});
  BlockedGemm p;
  p.m = g.m, p.n = g.n, p.k = g.k;
  p.a = &a;
  p.c = g.c, p.c_dtype = dtype, p.c_row = g.c_row, p.c_col = g.c_col;
  p.epilogue.bias = g.bias, p.epilogue.bias_dtype = dtype, p.epilogue.on_rows = g.bias_on_rows;
  p.epilogue.accumulate = g.accumulate;
  if (packed_b) {
    p.packed_b = packed_b, p.tile = &best_tile(panel_for(dtype, g.m, g.n, g.k), g.m, g.n);
    return run_blocked_gemm(p);
  }
  Candidate list[Tuner::kMostCandidates];
  const int count = candidates(panel_for(dtype, g.m, g.n, g.k), g.m, g.n, list);
  const uint32_t layout = 3u << 14 | (g.a_col == 1) << 2 | (g.b_row == 1) << 1 | (g.c_col == 1);
  const TunedRun run(TuneKey(TunedOp::gemm, dtype, layout, {g.m, g.n, g.k}), count, g.m * g.n * g.k);
  p.b = &b, p.tile = list[run.choice()].tile, p.block_bytes = list[run.choice()].block_bytes;
  run_blocked_gemm(p);
}

// The stride of a dim of size one is irrelevant: it gets the value that suits best, so that it never changes the choice
// of kernel and with it the bits.
template <class T>
void settle_strides(TypedGemm<T>& g) {
  if (g.k == 1) g.a_col = 1, g.b_row = g.n;
  if (g.m == 1) g.a_row = g.a_col == 1 ? g.k : 1;
  if (g.n == 1) g.b_col = g.b_row == 1 ? g.k : 1;
}

// The kernel that runs, on the call or on its transpose.
enum class Way : uint8_t { dots, direct, small, outer, packed };
template <class T>
struct Plan {
  Way way = Way::packed;
  TypedGemm<T> g;
  DirectForm form = DirectForm::none;
  bool swapped() const { return g.bias_on_rows; }
};

// The call or its transpose, whichever has contiguous rows of c.
template <class T>
TypedGemm<T> along_rows(const TypedGemm<T>& g) {
  return g.c_col != 1 && g.c_row == 1 ? g.transposed() : g;
}

// One or few rows times columns contiguous over k: dot products waste less than SIMD lanes over columns.
bool suits_dots(const TypedGemm<float>& g) {
  const int64_t narrow = std::min(g.m, g.n);
  if (g.m * g.n == 1) return true;
  if (g.k < 32) return false;
  const bool a_lines = g.a_col == 1, b_lines = g.b_row == 1;
  return narrow == 1 || (narrow == 2 && (g.m < g.n ? b_lines : a_lines)) || (a_lines && b_lines && g.k >= g.m * g.n);
}

bool is_outer(const TypedGemm<float>& g) {
  return g.k == 1 && g.m > kNarrow && g.n >= kSmallLanes && g.b_col == 1 && g.c_col == 1 && !g.accumulate && !g.bias;
}

// Packing pays off for a b of kSmallRight values: it may be cached in panels, and reading it in place is no faster (10
// % slower with busy neighbours). A b with contiguous columns is copied either way.
bool is_small(const TypedGemm<float>& g, bool in_batch) {
  const double work = work_of(g);
  if (!small_fits(g) || suits_dots(g) || work > (in_batch ? kSmallWorkInBatch : kSmallWorkAlone)) return false;
  return work <= kSmallWork || g.n * g.k < kSmallRight || (in_batch && g.b_row == 1);
}

// The f32 kernels that pack nothing; Way::packed: none of them fits.
Plan<float> unpacked(const TypedGemm<float>& original, bool in_batch) {
  const TypedGemm<float> g = along_rows(original);
  if (is_small(g, in_batch)) return {Way::small, g};
  return {is_outer(g) ? Way::outer : Way::packed, g};
}

template <class T>
Plan<T> plan(const GemmCall& x, bool in_batch = false) {
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
  settle_strides(g);
  if constexpr (std::is_same_v<T, float>) {
    if (const Plan<float> p = unpacked(g, in_batch); p.way != Way::packed) return p;
  }
  const bool small = work_of(g) <= kSmallWork;
  if (g.n <= kDotsMaxRows && g.m > kDotsMaxRows && dots_fit(g.transposed(), small)) {
    return {Way::dots, g.transposed()};
  }
  if (g.n <= kNarrow && g.m > kNarrow) g = g.transposed();
  if (dots_fit(g, small)) return {Way::dots, g};
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
  if (form != DirectForm::none) return {Way::direct, g, form};
  return {Way::packed, along_rows(g)};
}

template <class T>
void gemm_floating(const GemmCall& x) {
  const Plan<T> p = plan<T>(x);
  if (p.way == Way::dots) return gemm_dots(p.g);
  if (p.way == Way::direct) return run_direct(p.g, p.form);
  if constexpr (std::is_same_v<T, float>) {
    if (p.way == Way::small) return gemm_small(p.g, {});
    if (p.way == Way::outer) return run_outer(p.g);
  }
  run_packed(p.g, p.swapped() ? nullptr : x.packed_b);
}

// GEMMs [begin, end) of a batch, all planned as `p`.
void run_small(const Plan<float>& p, GemmBatch batch, int64_t begin, int64_t end) {
  if (p.swapped()) std::swap(batch.a, batch.b);
  TypedGemm<float> g = p.g;
  g.a += begin * batch.a, g.b += begin * batch.b, g.c += begin * batch.c;
  batch.count = end - begin;
  gemm_small(g, batch);
}

// With k == 0 there is nothing to sum.
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
  detail::Plan<float> p;
  if (call.dtype == DType::f32 && !call.packed_b && call.m > 0 && call.n > 0 && call.k > 0) {
    p = detail::plan<float>(call, true);
  }
  const auto run = [&](int64_t begin, int64_t end) {
    if (p.way == detail::Way::small) return detail::run_small(p, {batch, a_batch, b_batch, c_batch}, begin, end);
    GemmCall one = call;
    for (int64_t i = begin; i < end; ++i) {
      one.a = static_cast<const char*>(call.a) + i * a_batch * size;
      one.b = static_cast<const char*>(call.b) + i * b_batch * size;
      one.c = static_cast<char*>(call.c) + i * c_batch * size;
      gemm(one);
    }
  };
  const double work = static_cast<double>(call.m) * static_cast<double>(call.n) * static_cast<double>(call.k);
  // A large GEMM fills the machine by itself; otherwise threads take whole GEMMs.
  if (work >= 8e6 && batch < 4 * num_threads()) return run(0, batch);
  const int64_t grain = std::max<int64_t>(1, static_cast<int64_t>(64 * 1024 / std::max(1.0, work)));
  if (batch <= grain) return run(0, batch);
  parallel_balanced(0, batch, grain, run);
}

const GemmTile* gemm_b_tile(const GemmCall& call) {
  if (!is_floating(call.dtype) || call.m <= 0 || call.n <= 0 || call.k <= 0) return nullptr;
  bool packs = false;
  dispatch_floating(call.dtype, [&]<class T>() {
    const auto p = detail::plan<T>(call);
    packs = p.way == detail::Way::packed && !p.swapped();
  });
  if (!packs) return nullptr;
  return &first_alike(best_tile(panel_for(call.dtype, call.m, call.n, call.k), call.m, call.n));
}

const GemmTile& first_alike(const GemmTile& tile) {
  for (const GemmTile& t : gemm_tiles(tile.panel)) {
    if (t.nr == tile.nr && t.b_group == tile.b_group && t.k_step == tile.k_step && t.block_k == tile.block_k) return t;
  }
  return tile;
}

std::unique_ptr<const PackedMatrix> pack_gemm_b(const GemmCall& call, const GemmTile& tile) {
  const StridedSource b({call.dtype, call.b, call.b_col, call.b_row});
  return std::make_unique<const PackedMatrix>(tile, Side::b, b, call.n, call.k);
}

}  // namespace deft::cpu
