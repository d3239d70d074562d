// Between the parts of the driver: reduce.cpp, reduce_outer.cpp and reduce_partial.cpp.
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/copy/strided.h"
#include "kernels/cpu/reduce/reduce_internal.h"

namespace deft::cpu {

// A few outputs over much data: the data is cut into pieces of this many elements, whatever the number of threads.
inline constexpr int64_t kPiece = 65536;
inline constexpr int64_t kFewUnits = 64;

struct Reduction {
  const ReduceCall& call;
  DType acc;
  DType storage;  // what the kernels read: the type of the input, or acc
  ReduceKernels kernels;
  Iteration kept;     // operand 0: input, 1: output
  Iteration reduced;  // operand 0: input
  explicit Reduction(const ReduceCall& c) : call(c) {}
  int64_t count() const { return reduced.total; }
  bool elements_in_place() const {
    return storage == call.in.dtype && (kept.inner() == 1 || kept.inner_stride(0) == 1);
  }
  const char* in_at(int64_t offset) const {
    return static_cast<const char*>(call.in.data) + offset * static_cast<int64_t>(size_of(call.in.dtype));
  }
};

// ---- Partials (reduce_partial.cpp).
enum class Fold { add, multiply, max, min };
Fold fold_of(const ReduceCall& c);
int64_t wrapping(Fold fold, int64_t a, int64_t b);
void combine_fold(Fold fold, Partial& left, const Partial& right);
// The partials of two neighbouring ranges of n_left and n_right elements, for `width` outputs.
void combine(const Reduction& r, Partial* left, const Partial* right, int64_t width, int64_t n_left, int64_t n_right);
// Partials of consecutive pieces, `width` apart.
void combine_pieces(const Reduction& r, Partial* p, int64_t width, int64_t pieces, int64_t piece, int64_t n);
// From a partial to the element of the output.
double real_result(const Reduction& r, const Partial& p);
void finish(const Reduction& r, const Partial& p, int64_t out_offset);

// ---- Gathering input elements as the kernels read them.
void gather_raw(const Reduction& r, const char* src, int64_t stride, char* dst, int64_t n);
// n elements of one run: in place if they are stored as wanted, else in `buffer` (`raw` is scratch of the same size).
const void* fetch_run(const Reduction& r, int64_t offset, int64_t stride, int64_t n, char* buffer, char* raw);

// The innermost dim is kept: strips of columns, folded row by row.
void reduce_outer(const Reduction& r);

// Results of a fold, of type T (the accumulation type, or f64 for f32), to outputs `stride` apart.
template <class T>
void finish_folds(const Reduction& r, const T* values, int64_t count, int64_t out_offset, int64_t stride) {
  constexpr int64_t kAtOnce = 256;
  const DType to = r.call.out.dtype;
  const bool plain = std::is_same_v<T, int64_t> || (r.call.op != ReduceOp::mean && r.call.op != ReduceOp::norm);
  alignas(64) char raw[kAtOnce * 8];
  double reals[kAtOnce];
  for (int64_t begin = 0; begin < count; begin += kAtOnce) {
    const int64_t n = std::min(kAtOnce, count - begin);
    const void* from = values + begin;
    if (!plain) {
      Partial p;
      for (int64_t k = 0; k < n; ++k) p.a = static_cast<double>(values[begin + k]), reals[k] = real_result(r, p);
      from = reals;
    }
    const DType type = plain ? dtype_of<T> : DType::f64;
    char* out = static_cast<char*>(r.call.out.data) + (out_offset + begin * stride) * static_cast<int64_t>(size_of(to));
    if (stride == 1) {
      convert(from, type, out, to, static_cast<size_t>(n));
      continue;
    }
    convert(from, type, raw, to, static_cast<size_t>(n));
    dispatch_bits(
        to, [&]<class U>() { copy_bits(reinterpret_cast<const U*>(raw), 1, reinterpret_cast<U*>(out), stride, n); });
  }
}

// Totals of two neighbouring ranges, column by column.
template <class T, class U>
void combine_columns(Fold fold, T* left, const U* right, int64_t width) {
  if constexpr (std::is_same_v<T, int64_t>) {
    if (fold == Fold::add || fold == Fold::multiply) {
      for (int64_t c = 0; c < width; ++c) left[c] = wrapping(fold, left[c], right[c]);
      return;
    }
  }
  switch (fold) {
    case Fold::add:
      for (int64_t c = 0; c < width; ++c) left[c] += static_cast<T>(right[c]);
      break;
    case Fold::multiply:
      for (int64_t c = 0; c < width; ++c) left[c] *= static_cast<T>(right[c]);
      break;
    case Fold::max:
      for (int64_t c = 0; c < width; ++c) left[c] = left[c] > right[c] || left[c] != left[c] ? left[c] : T(right[c]);
      break;
    case Fold::min:
      for (int64_t c = 0; c < width; ++c) left[c] = left[c] < right[c] || left[c] != left[c] ? left[c] : T(right[c]);
      break;
  }
}

// Where to cut n > step things in two: the left part is a power of two times `step`.
inline int64_t left_part(int64_t n, int64_t step) {
  int64_t left = step;
  while (left * 2 < n) left *= 2;
  return left;
}

// Calls f with a value of the accumulation type and one of the type in which results of blocks are combined.
template <class F>
void dispatch_acc(const Reduction& r, F f) {
  if (r.acc == DType::f32) return f(float(), double());
  if (r.acc == DType::f64) return f(double(), double());
  f(int64_t(), int64_t());
}

}  // namespace deft::cpu
