#include "kernels/cpu/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/reduce_internal.h"
#include "kernels/cpu/strided.h"
#include "kernels/cpu/workspace.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace {

// A few outputs over much data: the data is cut into pieces of this many elements, whatever the number of threads.
constexpr int64_t kPiece = 65536;
constexpr int64_t kFewUnits = 64;
constexpr int64_t kLongestChain = 128 * kReduceRows;  // rows whose blocks are added one after the other
constexpr int64_t kTileColumns = 256;                 // of ops that are no folds, and where elements are gathered

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

DType accumulator(const ReduceCall& c) {
  if (c.in.dtype == DType::f64) return DType::f64;
  if (is_floating(c.in.dtype)) return DType::f32;
  const bool real =
      c.op == ReduceOp::mean || c.op == ReduceOp::var || c.op == ReduceOp::logsumexp || c.op == ReduceOp::norm;
  return real ? DType::f64 : DType::i64;
}

// ---- Partials of neighbouring ranges are combined pairwise.
bool better(ReduceOp op, double a, double b) {
  if (std::isnan(b)) return false;
  return std::isnan(a) || (op == ReduceOp::argmax ? a > b : a < b);
}

void combine_arg(ReduceOp op, DType acc, Partial& left, const Partial& right) {
  const bool right_wins =
      acc == DType::i64 ? (op == ReduceOp::argmax ? right.j > left.j : right.j < left.j) : better(op, right.a, left.a);
  if (right_wins) left = right;
}
void combine_var(Partial& left, const Partial& right, double n_left, double n_right) {
  const double n = n_left + n_right, delta = right.a - left.a;
  left.a += delta * (n_right / n);
  left.b += right.b + delta * delta * (n_left * (n_right / n));
}
void combine_logsumexp(Partial& left, const Partial& right) {
  if (std::isnan(left.a) || std::isnan(right.a)) {
    left.a = std::numeric_limits<double>::quiet_NaN();
  } else if (left.a >= right.a) {
    if (std::isfinite(left.a)) left.b += right.b * std::exp(right.a - left.a);
  } else {
    left.b = std::isfinite(right.a) ? right.b + left.b * std::exp(left.a - right.a) : right.b;
    left.a = right.a;
  }
}

enum class Fold { add, multiply, max, min };
Fold fold_of(const ReduceCall& c) {
  switch (c.op) {
    case ReduceOp::prod:
      return Fold::multiply;
    case ReduceOp::max:
    case ReduceOp::any:
      return Fold::max;
    case ReduceOp::min:
    case ReduceOp::all:
      return Fold::min;
    case ReduceOp::norm:
      return !std::isinf(c.param) ? Fold::add : c.param > 0 ? Fold::max : Fold::min;
    default:
      return Fold::add;
  }
}
int64_t wrapping(Fold fold, int64_t a, int64_t b) {
  auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  return static_cast<int64_t>(fold == Fold::add ? x + y : x * y);
}
void combine_fold(Fold fold, Partial& left, const Partial& right) {
  switch (fold) {
    case Fold::add:
      left.a += right.a;
      break;
    case Fold::multiply:
      left.a *= right.a;
      break;
    case Fold::max:
      left.a = (left.a > right.a || left.a != left.a) ? left.a : right.a;
      break;
    case Fold::min:
      left.a = (left.a < right.a || left.a != left.a) ? left.a : right.a;
      break;
  }
  switch (fold) {
    case Fold::add:
    case Fold::multiply:
      left.i = wrapping(fold, left.i, right.i);
      break;
    case Fold::max:
      left.i = std::max(left.i, right.i);
      break;
    case Fold::min:
      left.i = std::min(left.i, right.i);
      break;
  }
}

void combine(const Reduction& r, Partial* left, const Partial* right, int64_t width, int64_t n_left, int64_t n_right) {
  const Fold fold = fold_of(r.call);
  for (int64_t c = 0; c < width; ++c) {
    switch (r.call.op) {
      case ReduceOp::argmax:
      case ReduceOp::argmin:
        combine_arg(r.call.op, r.acc, left[c], right[c]);
        break;
      case ReduceOp::var:
        combine_var(left[c], right[c], static_cast<double>(n_left), static_cast<double>(n_right));
        break;
      case ReduceOp::logsumexp:
        combine_logsumexp(left[c], right[c]);
        break;
      default:
        combine_fold(fold, left[c], right[c]);
    }
  }
}

