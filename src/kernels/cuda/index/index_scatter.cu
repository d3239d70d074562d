// Scatter in three ways: assignment marks the last entry of every destination first; sums of f32, f64 and integers are
// atomic; everything whose result would depend on the order is sorted by destination and combined in order.
#include <algorithm>

#include "kernels/cuda/elementwise/convert.cuh"
#include "kernels/cuda/index/index.h"
#include "kernels/cuda/index/index_math.cuh"
#include "kernels/cuda/index/index_report.h"
#include "kernels/cuda/index/index_sort.h"

namespace deft::cuda {
namespace {

// A slice is a 1-d slice along dim. An entry has a destination of its own: it is an element of the index or, for a
// list, one of its indices, which holds for all slices. Destinations have keys: their number among slices x dim_size,
// or for a list just the index.
struct Plan {
  Walk<4> walk;    // all elements: source, out (without its step along dim), index, and key (entry, for a list)
  Walk<2> slices;  // of a list: source and out
  int64_t total, slice_count, entries, keys;
  const int64_t* index;
  int64_t index_step, src_step, out_step, key_step, size, skip;
  int64_t position_step;  // a list's entry as a position in the user's index
  bool list;
  BadIndex bad;
};

struct Place {
  int64_t src, out, entry, key;  // key: -1 where the index is bad
};

__device__ __forceinline__ Place place_of(const Plan& p, int64_t i) {
  int64_t at[4];
  p.walk.at(i, at);
  const int64_t v = p.index[at[2]];
  const bool good = !outside(v, p.size);
  Place r;
  r.src = at[0];
  r.out = at[1] + v * p.out_step;
  r.entry = p.list ? at[3] : i;
  r.key = !good ? -1 : p.list ? v : at[3] + v * p.key_step;
  return r;
}

// The key of an entry, or -1.
__device__ __forceinline__ int64_t key_of(const Plan& p, int64_t entry, bool reporting) {
  int64_t v, base = 0;
  if (p.list) {
    v = p.index[entry * p.index_step];
  } else {
    int64_t at[4];
    p.walk.at(entry, at);
    v = p.index[at[2]];
    base = at[3];
  }
  if (outside(v, p.size)) {
    if (reporting) report(p.bad, v, p.size, p.list ? entry * p.position_step : entry);
    return -1;
  }
  return v == p.skip ? -1 : base + v * p.key_step;
}

// --- assignment ------------------------------------------------------------------------------------------------

template <class Number>
__global__ void clear_winners(Plan p, Number* last) {
  int64_t i = thread_number();
  if (i >= p.entries) return;
  int64_t key = key_of(p, i, false);
  if (key >= 0) last[key] = 0;
}
template <class Number>
__global__ void mark_winners(Plan p, Number* last) {
  int64_t i = thread_number();
  if (i >= p.entries) return;
  int64_t key = key_of(p, i, true);
  if (key >= 0) atomicMax(last + key, static_cast<Number>(i + 1));
}
template <class T, class Number>
__global__ void assign_kernel(Plan p, T* out, const T* src, const Number* last) {
  int64_t i = thread_number();
  if (i >= p.total) return;
  Place at = place_of(p, i);
  if (at.key >= 0 && last[at.key] == static_cast<Number>(at.entry + 1)) out[at.out] = src[at.src];
}
// No two elements have the same destination.
template <class T>
__global__ void assign_once(Plan p, T* out, const T* src) {
  int64_t i = thread_number();
  if (i >= p.total) return;
  Place at = place_of(p, i);
  if (at.key >= 0)
    out[at.out] = src[at.src];
  else
    key_of(p, at.entry, true);  // reports
}

template <class Number>
void assign(Encoder& e, const Plan& p, const Operand& out, const Operand& src) {
  Workspace last(e, static_cast<size_t>(p.keys + 1) * sizeof(Number));  // never empty
  const unsigned blocks = Encoder::blocks_for(p.entries);
  e.launch(&clear_winners<Number>, blocks, 256, 0, p, last.as<Number>());
  e.launch(&mark_winners<Number>, blocks, 256, 0, p, last.as<Number>());
  dispatch_bits(out.dtype, [&]<class T>() {
    e.launch(&assign_kernel<T, Number>, Encoder::blocks_for(p.total), 256, 0, p, static_cast<T*>(out.data),
             static_cast<const T*>(src.data), last.as<Number>());
  });
}

// --- atomic ----------------------------------------------------------------------------------------------------

template <class T>
__device__ __forceinline__ T combine(ScatterOp op, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
    switch (op) {
      case ScatterOp::add:
        return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
      case ScatterOp::mul:
        return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
      case ScatterOp::min:
        return a < b ? a : b;
      default:
        return a > b ? a : b;
    }
  } else {
    switch (op) {
      case ScatterOp::add:
        return a + b;
      case ScatterOp::mul:
        return a * b;
      case ScatterOp::min:
        return a < b || a != a || (a == b && signbit(a)) ? a : b;  // the order must not decide between zeros either
      default:
        return a > b || a != a || (a == b && !signbit(a)) ? a : b;
    }
  }
}
template <class T>
__device__ __forceinline__ T combine_elements(ScatterOp op, T a, T b) {
  if constexpr (is_half_v<T>)
    return convert<T>(combine<float>(op, to_float(a), to_float(b)));
  else
    return combine<T>(op, a, b);
}

template <class T, class Bits>
__device__ void combine_by_bits(ScatterOp op, T* p, T value) {
  Bits* word = reinterpret_cast<Bits*>(p);
  Bits old = *reinterpret_cast<volatile Bits*>(word), seen;
  do {
    seen = old;
    T now;
    memcpy(&now, &seen, sizeof(T));
    now = combine_elements(op, now, value);
    Bits next;
    memcpy(&next, &now, sizeof(T));
    if (next == seen) return;
    old = atomicCAS(word, seen, next);
  } while (old != seen);
}
// A byte as a part of the word it lies in.
template <class T>
__device__ void combine_byte(ScatterOp op, T* p, T value) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  unsigned* word = reinterpret_cast<unsigned*>(address & ~uintptr_t{3});
  const unsigned shift = static_cast<unsigned>(address & 3) * 8;
  unsigned old = *reinterpret_cast<volatile unsigned*>(word), seen;
  do {
    seen = old;
    const T now = combine(op, static_cast<T>(seen >> shift), value);
    const unsigned next = (seen & ~(0xffu << shift)) | (static_cast<unsigned>(static_cast<uint8_t>(now)) << shift);
    if (next == seen) return;
    old = atomicCAS(word, seen, next);
  } while (old != seen);
}

