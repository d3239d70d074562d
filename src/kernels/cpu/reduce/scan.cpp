#include "kernels/cpu/reduce/scan.h"

#include <algorithm>

#include "kernels/cpu/copy/strided.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace {

constexpr int64_t kChunk = 256;

// One side of the call as the accumulation type, `stride` elements apart.
struct Side {
  char* data;
  DType dtype;
  int64_t step;  // along the scanned dim

  char* at(int64_t offset) const { return data + offset * static_cast<int64_t>(size_of(dtype)); }
};

struct Scan {
  Side in, out;
  DType acc;
  int64_t n;
  ScanOp op;
  Iteration lines;  // the other dims; operand 0: input, 1: output
};

void read(const Side& s, int64_t offset, int64_t stride, int64_t n, DType acc, void* dst) {
  alignas(64) unsigned char raw[kChunk * 8];
  if (stride == 1) return convert(s.at(offset), s.dtype, dst, acc, static_cast<size_t>(n));
  dispatch_bits(s.dtype, [&]<class T>() {
    copy_bits(reinterpret_cast<const T*>(s.at(offset)), stride, reinterpret_cast<T*>(raw), 1, n);
  });
  convert(raw, s.dtype, dst, acc, static_cast<size_t>(n));
}
void write(const Side& s, int64_t offset, int64_t stride, int64_t n, DType acc, const void* src) {
  alignas(64) unsigned char raw[kChunk * 8];
  if (stride == 1) return convert(src, acc, s.at(offset), s.dtype, static_cast<size_t>(n));
  convert(src, acc, raw, s.dtype, static_cast<size_t>(n));
  dispatch_bits(s.dtype, [&]<class T>() {
    copy_bits(reinterpret_cast<const T*>(raw), 1, reinterpret_cast<T*>(s.at(offset)), stride, n);
  });
}

// A is double or uint64_t, so that integer overflow wraps.
template <class A>
A step(ScanOp op, A total, A x) {
  return op == ScanOp::sum ? total + x : total * x;
}

// kLines lines, each by itself but in step: a line alone would wait for its own sums.
template <int kLines, class A>
void scan_line(const Scan& s, Walker& at) {
  A chunk[kLines][kChunk], total[kLines];
  int64_t in[kLines], out[kLines];
  for (int l = 0; l < kLines; ++l, at.advance(1)) {
    in[l] = at.offset(0), out[l] = at.offset(1);
    total[l] = s.op == ScanOp::sum ? A(0) : A(1);
  }
  for (int64_t i = 0; i < s.n; i += kChunk) {
    const int64_t m = std::min(kChunk, s.n - i);
    for (int l = 0; l < kLines; ++l) read(s.in, in[l] + i * s.in.step, s.in.step, m, s.acc, chunk[l]);
    for (int64_t k = 0; k < m; ++k) {
      for (int l = 0; l < kLines; ++l) chunk[l][k] = total[l] = step(s.op, total[l], chunk[l][k]);
    }
    for (int l = 0; l < kLines; ++l) write(s.out, out[l] + i * s.out.step, s.out.step, m, s.acc, chunk[l]);
  }
}

// Up to kChunk lines side by side.
template <class A>
void scan_lines(const Scan& s, int64_t in, int64_t out, int64_t width) {
  A total[kChunk], row[kChunk];
  std::fill_n(total, width, s.op == ScanOp::sum ? A(0) : A(1));
  for (int64_t i = 0; i < s.n; ++i) {
    read(s.in, in + i * s.in.step, s.lines.inner_stride(0), width, s.acc, row);
    for (int64_t k = 0; k < width; ++k) total[k] = step(s.op, total[k], row[k]);
    write(s.out, out + i * s.out.step, s.lines.inner_stride(1), width, s.acc, total);
  }
}

template <class A>
void run(const Scan& s) {
  const int64_t inner = s.lines.inner();
  const bool side_by_side = std::abs(s.lines.inner_stride(0)) < std::abs(s.in.step) && inner >= 4;
  if (!side_by_side) {
    parallel_for(0, s.lines.total, std::max<int64_t>(1, kElementGrain / s.n), [&](int64_t begin, int64_t end) {
      Walker at(s.lines, begin);
      int64_t k = begin;
      for (; k + 4 <= end; k += 4) scan_line<4, A>(s, at);
      for (; k < end; ++k) scan_line<1, A>(s, at);
    });
    return;
  }
  const int64_t strips = (inner + kChunk - 1) / kChunk, width = std::min(inner, kChunk);
  const int64_t grain = std::max<int64_t>(1, kElementGrain / (s.n * width));
  parallel_for(0, s.lines.total / inner * strips, grain, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t column = k % strips * kChunk;
      Walker at(s.lines, k / strips * inner + column);
      scan_lines<A>(s, at.offset(0), at.offset(1), std::min(kChunk, inner - column));
    }
  });
}

// The first element along the dim comes last in a reverse scan.
Side side_of(const Operand& o, int dim, int64_t n, bool reverse) {
  Side s{static_cast<char*>(o.data), o.dtype, o.strides[dim]};
  if (reverse && n > 0) {
    s.data = s.at((n - 1) * s.step);
    s.step = -s.step;
  }
  return s;
}

}  // namespace

void scan(const ScanCall& call) {
  Scan s;
  s.n = call.sizes[call.dim];
  s.in = side_of(call.in, call.dim, s.n, call.reverse);
  s.out = side_of(call.out, call.dim, s.n, call.reverse);
  s.acc = is_floating(call.in.dtype) ? DType::f64 : DType::i64;
  s.op = call.op;
  s.lines.operands = 2;
  for (int d = 0; d < call.ndim; ++d) {
    if (d == call.dim) continue;
    const int k = s.lines.ndim++;
    s.lines.sizes[k] = call.sizes[d];
    s.lines.strides[0][k] = call.in.strides[d];
    s.lines.strides[1][k] = call.out.strides[d];
  }
  normalize(s.lines);
  if (s.lines.total == 0 || s.n == 0) return;
  s.acc == DType::f64 ? run<double>(s) : run<uint64_t>(s);
}

}  // namespace deft::cpu
