// GEMMs through cuBLASLt. It is column-major, so it computes the transpose: c' = b' * a', whose memory is that
// of c by rows. The bias, one value per column of c, is then one per row of c', which is what its epilogue adds.
#include "kernels/cuda/gemm/gemm.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "kernels/cuda/copy/copy.h"
#include "kernels/cuda/device/device_timer.h"
#include "kernels/cuda/device/plan_cache.h"
#include "kernels/cuda/gemm/cublas.h"
#include "kernels/cuda/gemm/gemm_tiled.h"
#include "runtime/context.h"
#include "runtime/numerics.h"
#include "runtime/sync.h"

namespace deft::cuda {

namespace {

constexpr size_t kPlanLimit = 1024;
constexpr size_t kWorkspaceLimit = size_t{32} << 20;
constexpr int kCandidates = 8;
constexpr int64_t kMaxExtent = int64_t{1} << 30;  // m, n, k: the library counts in 32 bits
constexpr int64_t kMaxBatch = 32768;              // below the size of a grid in its third dimension

// How a matrix lies in memory: by rows that are ld apart, or by columns that are.
struct Operand2d {
  bool regular;
  bool by_rows;
  int64_t ld;
};

Operand2d describe(int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride) {
  bool column = cols == 1 && row_stride == 1;  // also regular by rows, with rows of one element: slower to read
  if (!column && (col_stride == 1 || cols == 1) && (rows == 1 || row_stride >= cols))
    return {true, true, rows == 1 ? cols : row_stride};
  if ((row_stride == 1 || rows == 1) && (cols == 1 || col_stride >= rows))
    return {true, false, cols == 1 ? rows : col_stride};
  return {false, false, 0};
}

// The result must lie by rows.
Operand2d describe_result(const GemmCall& g) {
  bool regular = (g.c_col == 1 || g.n == 1) && (g.m == 1 || g.c_row >= g.n);
  return {regular, true, g.m == 1 ? g.n : g.c_row};
}

DType result_type(const GemmCall& g) { return g.wide_result ? DType::f32 : g.dtype; }

struct GemmKey {
  int64_t m, n, k, lda, ldb, ldc, batch, a_batch, b_batch, c_batch;
  int16_t align_a, align_b, align_c, align_bias, align_residual;  // 0: no bias, no residual
  uint8_t dtype, c_dtype, a_by_rows, b_by_rows, tf32, autotune, beta, device, activation;
  uint8_t unused[5];
};

struct GemmPlan {
  bool usable = false;  // false: the library has nothing for this problem
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t a, b, c;
  cublasLtMatmulAlgo_t algorithm;
  size_t workspace = 0;
};
using PlanPtr = std::shared_ptr<const GemmPlan>;

PlanCache<GemmKey, GemmPlan>& plans() {
  static auto* const cache = new PlanCache<GemmKey, GemmPlan>(kPlanLimit);
  return *cache;
}

GemmKey key_of(const Encoder& e, const GemmCall& g, const Operand2d& a, const Operand2d& b, const Operand2d& c) {
  GemmKey key{};
  key.m = g.m, key.n = g.n, key.k = g.k;
  key.lda = a.ld, key.ldb = b.ld, key.ldc = c.ld;
  key.batch = g.batch;
  if (g.batch > 1) key.a_batch = g.a_batch, key.b_batch = g.b_batch, key.c_batch = g.c_batch;
  key.align_a = static_cast<int16_t>(alignment_of(g.a, true));
  key.align_b = static_cast<int16_t>(alignment_of(g.b, true));
  key.align_c = static_cast<int16_t>(alignment_of(g.c, true));
  key.align_bias = static_cast<int16_t>(g.bias ? alignment_of(g.bias, true) : 0);
  key.align_residual = static_cast<int16_t>(g.residual ? alignment_of(g.residual, true) : 0);
  key.dtype = static_cast<uint8_t>(g.dtype), key.c_dtype = static_cast<uint8_t>(result_type(g));
  key.a_by_rows = a.by_rows, key.b_by_rows = b.by_rows;
  key.tf32 = g.dtype == DType::f32 && allow_tf32();
  // Timing runs it several times, which must not change what it reads.
  key.autotune = (gemm_autotune() || g.timed) && g.beta == 0 && g.residual != g.c;
  key.beta = g.beta != 0;
  key.activation = static_cast<uint8_t>(g.activation);
  key.device = static_cast<uint8_t>(e.device().index);
  return key;
}

cudaDataType_t library_type(DType t) {
  switch (t) {
    case DType::f64:
      return CUDA_R_64F;
    case DType::f16:
      return CUDA_R_16F;
    case DType::bf16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

template <class V>
void set(cublasLtMatmulDescOpaque_t& d, cublasLtMatmulDescAttributes_t name, V value, const char* op) {
  check(cublasLtMatmulDescSetAttribute(&d, name, &value, sizeof(value)), op, "describe a product");
}

void set_layout(cublasLtMatrixLayoutOpaque_t& l, const GemmKey& key, uint8_t dtype, int64_t rows, int64_t cols,
                int64_t ld, int64_t batch_stride, const char* op) {
  check(cublasLtMatrixLayoutInit(&l, library_type(static_cast<DType>(dtype)), static_cast<uint64_t>(rows),
                                 static_cast<uint64_t>(cols), ld),
        op, "describe a matrix");
  if (key.batch == 1) return;
  auto batch = static_cast<int32_t>(key.batch);
  check(cublasLtMatrixLayoutSetAttribute(&l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof(batch)), op,
        "describe a batch");
  check(cublasLtMatrixLayoutSetAttribute(&l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &batch_stride,
                                         sizeof(batch_stride)),
        op, "describe a batch");
}

// Its gelu is the one by tanh, right to 3e-5 only.
bool is_in_library(Activation a, DType t) {
  return a == Activation::none || a == Activation::relu || (a == Activation::gelu_tanh && size_of(t) == 2);
}
cublasLtEpilogue_t library_epilogue(const GemmKey& key) {
  bool bias = key.align_bias != 0;
  switch (static_cast<Activation>(key.activation)) {
    case Activation::relu:
      return bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case Activation::gelu_tanh:
      return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    default:
      return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  }
}

void describe_problem(GemmPlan& plan, const GemmKey& key, const void* bias, const char* op) {
  bool f64 = static_cast<DType>(key.dtype) == DType::f64;
  cublasComputeType_t compute = f64 ? CUBLAS_COMPUTE_64F : key.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  check(cublasLtMatmulDescInit(&plan.operation, compute, f64 ? CUDA_R_64F : CUDA_R_32F), op, "describe a product");
  int32_t first = key.b_by_rows ? CUBLAS_OP_N : CUBLAS_OP_T, second = key.a_by_rows ? CUBLAS_OP_N : CUBLAS_OP_T;
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, first, op);
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, second, op);
  set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(library_epilogue(key)), op);
  if (bias) set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias, op);
  const auto across = [](bool by_rows, int64_t yes, int64_t no) { return by_rows ? yes : no; };
  set_layout(plan.b, key, key.dtype, across(key.b_by_rows, key.n, key.k), across(key.b_by_rows, key.k, key.n), key.ldb,
             key.b_batch, op);
  set_layout(plan.a, key, key.dtype, across(key.a_by_rows, key.k, key.m), across(key.a_by_rows, key.m, key.k), key.lda,
             key.a_batch, op);
  set_layout(plan.c, key, key.c_dtype, key.n, key.m, key.ldc, key.c_batch, op);
}