// ---- From a partial to the element of the output.
double real_result(const Reduction& r, const Partial& p) {
  const double n = static_cast<double>(r.count());
  switch (r.call.op) {
    case ReduceOp::mean:
      return p.a / n;
    case ReduceOp::var:
      return p.b / std::max(0.0, n - r.call.param);
    case ReduceOp::logsumexp:
      return p.a + (std::isfinite(p.a) ? std::log(p.b) : 0.0);
    case ReduceOp::norm:
      if (r.call.param == 2) return std::sqrt(p.a);
      if (r.call.param == 0 || r.call.param == 1 || std::isinf(r.call.param)) return p.a;
      return std::pow(p.a, 1 / r.call.param);
    default:
      return p.a;
  }
}

void finish(const Reduction& r, const Partial& p, int64_t out_offset) {
  char* out = static_cast<char*>(r.call.out.data) + out_offset * static_cast<int64_t>(size_of(r.call.out.dtype));
  if (r.acc == DType::i64 || r.call.op == ReduceOp::argmax || r.call.op == ReduceOp::argmin) {
    convert(&p.i, DType::i64, out, r.call.out.dtype, 1);
  } else {
    const double v = real_result(r, p);
    convert(&v, DType::f64, out, r.call.out.dtype, 1);
  }
}

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

Partial identity(const Reduction& r) {
  Partial p;
  p.a = r.call.op == ReduceOp::logsumexp ? -std::numeric_limits<double>::infinity() : r.kernels.identity;
  p.i = r.kernels.int_identity;
  return p;
}

// ---- Gathering input elements as the kernels read them.
void gather_raw(const Reduction& r, const char* src, int64_t stride, char* dst, int64_t n) {
  dispatch_bits(r.call.in.dtype, [&]<class T>() {
    copy_bits(reinterpret_cast<const T*>(src), stride, reinterpret_cast<T*>(dst), 1, n);
  });
}

// n elements of one run: in place if they are stored as wanted, else in `buffer` (`raw` is scratch of the same size).
const void* fetch_run(const Reduction& r, int64_t offset, int64_t stride, int64_t n, char* buffer, char* raw) {
  const char* src = r.in_at(offset);
  const DType from = r.call.in.dtype;
  if (stride == 1) {
    if (from == r.storage) return src;
    convert(src, from, buffer, r.storage, static_cast<size_t>(n));
  } else if (from == r.storage) {
    gather_raw(r, src, stride, buffer, n);
  } else {
    gather_raw(r, src, stride, raw, n);
    convert(raw, from, buffer, r.storage, static_cast<size_t>(n));
  }
  return buffer;
}

