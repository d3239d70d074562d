// Optimizer updates on GPUs: the CPU's rules (kernels/cpu/elementwise/optimizer_rules.h), bit for bit but for the sums
// of LAMB.
#include "kernels/cpu/elementwise/optimizer_rules.h"
#include "kernels/cuda/elementwise/multi_tensor.cuh"
#include "ops/optimizer_update_cuda.h"
#include "ops/ternary.h"

namespace deft::detail {

namespace {

using namespace cuda;

// --- What the rules compute with --------------------------------------------------------------------------------

// N numbers that go through a formula together. Rounded after each operation, as the CPU does.
template <int N>
struct Numbers {
  float f[N];

  template <class F>
  static __device__ __forceinline__ Numbers each(const F& formula) {
    Numbers r;
#pragma unroll
    for (int k = 0; k < N; ++k) r.f[k] = formula(k);
    return r;
  }
  friend __device__ __forceinline__ Numbers operator+(const Numbers& a, const Numbers& b) {
    return each([&](int k) { return __fadd_rn(a.f[k], b.f[k]); });
  }
  friend __device__ __forceinline__ Numbers operator-(const Numbers& a, const Numbers& b) {
    return each([&](int k) { return __fsub_rn(a.f[k], b.f[k]); });
  }
  friend __device__ __forceinline__ Numbers operator*(const Numbers& a, const Numbers& b) {
    return each([&](int k) { return __fmul_rn(a.f[k], b.f[k]); });
  }
  friend __device__ __forceinline__ Numbers operator/(const Numbers& a, const Numbers& b) {
    return each([&](int k) { return __fdiv_rn(a.f[k], b.f[k]); });
  }
  friend __device__ __forceinline__ Numbers operator-(const Numbers& a) {
    return each([&](int k) { return -a.f[k]; });
  }
  friend __device__ __forceinline__ Numbers fma(const Numbers& a, const Numbers& b, const Numbers& c) {
    return each([&](int k) { return __fmaf_rn(a.f[k], b.f[k], c.f[k]); });
  }
  friend __device__ __forceinline__ Numbers sqrt(const Numbers& a) {
    return each([&](int k) { return __fsqrt_rn(a.f[k]); });
  }
  friend __device__ __forceinline__ Numbers infinite_or(const Numbers& x, const Numbers& y) {
    return each([&](int k) { return x.f[k] == HUGE_VALF ? x.f[k] : y.f[k]; });
  }
  friend __device__ __forceinline__ Numbers max(const Numbers& a, const Numbers& b) {
    return each([&](int k) { return math::max(a.f[k], b.f[k]); });
  }
};

struct Constant {
  float f;
  DEFT_HD explicit Constant(double x) : f(static_cast<float>(x)) {}
  template <int N>
  __device__ __forceinline__ operator Numbers<N>() const {
    return Numbers<N>::each([&](int) { return f; });
  }
};

// --- Tensors ----------------------------------------------------------------------------------------------------

constexpr int kVec = 4;  // 16 bytes of f32

using Entry = CudaOptimizerTensor;
using Table = ChunkTable<Entry, kParameterBytes - 128>;
template <class Rule>
constexpr bool kFits = sizeof(Table) + sizeof(Rule) + 32 <= kParameterBytes;

Entry entry_of(Entry t) {
  t.aligned = is_aligned(t.param, kVec * sizeof(float)) && is_aligned(t.grad, kVec * size_of(t.grad_dtype)) &&
              (!t.copy || is_aligned(t.copy, kVec * size_of(t.copy_dtype)));
  for (const float* s : t.state) t.aligned &= is_aligned(s, kVec * sizeof(float));
  return t;
}

// Where a tensor is, in registers; its gradient is of type G.
template <class G>
struct Place {
  float* param;
  const G* grad;
  void* copy;
  float* state[3];
  bool copy_is_bf16;
  explicit __device__ __forceinline__ Place(const Entry& t)
      : param(t.param),
        grad(static_cast<const G*>(t.grad)),
        copy(t.copy),
        state{t.state[0], t.state[1], t.state[2]},
        copy_is_bf16(t.copy_dtype == DType::bf16) {}
};

// Elements i to i + N - 1. All that a rule may read is asked for at once, not where it comes to it: a thread waits for
// memory once. What it never reads is left out by the compiler.
template <class G, int N>
class At {
 public:
  __device__ __forceinline__ At(const Place<G>& place, int64_t i) : place_(place), grad_(load(place.grad + i)) {
    if (place.param)
      param_ = load(place.param + i);
    else if (place.copy_is_bf16)
      param_ = load(static_cast<const BFloat16*>(place.copy) + i);
    else
      param_ = load(static_cast<const Half*>(place.copy) + i);
#pragma unroll
    for (int k = 0; k < 3; ++k) state_[k] = place.state[k] ? load(place.state[k] + i) : Numbers<N>{};
  }
  __device__ __forceinline__ const Numbers<N>& p(int64_t) const { return param_; }
  __device__ __forceinline__ const Numbers<N>& g(int64_t) const { return grad_; }
  __device__ __forceinline__ const Numbers<N>& s(int k, int64_t) const { return state_[k]; }
  __device__ __forceinline__ void set(int k, int64_t i, const Numbers<N>& v) const {
    store_floats<N>(place_.state[k] + i, v.f);
  }
  __device__ __forceinline__ void set_param(int64_t i, const Numbers<N>& v) const {
    if (place_.param) store_floats<N>(place_.param + i, v.f);
    if (!place_.copy) return;
    if (place_.copy_is_bf16)
      store_floats<N>(static_cast<BFloat16*>(place_.copy) + i, v.f);
    else
      store_floats<N>(static_cast<Half*>(place_.copy) + i, v.f);
  }