// The library's choices, best first.
int candidates(const Encoder& e, GemmPlan& plan, const GemmKey& key, cublasLtMatmulHeuristicResult_t* results) {
  cublasLtMatmulPreferenceOpaque_t wish;
  check(cublasLtMatmulPreferenceInit(&wish), e.op(), "describe a choice");
  auto prefer = [&](cublasLtMatmulPreferenceAttributes_t name, auto value) {
    check(cublasLtMatmulPreferenceSetAttribute(&wish, name, &value, sizeof(value)), e.op(), "describe a choice");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kWorkspaceLimit));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(key.align_b));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(key.align_a));
  int16_t align_read = key.align_residual ? key.align_residual : key.align_c;
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(align_read));
  int16_t align_d = key.align_bias ? std::min(key.align_c, key.align_bias) : key.align_c;
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(align_d));
  if (size_of(static_cast<DType>(key.dtype)) == 2)  // partial sums must not be rounded to 16 bits
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  int count = 0;
  cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(cublas_handle(e.device(), e.op()), &plan.operation, &plan.b, &plan.a, &plan.c,
                                     &plan.c, &wish, kCandidates, results, &count);
  if (status != CUBLAS_STATUS_SUCCESS) return 0;
  auto good = [](const cublasLtMatmulHeuristicResult_t& r) { return r.state == CUBLAS_STATUS_SUCCESS; };
  return static_cast<int>(std::stable_partition(results, results + count, good) - results);
}