const void* fetch_block(const Reduction& r, int64_t base, int64_t begin, int64_t n, char* buffer, char* raw) {
  Walker at(r.reduced, begin);
  if (at.left_in_run() >= n) return fetch_run(r, base + at.offset(0), r.reduced.inner_stride(0), n, buffer, raw);
  const int64_t size = static_cast<int64_t>(size_of(r.call.in.dtype));
  for (int64_t done = 0; done < n;) {
    const int64_t m = std::min(n - done, at.left_in_run());
    gather_raw(r, r.in_at(base + at.offset(0)), r.reduced.inner_stride(0), raw + done * size, m);
    at.advance(m);
    done += m;
  }
  if (r.call.in.dtype == r.storage) return raw;
  convert(raw, r.call.in.dtype, buffer, r.storage, static_cast<size_t>(n));
  return buffer;
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
int64_t left_part(int64_t n, int64_t step) {
  int64_t left = step;
  while (left * 2 < n) left *= 2;
  return left;
}

// ---- The innermost dim is reduced: one output at a time.
Partial reduce_block(const Reduction& r, int64_t base, int64_t begin, int64_t n) {
  alignas(64) char buffer[kReduceBlock * 8], raw[kReduceBlock * 8];
  Partial p;
  r.kernels.block(fetch_block(r, base, begin, n, buffer, raw), n, begin, r.call.param, &p);
  return p;
}
// Calls f with a value of the accumulation type and one of the type in which results of blocks are combined.
template <class F>
void dispatch_acc(const Reduction& r, F f) {
  if (r.acc == DType::f32) return f(float(), double());
  if (r.acc == DType::f64) return f(double(), double());
  f(int64_t(), int64_t());
}

// A fold over long contiguous runs: many blocks per call of the kernel.
template <class T, class Total>
Total fold_run(const Reduction& r, const char* x, int64_t n) {
  constexpr int64_t kBlocks = 64;
  const int64_t block_bytes = kReduceBlock * static_cast<int64_t>(size_of(r.storage));
  T blocks[kBlocks + 1];
  Total total{};
  for (int64_t done = 0; done < n;) {
    const int64_t whole = std::min(kBlocks, (n - done) / kReduceBlock), rest = (n - done) % kReduceBlock;
    int64_t m = whole;
    if (whole) r.kernels.lines(x, kReduceBlock, whole, kReduceBlock, r.call.param, blocks);
    if (whole < kBlocks && rest) r.kernels.lines(x + whole * block_bytes, 0, 1, rest, r.call.param, blocks + m++);
    Total part[kBlocks + 1];
    std::copy_n(blocks, m, part);
    for (; m > 1; m -= m / 2) combine_columns(fold_of(r.call), part, part + (m - m / 2), m / 2);
    if (done == 0) {
      total = part[0];
    } else {
      combine_columns(fold_of(r.call), &total, part, 1);
    }
    x += whole * block_bytes;
    done += whole < kBlocks ? n - done : whole * kReduceBlock;
  }
  return total;
}
Partial fold_elements(const Reduction& r, int64_t base, int64_t begin, int64_t end) {
  Partial p;
  Walker at(r.reduced, begin);
  for (int64_t i = begin; i < end;) {
    const int64_t m = std::min(end - i, at.left_in_run());
    Partial q;
    dispatch_acc(r, [&]<class T, class Total>(T, Total) {
      const Total t = fold_run<T, Total>(r, r.in_at(base + at.offset(0)), m);
      if constexpr (std::is_same_v<Total, int64_t>) {
        q.i = t;
      } else {
        q.a = t;
      }
    });
    if (i == begin) {
      p = q;
    } else {
      combine_fold(fold_of(r.call), p, q);
    }
    at.advance(m);
    i += m;
  }
  return p;
}

Partial reduce_elements(const Reduction& r, int64_t base, int64_t begin, int64_t end) {
  const int64_t n = end - begin;
  if (r.kernels.lines && r.storage == r.call.in.dtype && r.reduced.inner_stride(0) == 1 && r.reduced.inner() >= 256) {
    return fold_elements(r, base, begin, end);
  }
  if (n <= kReduceBlock) return reduce_block(r, base, begin, n);
  const int64_t left = left_part(n, kReduceBlock);
  Partial p = reduce_elements(r, base, begin, begin + left);
  const Partial q = reduce_elements(r, base, begin + left, end);
  combine(r, &p, &q, 1, left, n - left);
  return p;
}

// Partials of consecutive pieces, `width` apart.
void combine_pieces(const Reduction& r, Partial* p, int64_t width, int64_t pieces, int64_t piece, int64_t n) {
  for (int64_t step = 1; step < pieces; step *= 2) {
    for (int64_t k = 0; k + step < pieces; k += 2 * step) {
      const int64_t middle = (k + step) * piece, end = std::min(n, (k + 2 * step) * piece);
      combine(r, p + k * width, p + (k + step) * width, width, step * piece, end - middle);
    }
  }
}

// Folds over one contiguous run each: many outputs per call.
template <class T>
void reduce_lines(const Reduction& r) {
  constexpr int64_t kAtOnce = 256;
  const int64_t n = r.count(), stride = r.kept.inner_stride(0);
  parallel_for(0, r.kept.total, std::max<int64_t>(1, kElementGrain / n), [&](int64_t begin, int64_t end) {
    T results[kAtOnce];
    Walker at(r.kept, begin);
    for (int64_t left = end - begin; left > 0;) {
      const int64_t m = std::min({left, kAtOnce, at.left_in_run()});
      r.kernels.lines(r.in_at(at.offset(0)), stride, m, n, r.call.param, results);
      finish_folds(r, results, m, at.offset(1), r.kept.inner_stride(1));
      at.advance(m);
      left -= m;
    }
  });
}

void reduce_inner(const Reduction& r) {
  const int64_t n = r.count(), outputs = r.kept.total;
  if (outputs > 1 && r.kernels.lines && n <= kReduceBlock && r.reduced.ndim == 1 &&
      (n == 1 || r.reduced.inner_stride(0) == 1) && r.storage == r.call.in.dtype) {
    return dispatch_acc(r, [&]<class T>(T, auto) { reduce_lines<T>(r); });
  }
  const int64_t pieces = outputs < kFewUnits && n >= 2 * kPiece ? (n + kPiece - 1) / kPiece : 1;
  if (pieces == 1) {
    parallel_for(0, outputs, std::max<int64_t>(1, kElementGrain / n), [&](int64_t begin, int64_t end) {
      Walker at(r.kept, begin);
      for (int64_t k = begin; k < end; ++k, at.advance(1)) {
        finish(r, reduce_elements(r, at.offset(0), 0, n), at.offset(1));
      }
    });
    return;
  }
  Workspace<Partial> partials(outputs * pieces);
  parallel_for(0, outputs * pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t from = k % pieces * kPiece;
      const int64_t base = Walker(r.kept, k / pieces).offset(0);
      partials[k] = reduce_elements(r, base, from, std::min(n, from + kPiece));
    }
  });
  for (int64_t k = 0; k < outputs; ++k) {
    Partial* p = partials.data() + k * pieces;
    combine_pieces(r, p, 1, pieces, kPiece, n);
    finish(r, *p, Walker(r.kept, k).offset(1));
  }
}