 private:
  template <class T>
  static __device__ __forceinline__ Numbers<N> load(const T* p) {
    Numbers<N> r;
    load_floats<N>(p, r.f);
    return r;
  }
  const Place<G>& place_;
  Numbers<N> param_, grad_, state_[3];
};

// rule(at, i) for all elements of a block's chunk.
template <class G, class Rule>
__device__ __forceinline__ void update_chunk(const Entry& t, const Table::Chunk& c, const Rule& rule) {
  const Place<G> place(t);
  for_each_group<kVec>(
      t.aligned, c.begin, c.end, [&](int64_t i) { rule(At<G, kVec>(place, i), i); },
      [&](int64_t i) { rule(At<G, 1>(place, i), i); });
}
template <class Rule>
__device__ __forceinline__ void update_chunk(const Table& table, const Table::Chunk& c, const Rule& rule) {
  const Entry& t = table.entries[c.entry];
  if (t.grad_dtype == DType::f32)
    update_chunk<float>(t, c, rule);
  else if (t.grad_dtype == DType::bf16)
    update_chunk<BFloat16>(t, c, rule);
  else
    update_chunk<Half>(t, c, rule);
}

template <class Rule>
__global__ void __launch_bounds__(kChunkThreads)
    update_kernel(const __grid_constant__ Table table, const __grid_constant__ Rule rule) {
  update_chunk(table, table.chunk(blockIdx.x), rule);
}

template <class Launch>
void for_each_table(const CudaOptimizerTensor* tensors, int64_t count, const Launch& launch) {
  cuda::for_each_table<Table>(
      count, [&](int64_t k) { return entry_of(tensors[k]); }, launch);
}

template <class Rule>
void run(Device device, const char* op, const CudaOptimizerTensor* tensors, int64_t count, const Rule& rule) {
  static_assert(kFits<Rule>);
  Encoder e(device, op);
  for_each_table(tensors, count, [&](const Table& table) {
    e.launch(&update_kernel<Rule>, table.first[table.count], kChunkThreads, 0, table, rule);
  });
}

// --- LAMB -------------------------------------------------------------------------------------------------------

using Lamb = optimizer_rules::Lamb<Constant>;
using LambStep = optimizer_rules::LambStep<Constant>;

struct LambMoments {
  const Lamb& lamb;
  double &params, &updates;  // squares of f32 may overflow f32
  template <class G, int N>
  __device__ __forceinline__ void operator()(const At<G, N>& at, int64_t i) const {
    const Numbers<N> p = at.p(i), u = lamb.advance(at, i, p);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const double wide_p = p.f[k], wide_u = u.f[k];
      params = __fma_rn(wide_p, wide_p, params);
      updates = __fma_rn(wide_u, wide_u, updates);
    }
  }
};

// norms[2 c] and [2 c + 1]: sums of squares of the parameters and of the update in chunk c of the table.
__global__ void __launch_bounds__(kChunkThreads)
    lamb_moments_kernel(const __grid_constant__ Table table, const __grid_constant__ Lamb lamb, double* norms) {
  double params = 0, updates = 0;
  update_chunk(table, table.chunk(blockIdx.x), LambMoments{lamb, params, updates});
  __shared__ double shared[32];
  const double all_params = block_sum(params, shared);
  const double all_updates = block_sum(updates, shared);
  if (threadIdx.x != 0) return;
  norms[2 * static_cast<int64_t>(blockIdx.x)] = all_params;
  norms[2 * static_cast<int64_t>(blockIdx.x) + 1] = all_updates;
}

// One block per tensor.
__global__ void __launch_bounds__(kChunkThreads)
    lamb_ratio_kernel(const __grid_constant__ Table table, const double* norms, double* ratios) {
  double params = 0, updates = 0;
  for (uint32_t c = table.first[blockIdx.x] + threadIdx.x; c < table.first[blockIdx.x + 1]; c += kChunkThreads) {
    params += norms[2 * static_cast<int64_t>(c)];
    updates += norms[2 * static_cast<int64_t>(c) + 1];
  }
  __shared__ double shared[32];
  params = block_sum(params, shared);
  updates = block_sum(updates, shared);
  if (threadIdx.x == 0) ratios[blockIdx.x] = optimizer_rules::lamb_ratio(params, updates);
}

__global__ void __launch_bounds__(kChunkThreads)
    lamb_step_kernel(const __grid_constant__ Table table, const __grid_constant__ Lamb lamb, double lr,
                     const double* ratios) {
  const Table::Chunk c = table.chunk(blockIdx.x);
  update_chunk(table, c, LambStep{lamb, Constant(-lr * ratios[c.entry])});
}

void launch_lamb(Encoder& e, const Table& table, const Lamb& lamb, double lr) {
  const int64_t chunks = table.first[table.count];
  Workspace scratch(e, static_cast<size_t>(2 * chunks + table.count) * sizeof(double));
  double *norms = scratch.as<double>(), *ratios = norms + 2 * chunks;
  e.launch(&lamb_moments_kernel, static_cast<unsigned>(chunks), kChunkThreads, 0, table, lamb, norms);
  e.launch(&lamb_ratio_kernel, static_cast<unsigned>(table.count), kChunkThreads, 0, table, norms, ratios);
  e.launch(&lamb_step_kernel, static_cast<unsigned>(chunks), kChunkThreads, 0, table, lamb, lr, ratios);
}

// --- Moving averages --------------------------------------------------------------------------------------------

using LerpTable = ChunkTable<CudaLerp, kParameterBytes - 64>;

template <class T>
__device__ __forceinline__ void lerp_chunk(const CudaLerp& t, const LerpTable::Chunk& c, float weight) {
  auto group = [&]<int N>(int64_t i) {
    float to[N], from[N];
    load_floats<N>(t.to + i, to);
    load_floats<N>(static_cast<const T*>(t.from) + i, from);
#pragma unroll
    for (int k = 0; k < N; ++k) to[k] = Lerp::fwd(to[k], from[k], weight);
    store_floats<N>(t.to + i, to);
  };
  for_each_group<kVec>(
      t.aligned, c.begin, c.end, [&](int64_t i) { group.template operator()<kVec>(i); },
      [&](int64_t i) { group.template operator()<1>(i); });
}

__global__ void __launch_bounds__(kChunkThreads) lerp_kernel(const __grid_constant__ LerpTable table, float weight) {
  const LerpTable::Chunk c = table.chunk(blockIdx.x);
  const CudaLerp& t = table.entries[c.entry];
  if (t.from_dtype == DType::f32)
    lerp_chunk<float>(t, c, weight);
  else if (t.from_dtype == DType::bf16)
    lerp_chunk<BFloat16>(t, c, weight);
  else
    lerp_chunk<Half>(t, c, weight);
}

}  // namespace