cublasStatus_t execute(const Encoder& e, const GemmPlan& plan, const GemmCall& g, void* workspace) {
  // Plans are shared between threads, and the operation holds the address of the bias.
  cublasLtMatmulDescOpaque_t operation = plan.operation;
  if (g.bias) set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias, e.op());
  const double wide_beta = g.residual ? 1 : g.beta;
  float alpha = static_cast<float>(g.alpha), beta = static_cast<float>(wide_beta);
  bool f64 = g.dtype == DType::f64;
  const void* alpha_at = f64 ? static_cast<const void*>(&g.alpha) : &alpha;
  const void* beta_at = f64 ? static_cast<const void*>(&wide_beta) : &beta;
  const void* added = g.residual ? g.residual : g.c;
  auto layout = [](const cublasLtMatrixLayoutOpaque_t& l) { return const_cast<cublasLtMatrixLayout_t>(&l); };
  cublasStatus_t status = cublasLtMatmul(cublas_handle(e.device(), e.op()), &operation, alpha_at, g.b, layout(plan.b),
                                         g.a, layout(plan.a), beta_at, added, layout(plan.c), g.c, layout(plan.c),
                                         &plan.algorithm, workspace, plan.workspace, e.stream());
  e.note_launch();
  return status;
}

// Times the candidates on the operands themselves: c is written, which it will be anyway.
int fastest(const Encoder& e, GemmPlan plan, const GemmCall& g, const cublasLtMatmulHeuristicResult_t* results,
            int count) {
  count_sync("gemm autotune", effective_site({}));
  Workspace space(e, kWorkspaceLimit);
  DeviceTimer timer(e);
  int best = 0;
  double best_ms = DeviceTimer::kNever;
  for (int i = 0; i < count; ++i) {
    plan.algorithm = results[i].algo;
    plan.workspace = results[i].workspaceSize;
    double ms = timer.least_ms(best_ms, [&] { return execute(e, plan, g, space.as()) == CUBLAS_STATUS_SUCCESS; });
    if (ms < best_ms) best = i, best_ms = ms;
  }
  return best;
}

PlanPtr make_plan(const Encoder& e, const GemmKey& key, const GemmCall& g, bool timed) {
  auto plan = std::make_shared<GemmPlan>();
  describe_problem(*plan, key, g.bias, e.op());
  cublasLtMatmulHeuristicResult_t results[kCandidates];
  int count = candidates(e, *plan, key, results);
  if (count == 0) return plan;
  int chosen = timed && count > 1 ? fastest(e, *plan, g, results, count) : 0;
  plan->usable = true;
  plan->algorithm = results[chosen].algo;
  plan->workspace = results[chosen].workspaceSize;
  return plan;
}

// ---- Rows that begin between multiples of 16 bytes, and rows and sums that do not end there, as those of 50257
// classes: the library's fast kernels do not take them. They are copied, padded with zeros, where the GEMM
// takes longer than that. H200, bf16, logits of 2048 tokens, k = 768: 0.43 ms instead of 1.5, gradients 0.40 and 0.48
// instead of 1.2 and 1.1.
constexpr int64_t kRowBytes = 16;
constexpr double kFlopsOfByte = 200, kLeastFlops = 4e9;  // of a GEMM that pays for copies