// ---- The innermost dim is kept: strips of columns, folded row by row.
struct Strip {
  int64_t base, width, stride;  // of the input
};

// n <= kReduceRows rows into acc, which is started anew.
template <class T>
void fold_rows(const Reduction& r, const Strip& s, int64_t begin, int64_t n, T* acc) {
  alignas(64) char buffer[kRowsAtOnce][kTileColumns * 8], raw[kTileColumns * 8];
  std::fill_n(acc, s.width,
              std::is_same_v<T, int64_t> ? static_cast<T>(r.kernels.int_identity) : static_cast<T>(r.kernels.identity));
  Walker at(r.reduced, begin);
  const void* rows[kRowsAtOnce];
  for (int64_t done = 0; done < n;) {
    const int m = static_cast<int>(std::min<int64_t>(kRowsAtOnce, n - done));
    for (int k = 0; k < m; ++k, at.advance(1)) {
      rows[k] = fetch_run(r, s.base + at.offset(0), s.stride, s.width, buffer[k], raw);
    }
    r.kernels.columns(rows, m, s.width, acc, r.call.param);
    done += m;
  }
}

// Rows [begin, end) of a strip, in blocks one after the other.
template <class T, class Total>
void fold_blocks(const Reduction& r, const Strip& s, int64_t begin, int64_t end, Total* total) {
  alignas(64) T acc[kReduceColumns];
  for (int64_t i = begin; i < end; i += kReduceRows) {
    fold_rows(r, s, i, std::min(kReduceRows, end - i), acc);
    if (i == begin) {
      std::copy_n(acc, s.width, total);
    } else {
      combine_columns(fold_of(r.call), total, acc, s.width);
    }
  }
}

// Rows of a narrow strip that lie end to end are folded as if they were one.
int64_t rows_as_one(const Reduction& r, const Strip& s, int64_t n) {
  const bool dense = r.elements_in_place() && r.reduced.ndim == 1 && r.reduced.inner_stride(0) == s.width;
  return dense ? std::clamp<int64_t>(512 / s.width, 1, std::max<int64_t>(1, n / 4)) : 1;
}
template <class T, class Total>
void fold_range(const Reduction& r, const Strip& s, int64_t begin, int64_t end, Total* total) {
  const int64_t group = rows_as_one(r, s, end - begin), rows = (end - begin) / group, done = begin + rows * group;
  if (group == 1) return fold_blocks<T>(r, s, begin, end, total);
  Reduction wide = r;
  wide.reduced.sizes[0] = wide.reduced.total = rows;
  wide.reduced.strides[0][0] = group * s.width;
  Total sums[512];
  fold_blocks<T>(wide, Strip{s.base + begin * s.width, group * s.width, 1}, 0, rows, sums);
  for (int64_t k = 1; k < group; ++k) combine_columns(fold_of(r.call), sums, sums + k * s.width, s.width);
  std::copy_n(sums, s.width, total);
  if (done == end) return;
  fold_blocks<T>(r, s, done, end, sums);
  combine_columns(fold_of(r.call), total, sums, s.width);
}