template <class T>
__device__ __forceinline__ void combine_atomic(ScatterOp op, T* p, T value) {
  if constexpr (std::is_same_v<T, bool>) {
    const bool decides = op == ScatterOp::add || op == ScatterOp::max;  // or: true; and: false
    if (value == decides) *p = value;
  } else if constexpr (sizeof(T) == 1) {
    combine_byte(op, p, value);
  } else if constexpr (sizeof(T) == 2) {
    combine_by_bits<T, unsigned short>(op, p, value);
  } else {
    if (op == ScatterOp::add) {
      if constexpr (std::is_same_v<T, int64_t>)
        atomicAdd(reinterpret_cast<unsigned long long*>(p), static_cast<unsigned long long>(value));
      else
        atomicAdd(p, value);
      return;
    }
    combine_by_bits<T, std::conditional_t<sizeof(T) == 4, unsigned, unsigned long long>>(op, p, value);
  }
}

template <class T>
__global__ void atomic_kernel(Plan p, ScatterOp op, T* out, const T* src) {
  int64_t i = thread_number();
  if (i >= p.total) return;
  Place at = place_of(p, i);
  if (at.key >= 0)
    combine_atomic(op, out + at.out, src[at.src]);
  else
    key_of(p, at.entry, true);  // reports
}

// --- in order --------------------------------------------------------------------------------------------------

// Runs of equal keys are cut where a multiple of kPiece lies inside, so that a long run is summed by many threads.
constexpr int64_t kPiece = 64;

__global__ void make_keys(Plan p, uint64_t* keys, int64_t* numbers) {
  int64_t i = thread_number();
  if (i >= p.entries) return;
  int64_t key = key_of(p, i, true);
  keys[i] = static_cast<uint64_t>(key < 0 ? p.keys : key);  // bad ones go last
  numbers[i] = i;
}

struct Runs {
  const uint64_t* keys;    // ascending
  const int64_t* numbers;  // the entries
  Divider slices;
};