class AlignedGemm {
 public:
  AlignedGemm(const GemmCall& g, const Operand2d& a, const Operand2d& b, const Operand2d& c)
      : g_(g), c_(c), step_(kRowBytes / static_cast<int64_t>(size_of(g.dtype))) {
    const int64_t m = whole(g.m), n = whole(g.n), k = whole(g.k);
    a_ = a.by_rows ? Lines{g.m, g.k, a.ld, g.m, k} : Lines{g.k, g.m, a.ld, k, m};
    b_ = b.by_rows ? Lines{g.k, g.n, b.ld, k, n} : Lines{g.n, g.k, b.ld, n, k};
    a_.copied = k != g.k || !is_aligned(g.a, a_, g.dtype);
    b_.copied = k != g.k || n != g.n || !is_aligned(g.b, b_, g.dtype);
    c_copied_ = n != g.n || !is_aligned(g.c, {g.m, g.n, c.ld, g.m, n}, result_type(g));
  }
  bool pays() const {
    const bool tensor_cores = size_of(g_.dtype) == 2 || (g_.dtype == DType::f32 && allow_tf32());
    if (!tensor_cores || g_.batch != 1 || g_.residual || g_.beta != 0) return false;
    const bool fits = c_.ld == g_.n && reinterpret_cast<uintptr_t>(g_.c) % kRowBytes == 0;  // copy_lines() writes it
    if (!(a_.copied || b_.copied || c_copied_) || (c_copied_ && !fits)) return false;
    const auto number = [](int64_t x) { return static_cast<double>(x); };
    const double flops = 2 * number(g_.m) * number(g_.n) * number(g_.k), size = number(size_of(g_.dtype));
    double bytes = c_copied_ ? number(g_.m) * number(g_.n) * number(size_of(result_type(g_))) : 0;
    for (const Lines& l : {a_, b_}) bytes += l.copied ? number(l.count) * number(l.length) * size : 0;
    return flops >= kLeastFlops && flops >= kFlopsOfByte * bytes;
  }
  // run(call, a, b, c) with operands that are aligned; what it returns.
  template <class F>
  bool run(Encoder& e, Operand2d a, Operand2d b, F run) const {
    std::optional<Workspace> a_space, b_space, c_space, bias_space;
    GemmCall g = g_;
    Operand2d c = c_;
    g.n = whole(g.n), g.k = whole(g.k);
    if (a_.copied) g.a = bring(e, g_.a, a_, a, a_space);
    if (b_.copied) g.b = bring(e, g_.b, b_, b, b_space);
    Operand2d row{};
    if (g.bias && g.n != g_.n) g.bias = bring(e, g_.bias, {1, g_.n, g_.n, 1, g.n}, row, bias_space);
    const DType result = result_type(g);
    if (c_copied_) {
      c_space.emplace(e, static_cast<size_t>(g.m * g.n) * size_of(result));
      g.c = c_space->as(), c.ld = g.n;
    }
    if (!run(g, a, b, c)) return false;
    if (c_copied_) copy_lines(e, {size_of(result), g.c, g.m, g_.n, g.n, g_.c, g_.m, g_.n});
    return true;
  }

 private:
  // Values that lie side by side, and how many there are in the copy.
  struct Lines {
    int64_t count, length, ld, new_count, new_length;
    bool copied = false;
  };
  int64_t whole(int64_t extent) const { return (extent + step_ - 1) / step_ * step_; }
  static bool is_aligned(const void* p, const Lines& l, DType dtype) {
    const bool line = l.count == 1 || l.ld * static_cast<int64_t>(size_of(dtype)) % kRowBytes == 0;
    return line && reinterpret_cast<uintptr_t>(p) % kRowBytes == 0;
  }
  const void* bring(Encoder& e, const void* from, const Lines& l, Operand2d& o, std::optional<Workspace>& space) const {
    const size_t size = size_of(g_.dtype);
    space.emplace(e, static_cast<size_t>(l.new_count * l.new_length) * size);
    copy_lines(e, {size, from, l.count, l.length, l.ld, space->as(), l.new_count, l.new_length});
    o.ld = l.new_length;
    return space->as();
  }

  const GemmCall& g_;
  Lines a_{}, b_{};
  Operand2d c_;
  int64_t step_;  // values of 16 bytes
  bool c_copied_ = false;
};

// False: the library does not take this problem.
bool run_as_it_lies(const Encoder& e, const GemmCall& g, const Operand2d& a, const Operand2d& b, const Operand2d& c) {
  GemmKey key = key_of(e, g, a, b, c);
  PlanPtr plan = plans().find(key);
  if (!plan) {
    bool timed = key.autotune && can_wait(e);
    plan = make_plan(e, key, g, timed);
    if (timed || !key.autotune) plans().add(key, plan);
  }
  if (!plan->usable) return false;
  std::optional<Workspace> space;
  if (plan->workspace) space.emplace(e, plan->workspace);
  check(execute(e, *plan, g, space ? space->as() : nullptr), e.op(), "multiply matrices");
  return true;
}
bool run_library(Encoder& e, const GemmCall& g) {
  Operand2d a = describe(g.m, g.k, g.a_row, g.a_col), b = describe(g.k, g.n, g.b_row, g.b_col);
  Operand2d c = describe_result(g);
  if (!a.regular || !b.regular || !c.regular || g.a_batch < 0 || g.b_batch < 0) return false;
  const auto run = [&](const GemmCall& call, const Operand2d& x, const Operand2d& y, const Operand2d& z) {
    return run_as_it_lies(e, call, x, y, z);
  };
  if (const AlignedGemm aligned(g, a, b, c); aligned.pays()) {
    try {
      return aligned.run(e, a, b, run);
    } catch (const OutOfMemoryError&) {
      if (deterministic()) throw;  // other kernels would give other bits
    }
  }
  return run(g, a, b, c);
}