// For ops that are no folds: tiles of rows, transposed, so that every column is a block.
template <class T>
void transpose_rows(const Reduction& r, const Strip& s, int64_t begin, int64_t n, int64_t column, int64_t columns,
                    char* to) {
  T* tile = reinterpret_cast<T*>(to);
  alignas(64) char buffer[kTileColumns * 8], raw[kTileColumns * 8];
  Walker at(r.reduced, begin);
  for (int64_t k = 0; k < n; ++k, at.advance(1)) {
    const int64_t offset = s.base + at.offset(0) + column * s.stride;
    const T* row = static_cast<const T*>(fetch_run(r, offset, s.stride, columns, buffer, raw));
    for (int64_t c = 0; c < columns; ++c) store_bits(tile + c * kReduceRows + k, load_bits(row + c));
  }
}
void reduce_tile(const Reduction& r, const Strip& s, int64_t begin, int64_t n, Partial* out) {
  constexpr int64_t kColumns = 16;
  alignas(64) char tile[kColumns * kReduceRows * 8];
  const int64_t size = static_cast<int64_t>(size_of(r.storage));
  for (int64_t column = 0; column < s.width; column += kColumns) {
    const int64_t columns = std::min(kColumns, s.width - column);
    dispatch_bits(r.storage, [&]<class T>() { transpose_rows<T>(r, s, begin, n, column, columns, tile); });
    for (int64_t c = 0; c < columns; ++c) {
      r.kernels.block(tile + c * kReduceRows * size, n, begin, r.call.param, out + column + c);
    }
  }
}

void reduce_rows(const Reduction& r, const Strip& s, int64_t begin, int64_t end, Partial* out) {
  const int64_t n = end - begin;
  if (n <= kReduceRows) return reduce_tile(r, s, begin, n, out);
  Partial right[kTileColumns];
  const int64_t left = left_part(n, kReduceRows);
  reduce_rows(r, s, begin, begin + left, out);
  reduce_rows(r, s, begin + left, end, right);
  combine(r, out, right, s.width, left, n - left);
}

// The outputs as strips of at most `columns` neighbours, and the rows as pieces: by their number, never by threads.
struct Strips {
  const Reduction& r;
  int64_t columns, across, count, width;
  Strips(const Reduction& reduction, int64_t most)
      : r(reduction),
        columns(most),
        across((r.kept.inner() + most - 1) / most),
        count(r.kept.total / r.kept.inner() * across),
        width(std::min(r.kept.inner(), most)) {}
  Strip at(int64_t k) const {
    const int64_t column = k % across * columns, stride = r.kept.inner_stride(0);
    const Walker start(r.kept, k / across * r.kept.inner());
    return Strip{start.offset(0) + column * stride, std::min(columns, r.kept.inner() - column), stride};
  }
  int64_t out_offset(int64_t k) const {
    return Walker(r.kept, k / across * r.kept.inner() + k % across * columns).offset(1);
  }
  int64_t grain() const { return std::max<int64_t>(1, kElementGrain / (r.count() * width)); }
};

