// CUB's radix sort, for two types of keys.
#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/reduce/sort.cuh"

namespace deft::cuda {

namespace {

constexpr size_t kAlign = 256;
size_t padded(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// Returns which of the two buffers holds the result.
template <class K>
int radix_sort(Encoder& e, K* (&keys)[2], uint32_t* (&numbers)[2], int at, int64_t n, int bits) {
  cub::DoubleBuffer<K> k(keys[at], keys[1 - at]);
  cub::DoubleBuffer<uint32_t> v(numbers[at], numbers[1 - at]);
  size_t bytes = 0;
  const int count = static_cast<int>(n);
  check(cub::DeviceRadixSort::SortPairs(nullptr, bytes, k, v, count, 0, bits, e.stream()), e.op(), "sizing a sort");
  Workspace scratch(e, bytes ? bytes : 1);
  check(cub::DeviceRadixSort::SortPairs(scratch.as(), bytes, k, v, count, 0, bits, e.stream()), e.op(), "a sort");
  // Keys and numbers change sides together.
  return k.Current() == keys[at] ? at : 1 - at;
}

__global__ void rows_of(const uint32_t* numbers, uint32_t* rows, int64_t count, int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) rows[i] = numbers[i] / static_cast<uint32_t>(n);
}

}  // namespace

template <class K>
KeySort<K>::KeySort(Encoder& e, int64_t n)
    : e_(e),
      count_(n),
      memory_(e, 2 * (padded(sizeof(K) * static_cast<size_t>(n)) + padded(4 * static_cast<size_t>(n)))) {
  char* p = memory_.as<char>();
  for (int i = 0; i < 2; ++i) {
    keys_[i] = reinterpret_cast<K*>(p);
    p += padded(sizeof(K) * static_cast<size_t>(n));
    numbers_[i] = reinterpret_cast<uint32_t*>(p);
    p += padded(4 * static_cast<size_t>(n));
  }
}

template <class K>
void KeySort<K>::run(int bits) {
  at_ = radix_sort(e_, keys_, numbers_, at_, count_, bits);
}

template <class K>
void KeySort<K>::by_rows(int64_t outer, int64_t n) {
  if (outer == 1) return;
  // The keys are no longer needed: row numbers take their place.
  uint32_t* rows[2] = {reinterpret_cast<uint32_t*>(keys_[0]), reinterpret_cast<uint32_t*>(keys_[1])};
  e_.launch(rows_of, Encoder::blocks_for(count_), 256, 0, numbers(), rows[at_], count_, n);
  int bits = 1;
  while ((int64_t{1} << bits) < outer) ++bits;
  at_ = radix_sort(e_, rows, numbers_, at_, count_, bits);
}

template class KeySort<uint32_t>;
template class KeySort<uint64_t>;

}  // namespace deft::cuda
