#include "kernels/cpu/reduce/sort.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "kernels/cpu/workspace.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace {

constexpr int64_t kStackPairs = 256;
constexpr int64_t kRadixFrom = 1024;  // below this comparing beats counting
constexpr int64_t kGrain = 4096;      // values per thread

// Keys order like the values: unsigned, NaN last, one zero. Without a branch on the sign, which is unpredictable.
inline uint32_t sort_key(float x) {
  if (x != x) return std::numeric_limits<uint32_t>::max();
  const int32_t u = std::bit_cast<int32_t>(x + 0.0f);
  return static_cast<uint32_t>(u ^ (u >> 31 | std::numeric_limits<int32_t>::min()));
}
inline uint64_t sort_key(double x) {
  if (x != x) return std::numeric_limits<uint64_t>::max();
  const int64_t u = std::bit_cast<int64_t>(x + 0.0);
  return static_cast<uint64_t>(u ^ (u >> 63 | std::numeric_limits<int64_t>::min()));
}
inline uint32_t sort_key(BFloat16 x) { return sort_key(static_cast<float>(x)); }
inline uint32_t sort_key(Half x) { return sort_key(static_cast<float>(x)); }
inline uint32_t sort_key(int8_t x) { return static_cast<uint32_t>(x + 128); }
inline uint32_t sort_key(uint8_t x) { return x; }
inline uint32_t sort_key(bool x) { return x; }
inline uint32_t sort_key(int32_t x) { return static_cast<uint32_t>(x) ^ 0x80000000u; }
inline uint64_t sort_key(int64_t x) {
  return static_cast<uint64_t>(x) ^ uint64_t { 1 } << 63;
}

template <class T>
using key_t = decltype(sort_key(T()));

template <class K>
struct Pair {
  K key;
  K index;  // as wide as the key: a row of 2^32 values does not fit a 32-bit sort
  bool operator<(const Pair& o) const { return key != o.key ? key < o.key : index < o.index; }
};

template <class T>
void make_pairs(const T* in, int64_t n, bool descending, Pair<key_t<T>>* out) {
  using K = key_t<T>;
  const K flip = descending ? ~K(0) : K(0);
  for (int64_t i = 0; i < n; ++i) out[i] = {sort_key(in[i]) ^ flip, static_cast<K>(i)};
}

// Counting sort by bytes, lowest first; bytes that are equal everywhere are skipped. Returns where the result lies.
template <class K>
Pair<K>* radix_sort(Pair<K>* a, Pair<K>* b, int64_t n) {
  constexpr int kBytes = sizeof(K);
  int64_t counts[kBytes][256] = {};
  for (int64_t i = 0; i < n; ++i) {
    for (int d = 0; d < kBytes; ++d) ++counts[d][a[i].key >> (8 * d) & 255];
  }
  for (int d = 0; d < kBytes; ++d) {
    int64_t* count = counts[d];
    if (count[a[0].key >> (8 * d) & 255] == n) continue;
    int64_t at = 0;
    for (int v = 0; v < 256; ++v) at += std::exchange(count[v], at);
    for (int64_t i = 0; i < n; ++i) b[count[a[i].key >> (8 * d) & 255]++] = a[i];
    std::swap(a, b);
  }
  return a;
}

// Scratch for rows of n pairs: on the stack when short, two halves for the radix sort when long.
template <class K>
class PairSpace {
 public:
  explicit PairSpace(int64_t n) : n_(n), heap_(n <= kStackPairs ? 0 : n >= kRadixFrom ? 2 * n : n) {}
  Pair<K>* data() { return n_ <= kStackPairs ? stack_ : heap_.data(); }
  Pair<K>* sorted() {
    if (n_ >= kRadixFrom) return radix_sort(data(), data() + n_, n_);
    std::sort(data(), data() + n_);
    return data();
  }

 private:
  int64_t n_;
  Workspace<Pair<K>> heap_;
  Pair<K> stack_[kStackPairs];
};

template <class K>
void check_length(const char* op, int64_t n) {
  DEFT_CHECK(sizeof(K) == 8 || n <= std::numeric_limits<uint32_t>::max(), UnsupportedError,
             "{}: found a row of {} values, expected fewer than 2^32 for this dtype; sort it in parts", op, n);
}

template <class T>
void put_row(const T* in, const Pair<key_t<T>>* pairs, int64_t n, T* values, int64_t* indices) {
  if (values) {
    for (int64_t i = 0; i < n; ++i) values[i] = in[pairs[i].index];
  }
  if (indices) {
    for (int64_t i = 0; i < n; ++i) indices[i] = static_cast<int64_t>(pairs[i].index);
  }
}