// Combines the entries of one run from `begin` to its end or the next cut, whichever comes first.
template <class T>
__device__ accumulate_t<T> sum_piece(const Plan& p, const Runs& r, ScatterOp op, const T* src, int64_t slice_src,
                                     int64_t begin, int64_t& end) {
  using Acc = accumulate_t<T>;
  const uint64_t key = r.keys[begin];
  const int64_t stop = min(p.entries, (begin / kPiece + 1) * kPiece);
  end = begin + 1;
  while (end < stop && r.keys[end] == key) ++end;
  auto value = [&](int64_t j) {
    const int64_t entry = r.numbers[j];
    return convert<Acc>(src[p.list ? slice_src + entry * p.src_step : place_of(p, entry).src]);
  };
  Acc sum = value(begin);
#pragma unroll 4
  for (int64_t j = begin + 1; j < end; ++j) sum = combine<Acc>(op, sum, value(j));
  return sum;
}

// parts[c * slices + slice]: the partial sum of the run that continues at entry c * kPiece.
template <class T>
__global__ void sum_parts(Plan p, Runs r, ScatterOp op, const T* src, int64_t pieces, accumulate_t<T>* parts) {
  int64_t i = thread_number(), slice;
  if (i >= pieces * p.slice_count) return;
  const int64_t begin = r.slices.split(i, slice) * kPiece;
  if (begin == 0 || r.keys[begin] != r.keys[begin - 1] || r.keys[begin] >= static_cast<uint64_t>(p.keys)) return;
  int64_t at[2] = {0, 0}, end;
  if (p.list) p.slices.at(slice, at);
  parts[i] = sum_piece(p, r, op, src, at[0], begin, end);
}

template <class T>
__global__ void sum_runs(Plan p, Runs r, ScatterOp op, T* out, const T* src, const accumulate_t<T>* parts) {
  using Acc = accumulate_t<T>;
  int64_t i = thread_number(), slice;
  if (i >= p.entries * p.slice_count) return;
  const int64_t begin = r.slices.split(i, slice);
  const uint64_t key = r.keys[begin];
  if (key >= static_cast<uint64_t>(p.keys) || (begin > 0 && r.keys[begin - 1] == key)) return;
  int64_t at[2] = {0, 0}, end;
  if (p.list) p.slices.at(slice, at);
  Acc sum = sum_piece(p, r, op, src, at[0], begin, end);
  for (; end % kPiece == 0 && end < p.entries && r.keys[end] == key; end += kPiece)
    sum = combine<Acc>(op, sum, parts[end / kPiece * p.slice_count + slice]);
  const int64_t to = p.list ? at[1] + static_cast<int64_t>(key) * p.out_step : place_of(p, r.numbers[begin]).out;
  out[to] = convert<T>(combine<Acc>(op, convert<Acc>(out[to]), sum));
}

int bits_for(int64_t largest) {
  int bits = 1;
  while (bits < 63 && largest >> bits) ++bits;
  return bits;
}

void combine_in_order(Encoder& e, const Plan& p, ScatterOp op, DType dtype, void* out, const void* src) {
  const auto bytes = static_cast<size_t>(p.entries) * 8;
  Workspace keys(e, 2 * bytes), numbers(e, 2 * bytes);
  uint64_t* sorted_keys = keys.as<uint64_t>() + p.entries;
  int64_t* sorted_numbers = numbers.as<int64_t>() + p.entries;
  e.launch(&make_keys, Encoder::blocks_for(p.entries), 256, 0, p, keys.as<uint64_t>(), numbers.as<int64_t>());
  sort_pairs(e, p.entries, bits_for(p.keys), keys.as<uint64_t>(), sorted_keys, numbers.as<int64_t>(), sorted_numbers);
  const Runs runs{sorted_keys, sorted_numbers, Divider(p.slice_count, p.entries * p.slice_count)};
  const int64_t pieces = (p.entries + kPiece - 1) / kPiece;
  dispatch_floating(dtype, [&]<class T>() {
    using Acc = accumulate_t<T>;
    Workspace parts(e, static_cast<size_t>(pieces * p.slice_count) * sizeof(Acc));
    if (pieces > 1)
      e.launch(&sum_parts<T>, Encoder::blocks_for(pieces * p.slice_count), 256, 0, p, runs, op,
               static_cast<const T*>(src), pieces, parts.as<Acc>());
    e.launch(&sum_runs<T>, Encoder::blocks_for(p.entries * p.slice_count), 256, 0, p, runs, op, static_cast<T*>(out),
             static_cast<const T*>(src), parts.as<Acc>());
  });
}

// --- the plan --------------------------------------------------------------------------------------------------