void cuda_update(Device device, const char* op, const CudaOptimizerTensor* tensors, int64_t count,
                 const cpu::SgdOptions& options) {
  run(device, op, tensors, count, optimizer_rules::Sgd<Constant>(options));
}
void cuda_update(Device device, const char* op, const CudaOptimizerTensor* tensors, int64_t count,
                 const cpu::AdamOptions& options) {
  run(device, op, tensors, count, optimizer_rules::Adam<Constant>(options));
}
void cuda_update(Device device, const char* op, const CudaOptimizerTensor* tensors, int64_t count,
                 const cpu::RmspropOptions& options) {
  run(device, op, tensors, count, optimizer_rules::Rmsprop<Constant>(options));
}
void cuda_update(Device device, const char* op, const CudaOptimizerTensor* tensors, int64_t count,
                 const cpu::AdagradOptions& options) {
  run(device, op, tensors, count, optimizer_rules::Adagrad<Constant>(options));
}
void cuda_update(Device device, const char* op, const CudaOptimizerTensor* tensors, int64_t count,
                 const cpu::LambOptions& options) {
  static_assert(kFits<Lamb>);
  Encoder e(device, op);
  const Lamb lamb(options);
  for_each_table(tensors, count, [&](const Table& table) { launch_lamb(e, table, lamb, options.lr); });
}

void cuda_lerp(Device device, const char* op, const CudaLerp* tensors, int64_t count, double weight) {
  Encoder e(device, op);
  auto entry = [&](int64_t k) {
    CudaLerp t = tensors[k];
    t.aligned = is_aligned(t.to, kVec * sizeof(float)) && is_aligned(t.from, kVec * size_of(t.from_dtype));
    return t;
  };
  cuda::for_each_table<LerpTable>(count, entry, [&](const LerpTable& table) {
    e.launch(&lerp_kernel, table.first[table.count], kChunkThreads, 0, table, static_cast<float>(weight));
  });
}

}  // namespace deft::detail
