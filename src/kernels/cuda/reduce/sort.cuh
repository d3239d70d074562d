// Between the sort kernels: keys that order like the values, and the radix sort of a whole tensor.
#pragma once

#include "kernels/cuda/elementwise/convert.cuh"
#include "kernels/cuda/reduce/sort.h"

namespace deft::cuda {

// Unsigned, NaN last, one zero.
template <class U>
__device__ __forceinline__ U float_key(U bits, U infinity) {
  constexpr int kTop = 8 * sizeof(U) - 1;
  constexpr U kSign = static_cast<U>(U(1) << kTop), kAll = static_cast<U>(~U(0));
  const U magnitude = static_cast<U>(bits & static_cast<U>(~kSign));
  if (magnitude > infinity) return kAll;
  if (magnitude == 0) return kSign;
  return bits & kSign ? static_cast<U>(~bits) : static_cast<U>(bits | kSign);
}
__device__ __forceinline__ uint32_t sort_key(float x) { return float_key<uint32_t>(__float_as_uint(x), 0x7f800000u); }
__device__ __forceinline__ uint64_t sort_key(double x) {
  return float_key<uint64_t>(static_cast<uint64_t>(__double_as_longlong(x)), 0x7ff0000000000000u);
}
__device__ __forceinline__ uint32_t sort_key(BFloat16 x) { return float_key<uint16_t>(x.bits, 0x7f80); }
__device__ __forceinline__ uint32_t sort_key(Half x) { return float_key<uint16_t>(x.bits, 0x7c00); }
__device__ __forceinline__ uint32_t sort_key(int8_t x) { return static_cast<uint32_t>(x + 128); }
__device__ __forceinline__ uint32_t sort_key(uint8_t x) { return x; }
__device__ __forceinline__ uint32_t sort_key(int32_t x) { return static_cast<uint32_t>(x) ^ 0x80000000u; }
__device__ __forceinline__ uint64_t sort_key(int64_t x) {
  return static_cast<uint64_t>(x) ^ uint64_t { 1 } << 63;
}

template <class T>
using sort_key_t = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
template <class T>
inline constexpr int key_bits = 8 * sizeof(T);
// What a key is xored with.
template <class T>
constexpr sort_key_t<T> key_flip(bool descending) {
  using K = sort_key_t<T>;
  return descending ? static_cast<K>(~K(0)) >> (8 * sizeof(K) - key_bits<T>) : K(0);
}

// Calls f with the type values are compared as: bool is 0 or 1 in a byte.
template <class F>
void dispatch_sort(DType t, F&& f) {
  if (t == DType::boolean) return f.template operator()<uint8_t>();
  dispatch_all(t, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>) f.template operator()<T>();
  });
}

// Keys of a tensor and the numbers of their elements, to be sorted; fewer than 2^31.
template <class K>
class KeySort {
 public:
  KeySort(Encoder& e, int64_t n);
  K* keys() const { return keys_[at_]; }
  uint32_t* numbers() const { return numbers_[at_]; }
  // Stable, by the lowest `bits` bits.
  void run(int bits);
  // Then by rows of n elements, so that every row is sorted by itself.
  void by_rows(int64_t outer, int64_t n);

 private:
  Encoder& e_;
  int64_t count_;
  Workspace memory_;
  K* keys_[2];
  uint32_t* numbers_[2];
  int at_ = 0;
};

// Rows that fit into shared memory, and the best few of longer ones: see sort_small.cu.
inline constexpr int kSmallSort = 2048;
void sort_small(Encoder& e, DType dtype, const void* in, int64_t outer, int64_t n, int64_t k, bool descending,
                void* values, int64_t* indices);
void select_small(Encoder& e, DType dtype, const void* in, int64_t outer, int64_t n, int64_t k, bool descending,
                  void* values, int64_t* indices);

}  // namespace deft::cuda