// True if the index is the same for all slices.
bool is_list(const IndexSpace& s, const Operand& index) {
  for (int d = 0; d < s.ndim; ++d)
    if (d != s.dim && s.sizes[d] != 1 && index.strides[d] != 0) return false;
  return true;
}

Plan make_plan(const Encoder& e, const IndexSpace& s, const Operand& out, const Operand& index, const Operand& src) {
  const bool list = is_list(s, index);
  int64_t out_base[kMaxDims], fourth[kMaxDims], slice_sizes[kMaxDims], slices = 1, inner = 1, next = 1;
  for (int d = s.ndim - 1; d >= 0; --d) {
    out_base[d] = d == s.dim ? 0 : out.strides[d];
    slice_sizes[d] = d == s.dim ? 1 : s.sizes[d];
    fourth[d] = list ? d == s.dim : d == s.dim ? 0 : next;  // slices numbered from the back, dim left out
    next *= slice_sizes[d];
    if (d > s.dim) inner *= s.sizes[d];
  }
  slices = next;
  Iteration all(s.ndim, s.sizes), of_slices(s.ndim, slice_sizes);
  all.add(src.strides);
  all.add(out_base);
  all.add(index.strides);
  all.add(fourth);
  all.normalize(true);
  of_slices.add(src.strides);
  of_slices.add(out_base);
  of_slices.normalize(true);
  Plan p{Walk<4>(all), Walk<2>(of_slices)};
  p.total = all.total;
  p.list = list;
  p.slice_count = list ? slices : 1;
  p.entries = list ? s.sizes[s.dim] : all.total;
  p.keys = list ? s.dim_size : slices * s.dim_size;
  p.index = static_cast<const int64_t*>(index.data);
  p.index_step = index.strides[s.dim];
  p.src_step = src.strides[s.dim];
  p.out_step = out.strides[s.dim];
  p.key_step = list ? 1 : slices;
  p.size = s.dim_size;
  p.skip = -1;
  p.position_step = s.list ? 1 : inner;
  p.bad = bad_index(e, s);
  return p;
}

}  // namespace

void scatter(Encoder& e, ScatterOp op, const IndexSpace& s, const Operand& out, const Operand& index,
             const Operand& src, bool deterministic) {
  if (s.numel() == 0) {
    if (s.list && !s.checked)
      check_indices(e, static_cast<const int64_t*>(index.data), index.strides[s.dim], s.sizes[s.dim], s.dim_size);
    return;
  }
  const Plan p = make_plan(e, s, out, index, src);
  if (op == ScatterOp::assign) {
    if (s.sizes[s.dim] == 1) {
      dispatch_bits(out.dtype, [&]<class T>() {
        e.launch(&assign_once<T>, Encoder::blocks_for(p.total), 256, 0, p, static_cast<T*>(out.data),
                 static_cast<const T*>(src.data));
      });
    } else if (p.entries < INT32_MAX) {
      assign<unsigned>(e, p, out, src);
    } else {
      assign<unsigned long long>(e, p, out, src);
    }
    return;
  }
  const bool half_sum = op == ScatterOp::add && size_of(out.dtype) == 2;
  if (is_floating(out.dtype) && (deterministic || half_sum || op == ScatterOp::mul))
    return combine_in_order(e, p, op, out.dtype, out.data, src.data);
  dispatch_all(out.dtype, [&]<class T>() {
    e.launch(&atomic_kernel<T>, Encoder::blocks_for(p.total), 256, 0, p, op, static_cast<T*>(out.data),
             static_cast<const T*>(src.data));
  });
}

void embedding_backward(Encoder& e, DType dtype, const void* grad, int64_t count, int64_t width, const int64_t* index,
                        int64_t skip, void* out, int64_t rows) {
  if (rows > 0 && width > 0) e.zero(out, static_cast<size_t>(rows * width) * size_of(dtype));
  if (rows == 0 || width == 0) return check_indices(e, index, 1, count, rows);
  if (count == 0) return;
  const IndexSpace s{2, {count, width}, 0, rows, true};
  const Operand to{out, dtype, {width, 1}}, from{const_cast<void*>(grad), dtype, {width, 1}};
  const Operand list{const_cast<int64_t*>(index), DType::i64, {1, 0}};
  Plan p = make_plan(e, s, to, list, from);
  p.skip = skip;
  combine_in_order(e, p, ScatterOp::add, dtype, out, grad);
}

}  // namespace deft::cuda
