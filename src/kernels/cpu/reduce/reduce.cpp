#include "kernels/cpu/reduce/reduce.h"

#include <cmath>
#include <limits>

#include "kernels/cpu/reduce/reduce_driver.h"
#include "kernels/cpu/workspace.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace {

DType accumulator(const ReduceCall& c) {
  if (c.in.dtype == DType::f64) return DType::f64;
  if (is_floating(c.in.dtype)) return DType::f32;
  const bool real =
      c.op == ReduceOp::mean || c.op == ReduceOp::var || c.op == ReduceOp::logsumexp || c.op == ReduceOp::norm;
  return real ? DType::f64 : DType::i64;
}

Partial identity(const Reduction& r) {
  Partial p;
  p.a = r.call.op == ReduceOp::logsumexp ? -std::numeric_limits<double>::infinity() : r.kernels.identity;
  p.i = r.kernels.int_identity;
  return p;
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

// ---- The innermost dim is reduced: one output at a time.
Partial reduce_block(const Reduction& r, int64_t base, int64_t begin, int64_t n) {
  alignas(64) char buffer[kReduceBlock * 8], raw[kReduceBlock * 8];
  Partial p;
  r.kernels.block(fetch_block(r, base, begin, n, buffer, raw), n, begin, r.call.param, &p);
  return p;
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
