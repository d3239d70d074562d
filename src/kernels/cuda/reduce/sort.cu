// Sorting: which way, and what surrounds the sort of keys.
#include "kernels/cuda/device/read_back.h"
#include "kernels/cuda/reduce/scan.h"
#include "kernels/cuda/reduce/sort.cuh"

namespace deft::cuda {

namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    make_keys(const T* in, int64_t count, sort_key_t<T> flip, sort_key_t<T>* keys, uint32_t* numbers) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  keys[i] = sort_key(in[i]) ^ flip;
  numbers[i] = static_cast<uint32_t>(i);
}

// The first k of every row of n sorted elements.
template <class U>
__global__ void __launch_bounds__(kThreads)
    put_sorted(const U* in, const uint32_t* numbers, int64_t outer, int64_t n, int64_t k, U* values, int64_t* indices) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= outer * k) return;
  const int64_t row = i / k, from = numbers[row * n + i % k];
  values[i] = in[from];
  indices[i] = from - row * n;
}

template <class T>
void start_keys(Encoder& e, KeySort<sort_key_t<T>>& s, const void* in, int64_t count, bool descending) {
  e.launch(make_keys<T>, Encoder::blocks_for(count), kThreads, 0, static_cast<const T*>(in), count,
           key_flip<T>(descending), s.keys(), s.numbers());
  s.run(key_bits<T>);
}

void sort_large(Encoder& e, DType dtype, const char* in, int64_t outer, int64_t n, int64_t k, bool descending,
                char* values, int64_t* indices) {
  const auto size = static_cast<int64_t>(size_of(dtype));
  // Element numbers have 31 bits: more elements are sorted in several rounds of rows.
  const int64_t most = (kLongestSort - 1) / n;
  for (int64_t first = 0; first < outer; first += most) {
    const int64_t rows = outer - first < most ? outer - first : most;
    const char* from = in + first * n * size;
    dispatch_sort(dtype, [&]<class T>() {
      KeySort<sort_key_t<T>> s(e, rows * n);
      start_keys<T>(e, s, from, rows * n, descending);
      s.by_rows(rows, n);
      dispatch_bits(dtype, [&]<class U>() {
        e.launch(put_sorted<U>, Encoder::blocks_for(rows * k), kThreads, 0, reinterpret_cast<const U*>(from),
                 s.numbers(), rows, n, k, reinterpret_cast<U*>(values + first * k * size), indices + first * k);
      });
    });
  }
}

// ---- Unique.
template <class K>
__global__ void __launch_bounds__(kThreads) mark_fresh(const K* keys, int64_t n, bool has_nan, K nan, uint8_t* fresh) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) fresh[i] = i == 0 || keys[i] != keys[i - 1] || (has_nan && keys[i] == nan);
}

__global__ void __launch_bounds__(kThreads)
    place_elements(const uint8_t* fresh, const uint32_t* numbers, const int64_t* places, int64_t n, int64_t* inverse,
                   int64_t* starts, uint32_t* firsts) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  const int64_t place = places[i] - 1;
  inverse[numbers[i]] = place;
  if (!fresh[i]) return;
  starts[place] = i;
  firsts[place] = numbers[i];
}

template <class U>
__global__ void __launch_bounds__(kThreads) put_unique(const U* in, const int64_t* starts, const uint32_t* firsts,
                                                       int64_t n, int64_t count, U* values, int64_t* counts) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  values[i] = in[firsts[i]];
  counts[i] = (i + 1 < count ? starts[i + 1] : n) - starts[i];
}

}  // namespace

void sort(Encoder& e, DType dtype, const void* in, int64_t outer, int64_t n, int64_t k, bool descending, void* values,
          int64_t* indices) {
  if (outer == 0 || k == 0) return;
  if (n <= kSmallSort) return sort_small(e, dtype, in, outer, n, k, descending, values, indices);
  // A block for each row is enough where rows are many or short.
  const bool few_long = outer < 16 && n > 262144;
  if (k <= kSmallSort && k < n && !few_long)
    return select_small(e, dtype, in, outer, n, k, descending, values, indices);
  sort_large(e, dtype, static_cast<const char*>(in), outer, n, k, descending, static_cast<char*>(values), indices);
}

Unique::Unique(Encoder& e, DType dtype, const void* in, int64_t n, int64_t* inverse)
    : e_(e),
      dtype_(dtype),
      in_(in),
      n_(n),
      places_(e, sizeof(int64_t) * static_cast<size_t>(n)),
      starts_(e, sizeof(int64_t) * static_cast<size_t>(n)),
      firsts_(e, sizeof(uint32_t) * static_cast<size_t>(n)) {
  Workspace fresh(e, static_cast<size_t>(n));
  const unsigned blocks = Encoder::blocks_for(n);
  dispatch_sort(dtype, [&]<class T>() {
    using K = sort_key_t<T>;
    KeySort<K> s(e, n);
    start_keys<T>(e, s, in, n, false);
    e.launch(mark_fresh<K>, blocks, kThreads, 0, s.keys(), n, is_floating(dtype), key_flip<T>(true),
             fresh.as<uint8_t>());
    scan_bytes(e, fresh.as<uint8_t>(), places_.as<int64_t>(), n);
    e.launch(place_elements, blocks, kThreads, 0, fresh.as<uint8_t>(), s.numbers(), places_.as<int64_t>(), n, inverse,
             starts_.as<int64_t>(), firsts_.as<uint32_t>());
  });
}

int64_t Unique::count() { return read_back(e_, places_.as<int64_t>() + n_ - 1); }

void Unique::put(void* values, int64_t* counts, int64_t count) {
  dispatch_bits(dtype_, [&]<class U>() {
    e_.launch(put_unique<U>, Encoder::blocks_for(count), kThreads, 0, static_cast<const U*>(in_), starts_.as<int64_t>(),
              firsts_.as<uint32_t>(), n_, count, static_cast<U*>(values), counts);
  });
}

}  // namespace deft::cuda
