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

struct Reduction {
  const ReduceCall& call;
  DType acc;
  ReduceKernels kernels;
  Iteration kept;     // operand 0: input, 1: output
  Iteration reduced;  // operand 0: input
  explicit Reduction(const ReduceCall& c) : call(c) {}
  int64_t count() const { return reduced.total; }
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

Partial identity(const Reduction& r) {
  Partial p;
  p.a = r.call.op == ReduceOp::logsumexp ? -std::numeric_limits<double>::infinity() : r.kernels.identity;
  p.i = r.kernels.int_identity;
  return p;
}

// ---- Gathering input elements as the accumulation type.
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
    if (from == r.acc) return src;
    convert(src, from, buffer, r.acc, static_cast<size_t>(n));
  } else if (from == r.acc) {
    gather_raw(r, src, stride, buffer, n);
  } else {
    gather_raw(r, src, stride, raw, n);
    convert(raw, from, buffer, r.acc, static_cast<size_t>(n));
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
  if (r.call.in.dtype == r.acc) return raw;
  convert(raw, r.call.in.dtype, buffer, r.acc, static_cast<size_t>(n));
  return buffer;
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
Partial reduce_elements(const Reduction& r, int64_t base, int64_t begin, int64_t end) {
  const int64_t n = end - begin;
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

void reduce_inner(const Reduction& r) {
  const int64_t n = r.count(), outputs = r.kept.total;
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

void fold_rows(const Reduction& r, const Strip& s, int64_t begin, int64_t n, Partial* out) {
  alignas(64) char buffer[kRowsAtOnce][kReduceColumns * 8], raw[kReduceColumns * 8];
  alignas(64) unsigned char acc[kReduceColumns * 8];
  const size_t width = static_cast<size_t>(s.width);
  float* f32s = reinterpret_cast<float*>(acc);
  double* f64s = reinterpret_cast<double*>(acc);
  int64_t* i64s = reinterpret_cast<int64_t*>(acc);
  switch (r.acc) {
    case DType::f32:
      std::fill_n(f32s, width, static_cast<float>(r.kernels.identity));
      break;
    case DType::f64:
      std::fill_n(f64s, width, r.kernels.identity);
      break;
    default:
      std::fill_n(i64s, width, r.kernels.int_identity);
  }
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
  for (size_t c = 0; c < width; ++c) {
    out[c] = Partial();
    switch (r.acc) {
      case DType::f32:
        out[c].a = static_cast<double>(f32s[c]);
        break;
      case DType::f64:
        out[c].a = f64s[c];
        break;
      default:
        out[c].i = i64s[c];
    }
  }
}

// For ops that are no folds: tiles of rows, transposed, so that every column is a block.
template <class T>
void transpose_rows(const Reduction& r, const Strip& s, int64_t begin, int64_t n, int64_t column, int64_t columns,
                    T* tile) {
  alignas(64) char buffer[kReduceColumns * 8], raw[kReduceColumns * 8];
  Walker at(r.reduced, begin);
  for (int64_t k = 0; k < n; ++k, at.advance(1)) {
    const int64_t offset = s.base + at.offset(0) + column * s.stride;
    const T* row = static_cast<const T*>(fetch_run(r, offset, s.stride, columns, buffer, raw));
    for (int64_t c = 0; c < columns; ++c) tile[c * kReduceRows + k] = row[c];
  }
}
void reduce_tile(const Reduction& r, const Strip& s, int64_t begin, int64_t n, Partial* out) {
  constexpr int64_t kColumns = 16;
  alignas(64) char tile[kColumns * kReduceRows * 8];
  const int64_t size = static_cast<int64_t>(size_of(r.acc));
  for (int64_t column = 0; column < s.width; column += kColumns) {
    const int64_t columns = std::min(kColumns, s.width - column);
    if (size == 4) {
      transpose_rows(r, s, begin, n, column, columns, reinterpret_cast<float*>(tile));
    } else if (r.acc == DType::f64) {
      transpose_rows(r, s, begin, n, column, columns, reinterpret_cast<double*>(tile));
    } else {
      transpose_rows(r, s, begin, n, column, columns, reinterpret_cast<int64_t*>(tile));
    }
    for (int64_t c = 0; c < columns; ++c) {
      r.kernels.block(tile + c * kReduceRows * size, n, begin, r.call.param, out + column + c);
    }
  }
}

void reduce_rows(const Reduction& r, const Strip& s, int64_t begin, int64_t end, Partial* out) {
  const int64_t n = end - begin;
  if (n <= kReduceRows) return r.kernels.columns ? fold_rows(r, s, begin, n, out) : reduce_tile(r, s, begin, n, out);
  Partial right[kReduceColumns];
  const int64_t left = left_part(n, kReduceRows);
  reduce_rows(r, s, begin, begin + left, out);
  reduce_rows(r, s, begin + left, end, right);
  combine(r, out, right, s.width, left, n - left);
}

void reduce_outer(const Reduction& r) {
  const int64_t n = r.count(), inner = r.kept.inner(), strips_across = (inner + kReduceColumns - 1) / kReduceColumns;
  const int64_t strips = r.kept.total / inner * strips_across;
  const int64_t width = std::min(inner, kReduceColumns);
  const int64_t piece = std::max(kReduceRows, left_part(kPiece / width, kReduceRows));
  const int64_t pieces = strips < kFewUnits && n >= 2 * piece ? (n + piece - 1) / piece : 1;
  auto strip_of = [&](int64_t k) {
    Walker at(r.kept, k / strips_across * inner);
    const int64_t column = k % strips_across * kReduceColumns;
    return Strip{at.offset(0) + column * r.kept.inner_stride(0), std::min(kReduceColumns, inner - column),
                 r.kept.inner_stride(0)};
  };
  auto finish_strip = [&](int64_t k, const Partial* p, int64_t strip_width) {
    Walker at(r.kept, k / strips_across * inner + k % strips_across * kReduceColumns);
    for (int64_t c = 0; c < strip_width; ++c) finish(r, p[c], at.offset(1) + c * r.kept.inner_stride(1));
  };
  if (pieces == 1) {
    parallel_for(0, strips, std::max<int64_t>(1, kElementGrain / (n * width)), [&](int64_t begin, int64_t end) {
      Partial p[kReduceColumns];
      for (int64_t k = begin; k < end; ++k) {
        const Strip s = strip_of(k);
        reduce_rows(r, s, 0, n, p);
        finish_strip(k, p, s.width);
      }
    });
    return;
  }
  Workspace<Partial> partials(strips * pieces * width);
  parallel_for(0, strips * pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t from = k % pieces * piece;
      reduce_rows(r, strip_of(k / pieces), from, std::min(n, from + piece), partials.data() + k * width);
    }
  });
  for (int64_t k = 0; k < strips; ++k) {
    Partial* p = partials.data() + k * pieces * width;
    combine_pieces(r, p, width, pieces, piece, n);
    finish_strip(k, p, strip_of(k).width);
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
  r.kernels = reduce_kernels(call.op, r.acc, call.param);
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