template <class T>
void sort_rows(const T* in, int64_t outer, int64_t n, bool descending, T* values, int64_t* indices) {
  check_length<key_t<T>>("sort", n);
  parallel_for(0, outer, std::max<int64_t>(1, kGrain / n), [&](int64_t begin, int64_t end) {
    PairSpace<key_t<T>> space(n);
    for (int64_t r = begin; r < end; ++r) {
      make_pairs(in + r * n, n, descending, space.data());
      put_row(in + r * n, space.sorted(), n, values ? values + r * n : nullptr, indices ? indices + r * n : nullptr);
    }
  });
}

// `pair` in the place of the largest one of a heap.
template <class K>
void replace_largest(Pair<K>* heap, int64_t count, Pair<K> pair) {
  int64_t at = 0;
  for (int64_t child = 1; child < count; child = 2 * at + 1) {
    if (child + 1 < count && heap[child] < heap[child + 1]) ++child;
    if (!(pair < heap[child])) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = pair;
}

// The k < n first pairs in order: a heap of the best so far, whose worst every key is held against.
template <class T>
void first_pairs(const T* in, int64_t n, int64_t k, bool descending, Pair<key_t<T>>* heap) {
  using K = key_t<T>;
  const K flip = descending ? ~K(0) : K(0);
  if (k == 0) return;
  make_pairs(in, k, descending, heap);
  std::make_heap(heap, heap + k);
  for (int64_t i = k; i < n; ++i) {
    const K key = sort_key(in[i]) ^ flip;
    if (key >= heap[0].key) continue;  // of equal keys the first counts
    replace_largest(heap, k, {key, static_cast<K>(i)});
  }
  std::sort_heap(heap, heap + k);
}

template <class T>
void topk_rows(const T* in, int64_t outer, int64_t n, int64_t k, bool largest, T* values, int64_t* indices) {
  check_length<key_t<T>>("topk", n);
  parallel_for(0, outer, std::max<int64_t>(1, kGrain / n), [&](int64_t begin, int64_t end) {
    PairSpace<key_t<T>> space(n);
    for (int64_t r = begin; r < end; ++r) {
      Pair<key_t<T>>* pairs = space.data();
      if (k <= n / 16) {
        first_pairs(in + r * n, n, k, largest, pairs);
      } else {
        make_pairs(in + r * n, n, largest, pairs);
        std::nth_element(pairs, pairs + k - 1, pairs + n);
        std::sort(pairs, pairs + k);
      }
      put_row(in + r * n, pairs, k, values ? values + r * k : nullptr, indices ? indices + r * k : nullptr);
    }
  });
}

template <class T>
int64_t unique_values(const T* in, int64_t n, T* values, int64_t* inverse, int64_t* counts) {
  check_length<key_t<T>>("unique", n);
  PairSpace<key_t<T>> space(n);
  make_pairs(in, n, false, space.data());
  const Pair<key_t<T>>* pairs = space.sorted();
  int64_t found = 0;
  for (int64_t i = 0; i < n; ++i) {
    const T value = in[pairs[i].index];
    const bool fresh = i == 0 || pairs[i].key != pairs[i - 1].key || value != value;
    if (fresh) {
      if (counts) counts[found] = 0;
      values[found++] = value;
    }
    if (counts) ++counts[found - 1];
    if (inverse) inverse[pairs[i].index] = found - 1;
  }
  return found;
}

}  // namespace

void sort(DType dtype, const void* in, int64_t outer, int64_t n, bool descending, void* values, int64_t* indices) {
  if (outer <= 0 || n <= 0) return;
  dispatch_all(dtype, [&]<class T>() {
    sort_rows(static_cast<const T*>(in), outer, n, descending, static_cast<T*>(values), indices);
  });
}

void topk(DType dtype, const void* in, int64_t outer, int64_t n, int64_t k, bool largest, void* values,
          int64_t* indices) {
  DEFT_CHECK(k >= 0 && k <= n, ValueError, "topk: found k = {}, expected 0 <= k <= {}, the length of the dim", k, n);
  if (outer <= 0 || k == 0) return;
  dispatch_all(dtype, [&]<class T>() {
    topk_rows(static_cast<const T*>(in), outer, n, k, largest, static_cast<T*>(values), indices);
  });
}

int64_t unique(DType dtype, const void* in, int64_t n, void* values, int64_t* inverse, int64_t* counts) {
  if (n <= 0) return 0;
  return dispatch_all(dtype, [&]<class T>() {
    return unique_values(static_cast<const T*>(in), n, static_cast<T*>(values), inverse, counts);
  });
}

}  // namespace deft::cpu