template <class T, class Total>
void fold_outer(const Reduction& r) {
  const Strips strips(r, r.elements_in_place() ? kReduceColumns : kTileColumns);
  const int64_t n = r.count(), stride = r.kept.inner_stride(1), width = strips.width;
  int64_t piece = kLongestChain;
  if (strips.count < kFewUnits) piece = std::max(kReduceRows, left_part(kPiece / width, kReduceRows));
  const int64_t pieces = n >= 2 * piece ? (n + piece - 1) / piece : 1;
  if (pieces == 1) {
    parallel_for(0, strips.count, strips.grain(), [&](int64_t begin, int64_t end) {
      Total total[kReduceColumns];
      for (int64_t k = begin; k < end; ++k) {
        const Strip s = strips.at(k);
        fold_range<T>(r, s, 0, n, total);
        finish_folds(r, total, s.width, strips.out_offset(k), stride);
      }
    });
    return;
  }
  Workspace<Total> totals(strips.count * pieces * width);
  parallel_for(0, strips.count * pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t from = k % pieces * piece;
      fold_range<T>(r, strips.at(k / pieces), from, std::min(n, from + piece), totals.data() + k * width);
    }
  });
  for (int64_t k = 0; k < strips.count; ++k) {
    Total* t = totals.data() + k * pieces * width;
    const int64_t w = strips.at(k).width;
    for (int64_t step = 1; step < pieces; step *= 2) {
      for (int64_t i = 0; i + step < pieces; i += 2 * step) {
        combine_columns(fold_of(r.call), t + i * width, t + (i + step) * width, w);
      }
    }
    finish_folds(r, t, w, strips.out_offset(k), stride);
  }
}

void reduce_outer(const Reduction& r) {
  if (r.kernels.columns) {
    return dispatch_acc(r, [&]<class T, class Total>(T, Total) { fold_outer<T, Total>(r); });
  }
  const Strips strips(r, kTileColumns);
  const int64_t n = r.count(), width = strips.width;
  const int64_t piece = std::max(kReduceRows, left_part(kPiece / width, kReduceRows));
  const int64_t pieces = strips.count < kFewUnits && n >= 2 * piece ? (n + piece - 1) / piece : 1;
  auto finish_strip = [&](int64_t k, const Partial* p) {
    const int64_t offset = strips.out_offset(k), w = strips.at(k).width;
    for (int64_t c = 0; c < w; ++c) finish(r, p[c], offset + c * r.kept.inner_stride(1));
  };
  if (pieces == 1) {
    parallel_for(0, strips.count, strips.grain(), [&](int64_t begin, int64_t end) {
      Partial p[kTileColumns];
      for (int64_t k = begin; k < end; ++k) {
        reduce_rows(r, strips.at(k), 0, n, p);
        finish_strip(k, p);
      }
    });
    return;
  }
  Workspace<Partial> partials(strips.count * pieces * width);
  parallel_for(0, strips.count * pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t from = k % pieces * piece;
      reduce_rows(r, strips.at(k / pieces), from, std::min(n, from + piece), partials.data() + k * width);
    }
  });
  for (int64_t k = 0; k < strips.count; ++k) {
    Partial* p = partials.data() + k * pieces * width;
    combine_pieces(r, p, width, pieces, piece, n);
    finish_strip(k, p);
  }
}

void split_dims(Reduction& r) {
  const ReduceCall& c = r.call;
  r.kept.operands = 2;
  r.reduced.operands = 1;
  for (int d = 0; d < c.ndim; ++d) {
    Iteration& it = c.reduced[d] ? r.reduced : r.kept;
    const int n = it.ndim++;
    it.sizes[n] = c.sizes[d];
    it.strides[0][n] = c.in.strides[d];
    if (!c.reduced[d]) it.strides[1][n] = c.out.strides[d];
  }
  normalize(r.kept);
  const bool ordered = c.op == ReduceOp::argmax || c.op == ReduceOp::argmin;  // indices count in row-major order
  normalize(r.reduced, !ordered);
}

}  // namespace

void reduce(const ReduceCall& call) {
  Reduction r(call);
  r.acc = accumulator(call);
  r.storage = is_floating(call.in.dtype) ? call.in.dtype : r.acc;
  r.kernels = reduce_kernels(call.op, r.acc, r.storage, call.param);
  split_dims(r);
  if (r.kept.total == 0) return;
  if (r.count() == 0) {
    Walker at(r.kept, 0);
    for (int64_t k = 0; k < r.kept.total; ++k, at.advance(1)) finish(r, identity(r), at.offset(1));
    return;
  }
  const bool inner = r.kept.total == 1 || std::abs(r.reduced.inner_stride(0)) <= std::abs(r.kept.inner_stride(0)) ||
                     r.kept.inner() == 1;
  inner ? reduce_inner(r) : reduce_outer(r);
}

}  // namespace deft::cpu