GemmCall transposed(const GemmCall& g) {
  GemmCall t = g;
  t.m = g.n, t.n = g.m;
  t.a = g.b, t.a_row = g.b_col, t.a_col = g.b_row, t.a_batch = g.b_batch;
  t.b = g.a, t.b_row = g.a_col, t.b_col = g.a_row, t.b_batch = g.a_batch;
  t.c_row = g.c_col, t.c_col = g.c_row;
  return t;
}

// Results that lie by columns, and columns alone: the library likes a single column better than a single row.
bool wants_transposing(const GemmCall& g) {
  if (g.bias || g.c_row != 1) return false;
  return g.n == 1 ? g.m > 1 : g.c_col != 1;
}

// All sizes are within the library's limits.
void gemm_part(Encoder& e, const GemmCall& g) {
  if (!is_floating(g.dtype) || g.k == 0) return gemm_tiled(e, g);
  if (!g.bias) {
    if (!run_library(e, wants_transposing(g) ? transposed(g) : g)) gemm_tiled(e, g);
    return;
  }
  if (g.dtype != DType::f64 && run_library(e, g)) return;
  if (g.beta != 0) return gemm_tiled(e, g);
  GemmCall fill = g;  // no epilogue: start from the bias and add the GEMM
  fill.k = 0;
  gemm_tiled(e, fill);
  GemmCall rest = g;
  rest.bias = nullptr;
  rest.beta = 1;
  if (!run_library(e, rest)) gemm_tiled(e, g);
}

const void* offset(const void* p, int64_t elements, DType dtype) {
  return static_cast<const char*>(p) + elements * static_cast<int64_t>(size_of(dtype));
}

// Any k: later parts are added to what the first has written.
void gemm_parts_of_k(Encoder& e, const GemmCall& call) {
  GemmCall part = call;
  int64_t done = 0;
  do {
    part.k = std::min(kMaxExtent, call.k - done);
    part.a = offset(call.a, done * call.a_col, call.dtype);
    part.b = offset(call.b, done * call.b_row, call.dtype);
    gemm_part(e, part);
    part.bias = nullptr;
    part.beta = 1;
    done += part.k;
  } while (done < call.k);
}

template <class F>
void for_each_part(int64_t total, int64_t most, F f) {
  for (int64_t at = 0; at < total; at += most) f(at, std::min(most, total - at));
}

}  // namespace

bool gemm_library(Encoder& e, const GemmCall& call) {
  bool in_range = call.m <= kMaxExtent && call.n <= kMaxExtent && call.k <= kMaxExtent && call.batch <= kMaxBatch;
  bool ends_plainly = !call.bias && call.activation == Activation::none;
  if (!is_floating(call.dtype) || ((call.dtype == DType::f64 || call.wide_result) && !ends_plainly)) return false;
  return in_range && call.k > 0 && is_in_library(call.activation, call.dtype) && run_library(e, call);
}

bool is_regular(int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride) {
  return describe(rows, cols, row_stride, col_stride).regular;
}

void gemm(Encoder& e, const GemmCall& call) {
  if (call.m <= 0 || call.n <= 0 || call.batch <= 0) return;
  if (call.m <= kMaxExtent && call.n <= kMaxExtent && call.batch <= kMaxBatch) return gemm_parts_of_k(e, call);
  auto at = [&](const void* p, int64_t elements) { return offset(p, elements, call.dtype); };
  for_each_part(call.batch, kMaxBatch, [&](int64_t batch, int64_t batches) {
    for_each_part(call.m, kMaxExtent, [&](int64_t row, int64_t rows) {
      for_each_part(call.n, kMaxExtent, [&](int64_t column, int64_t columns) {
        GemmCall part = call;
        part.batch = batches, part.m = rows, part.n = columns;
        part.a = at(call.a, batch * call.a_batch + row * call.a_row);
        part.b = at(call.b, batch * call.b_batch + column * call.b_col);
        part.c = const_cast<void*>(at(call.c, batch * call.c_batch + row * call.c_row + column * call.c_col));
        if (call.bias) part.bias = at(call.bias, column);
        gemm_parts_of_k(e, part);
      });
    });
  });
}

}  // namespace deft::cuda
