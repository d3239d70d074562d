// Kernels over the elements of many tensors: their arguments, and which block works on what.
//
// Note [Tables]: a launch takes a table of tensors as a parameter, so that nothing is uploaded and nothing waits. More
// tensors than fit take several launches. Tensors are cut into chunks, numbered through; each is the work of a block,
// and where sums are made there is one per chunk, added in the order of the chunks: results do not depend on the
// device.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/cuda/reduce/block_reduce.cuh"

namespace deft::cuda {

inline constexpr int kChunkThreads = 256;
inline constexpr int64_t kChunkElements = 16 * 1024;
inline constexpr size_t kParameterBytes = 4096;  // of a kernel, on every device and driver

inline int64_t chunks_of(int64_t size) { return (size + kChunkElements - 1) / kChunkElements; }

// Entries have a `size`. kBytes is what the kernel's other parameters leave.
template <class Entry, size_t kBytes>
struct ChunkTable {
  static constexpr int kCount = static_cast<int>((kBytes - 2 * sizeof(uint32_t)) / (sizeof(Entry) + sizeof(uint32_t)));
  Entry entries[kCount];
  uint32_t first[kCount + 1];  // chunk of each entry; the last one is where they end
  int32_t count;

  // The chunk a block works on.
  struct Chunk {
    int entry;
    int64_t begin, end;
  };
  __device__ __forceinline__ Chunk chunk(uint32_t number) const {
    int low = 0, high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (first[middle] <= number)
        low = middle;
      else
        high = middle;
    }
    const int64_t begin = static_cast<int64_t>(number - first[low]) * kChunkElements;
    const int64_t size = entries[low].size;
    return {low, begin, size - begin < kChunkElements ? size : begin + kChunkElements};
  }
};

// launch(table) for tables that hold all tensors with elements; entry(k) makes the one of tensor k.
template <class Table, class MakeEntry, class Launch>
void for_each_table(int64_t count, const MakeEntry& entry, const Launch& launch) {
  Table table;
  static_assert(sizeof(Table) <= kParameterBytes);
  table.count = 0;
  table.first[0] = 0;
  auto flush = [&] {
    if (table.count) launch(static_cast<const Table&>(table));
    table.count = 0;
  };
  for (int64_t k = 0; k < count; ++k) {
    const auto e = entry(k);
    if (e.size == 0) continue;
    table.entries[table.count] = e;
    table.first[table.count + 1] = table.first[table.count] + static_cast<uint32_t>(chunks_of(e.size));
    if (++table.count == Table::kCount) flush();
  }
  flush();
}

// --- Elements in groups of N ------------------------------------------------------------------------------------

inline bool is_aligned(const void* p, size_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }  // null is

// N elements as f32; N > 1 needs memory aligned to all of them.
template <int N, class T>
__device__ __forceinline__ void load_floats(const T* p, float (&to)[N]) {
  const Pack<T, N> raw = *reinterpret_cast<const Pack<T, N>*>(p);
#pragma unroll
  for (int k = 0; k < N; ++k) to[k] = convert<float>(raw.v[k]);
}
template <int N, class T>
__device__ __forceinline__ void store_floats(T* p, const float (&from)[N]) {
  Pack<T, N> raw;
#pragma unroll
  for (int k = 0; k < N; ++k) raw.v[k] = convert<T>(from[k]);
  // nvcc 13.0 writes an assigned Pack element by element here.
  if constexpr (sizeof(raw) == 16)
    *reinterpret_cast<uint4*>(p) = std::bit_cast<uint4>(raw);
  else if constexpr (sizeof(raw) == 8)
    *reinterpret_cast<uint2*>(p) = std::bit_cast<uint2>(raw);
  else
    *reinterpret_cast<Pack<T, N>*>(p) = raw;
}

// many(i) for groups of N from begin on, one(i) for the elements that are left; all of them if not `aligned`. `begin`
// is a multiple of N.
template <int N, class Many, class One>
__device__ __forceinline__ void for_each_group(bool aligned, int64_t begin, int64_t end, const Many& many,
                                               const One& one) {
  int64_t rest = begin;
  if (aligned) {
    rest = end - (end - begin) % N;
    for (int64_t i = begin + static_cast<int64_t>(threadIdx.x) * N; i < rest; i += kChunkThreads * N) many(i);
  }
  for (int64_t i = rest + threadIdx.x; i < end; i += kChunkThreads) one(i);
}

}  // namespace deft::cuda
