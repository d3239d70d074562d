#include "kernels/cuda/elementwise/multi_tensor.h"

#include "kernels/cuda/elementwise/multi_tensor.cuh"

namespace deft::cuda {

namespace {

struct Entry {
  int64_t size;
  void* data;
  DType dtype;
  bool aligned;
  int32_t index;
};
using Table = ChunkTable<Entry, kParameterBytes - 64>;

template <class Launch>
void for_each_table(const TensorData* tensors, int64_t count, const Launch& launch) {
  cuda::for_each_table<Table>(
      count,
      [&](int64_t k) {
        const TensorData& t = tensors[k];
        return Entry{t.size, t.data, t.dtype, is_aligned(t.data, 16), t.index};
      },
      launch);
}

// f.template operator()<T>() for the type of an entry.
template <class F>
__device__ __forceinline__ void with_type(DType t, const F& f) {
  if (t == DType::f32)
    f.template operator()<float>();
  else if (t == DType::bf16)
    f.template operator()<BFloat16>();
  else
    f.template operator()<Half>();
}

// Calls each(values, address) for all elements of a chunk, as f32, in arrays of 16 bytes' worth or of one.
template <class T, class Each>
__device__ __forceinline__ void for_each_value(const Entry& t, int64_t begin, int64_t end, const Each& each) {
  constexpr int kVec = 16 / sizeof(T);
  T* x = static_cast<T*>(t.data);
  auto group = [&]<int N>(int64_t i) {
    float v[N];
    load_floats<N>(x + i, v);
    each(v, x + i);
  };
  for_each_group<kVec>(
      t.aligned, begin, end, [&](int64_t i) { group.template operator()<kVec>(i); },
      [&](int64_t i) { group.template operator()<1>(i); });
}

__global__ void __launch_bounds__(kChunkThreads)
    squares_kernel(const __grid_constant__ Table table, double* __restrict__ sums) {
  const Table::Chunk c = table.chunk(blockIdx.x);
  const Entry& t = table.entries[c.entry];
  float sum = 0;
  with_type(t.dtype, [&]<class T>() {
    for_each_value<T>(t, c.begin, c.end, [&]<int N>(const float(&v)[N], T*) {
#pragma unroll
      for (int k = 0; k < N; ++k) sum = fmaf(v[k], v[k], sum);
    });
  });
  __shared__ double shared[32];
  const double total = block_sum(static_cast<double>(sum), shared);
  if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

constexpr int kSumThreads = 1024;
__global__ void __launch_bounds__(kSumThreads)
    norm_kernel(const double* __restrict__ sums, int64_t count, double* norm, double* factor, double max_norm) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kSumThreads) sum += sums[i];
  __shared__ double shared[32];
  sum = block_sum(sum, shared);
  if (threadIdx.x != 0) return;
  *norm = sqrt(sum);
  if (!factor) return;
  const double clip = max_norm / (*norm + 1e-6);
  *factor = clip >= 1 ? 1 : clip;
}

struct Scale {
  double factor;
  const double* from;         // null, or where the factor is
  unsigned long long* found;  // null, or as check_finite() says
  __device__ double value() const { return from ? *from : factor; }
};
__global__ void __launch_bounds__(kChunkThreads)
    scale_kernel(const __grid_constant__ Table table, const __grid_constant__ Scale scale) {
  const double wanted = scale.value();
  const float factor = static_cast<float>(wanted);
  const bool writes = wanted != 1;
  if (!writes && !scale.found) return;
  const Table::Chunk c = table.chunk(blockIdx.x);
  const Entry& t = table.entries[c.entry];
  bool bad = false;
  with_type(t.dtype, [&]<class T>() {
    for_each_value<T>(t, c.begin, c.end, [&]<int N>(float(&v)[N], T* at) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        bad |= !isfinite(v[k]);
        v[k] *= factor;
      }
      if (writes) store_floats<N>(at, v);
    });
  });
  if (!scale.found) return;
  // The lowest index has the highest number, so that atomicMax keeps it in any order of the blocks.
  if (__syncthreads_or(bad) && threadIdx.x == 0)
    atomicMax(scale.found, static_cast<unsigned long long>(kFoundBase - t.index));
}

void scale_all(Encoder& e, const TensorData* tensors, int64_t count, const Scale& scale) {
  for_each_table(tensors, count, [&](const Table& table) {
    e.launch(&scale_kernel, table.first[table.count], kChunkThreads, 0, table, scale);
  });
}

}  // namespace

void l2_norm(Encoder& e, const TensorData* tensors, int64_t count, double* norm, double* factor, double max_norm) {
  int64_t chunks = 0;
  for (int64_t k = 0; k < count; ++k) chunks += chunks_of(tensors[k].size);
  Workspace sums(e, static_cast<size_t>(chunks + 1) * sizeof(double));
  int64_t done = 0;
  for_each_table(tensors, count, [&](const Table& table) {
    e.launch(&squares_kernel, table.first[table.count], kChunkThreads, 0, table, sums.as<double>() + done);
    done += table.first[table.count];
  });
  e.launch(&norm_kernel, 1, kSumThreads, 0, sums.as<const double>(), chunks, norm, factor, max_norm);
}

void scale_tensors(Encoder& e, const TensorData* tensors, int64_t count, double factor) {
  scale_all(e, tensors, count, {factor, nullptr, nullptr});
}
void scale_tensors(Encoder& e, const TensorData* tensors, int64_t count, const double* factor) {
  scale_all(e, tensors, count, {1, factor, nullptr});
}

void check_finite(Encoder& e, const TensorData* tensors, int64_t count, int64_t* found, double factor) {
  e.zero(found, sizeof(*found));
  scale_all(e, tensors, count, {factor, nullptr, reinterpret_cast<unsigned long long*>(found)});
}

}  // namespace deft::cuda
