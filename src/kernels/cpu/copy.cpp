#include "kernels/cpu/copy.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/strided.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace {

constexpr int64_t kCopyGrain = 4 * kElementGrain;  // a copy costs less than an operation
constexpr int64_t kTileSide = 32;
constexpr int64_t kTile = kTileSide * kTileSide;

// Operand 0 of `it` is the destination, operand 1 the source.
struct Copy {
  const char* src;
  char* dst;
  DType from, to;
  Iteration it;
  const char* src_at(int64_t element) const { return src + element * static_cast<int64_t>(size_of(from)); }
  char* dst_at(int64_t element) const { return dst + element * static_cast<int64_t>(size_of(to)); }
};

void copy_contiguous(const Copy& c) {
  if (c.src == c.dst && c.from == c.to) return;
  parallel_for(0, c.it.total, kCopyGrain, [&](int64_t begin, int64_t end) {
    convert(c.src_at(begin), c.from, c.dst_at(begin), c.to, static_cast<size_t>(end - begin));
  });
}

template <class T>
void copy_runs(const Copy& c) {
  const int64_t ss = c.it.inner_stride(1), ds = c.it.inner_stride(0);
  parallel_for(0, c.it.total, kElementGrain, [&](int64_t begin, int64_t end) {
    Walker at(c.it, begin);
    for (int64_t left = end - begin; left > 0;) {
      int64_t n = std::min(left, at.left_in_run());
      const T* from = reinterpret_cast<const T*>(c.src_at(at.offset(1)));
      copy_bits(from, ss, reinterpret_cast<T*>(c.dst_at(at.offset(0))), ds, n);
      at.advance(n);
      left -= n;
    }
  });
}

void identity_chunk(const void* const* in, void* out, size_t n, const void* element_size) {
  if (in[0] != out) std::memcpy(out, in[0], n * *static_cast<const size_t*>(element_size));
}

void convert_strided(const Operand& src, const Operand& dst, int ndim, const int64_t* sizes) {
  size_t element_size = size_of(src.dtype);
  ElementwiseCall call;
  call.ndim = ndim;
  std::copy_n(sizes, ndim, call.sizes);
  call.inputs = 1;
  call.in[0] = src;
  call.out = dst;
  call.compute = call.result = src.dtype;
  call.fn = identity_chunk;
  call.params = &element_size;
  elementwise(call);
}

// ---- Transposes: a dim that is contiguous in the source meets the one that is contiguous in the destination.
struct Transpose {
  int64_t rows, cols;              // rows: contiguous in src, cols: contiguous in dst
  int64_t row_stride, col_stride;  // of rows in dst, of cols in src
  int64_t tile_rows, tile_cols;
  Iteration outer;
};

template <class T>
void copy_tile(const Copy& c, const Transpose& t, int64_t src_offset, int64_t dst_offset, int64_t rows, int64_t cols) {
  T tile[kTile];
  const T* s = reinterpret_cast<const T*>(c.src) + src_offset;
  for (int64_t j = 0; j < cols; ++j) {
    for (int64_t i = 0; i < rows; ++i) tile[i * cols + j] = load_bits(s + j * t.col_stride + i);
  }
  if (t.row_stride == cols) {  // whole rows, one after the other
    convert(tile, c.from, c.dst_at(dst_offset), c.to, static_cast<size_t>(rows * cols));
    return;
  }
  for (int64_t i = 0; i < rows; ++i) {
    convert(tile + i * cols, c.from, c.dst_at(dst_offset + i * t.row_stride), c.to, static_cast<size_t>(cols));
  }
}

template <class T>
void copy_tiles(const Copy& c, const Transpose& t) {
  const int64_t down = (t.rows + t.tile_rows - 1) / t.tile_rows, across = (t.cols + t.tile_cols - 1) / t.tile_cols;
  const int64_t grain = std::max<int64_t>(1, kElementGrain / (t.tile_rows * t.tile_cols));
  parallel_for(0, t.outer.total * down * across, grain, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      Walker at(t.outer, k / (down * across));
      int64_t i = k % (down * across) / across * t.tile_rows, j = k % across * t.tile_cols;
      copy_tile<T>(c, t, at.offset(1) + i + j * t.col_stride, at.offset(0) + i * t.row_stride + j,
                   std::min(t.tile_rows, t.rows - i), std::min(t.tile_cols, t.cols - j));
    }
  });
}

bool plan_transpose(const Iteration& it, Transpose& t) {
  const int last = it.ndim - 1;
  int dim = last - 1;
  if (it.strides[0][last] != 1 || it.strides[1][last] == 1) return false;
  while (dim >= 0 && it.strides[1][dim] != 1) --dim;
  if (dim < 0) return false;
  t.rows = it.sizes[dim];
  t.row_stride = it.strides[0][dim];
  t.cols = it.sizes[last];
  t.col_stride = it.strides[1][last];
  t.tile_rows = std::min(t.rows, kTileSide);
  t.tile_cols = std::min(t.cols, kTile / t.tile_rows);
  if (t.tile_cols > kTileSide && t.tile_rows == kTileSide) t.tile_cols = kTileSide;
  if (t.tile_cols < kTileSide) t.tile_rows = std::min(t.rows, kTile / t.tile_cols);
  t.outer.operands = 2;
  for (int d = 0; d < last; ++d) {
    if (d == dim) continue;
    int n = t.outer.ndim++;
    t.outer.sizes[n] = it.sizes[d];
    for (int k = 0; k < 2; ++k) t.outer.strides[k][n] = it.strides[k][d];
  }
  normalize(t.outer);
  return true;
}

}  // namespace

void copy_strided(const Operand& src, const Operand& dst, int ndim, const int64_t* sizes) {
  Copy c{static_cast<const char*>(src.data), static_cast<char*>(dst.data), src.dtype, dst.dtype, {}};
  c.it.ndim = ndim;
  c.it.operands = 2;
  std::copy_n(sizes, ndim, c.it.sizes);
  std::copy_n(dst.strides, ndim, c.it.strides[0]);
  std::copy_n(src.strides, ndim, c.it.strides[1]);
  normalize(c.it);
  if (c.it.total == 0) return;
  if (c.it.ndim == 1 && c.it.inner_stride(0) == 1 && c.it.inner_stride(1) == 1) return copy_contiguous(c);
  Transpose t;
  if (plan_transpose(c.it, t)) {
    return dispatch_bits(src.dtype, [&]<class T>() { copy_tiles<T>(c, t); });
  }
  if (src.dtype != dst.dtype) return convert_strided(src, dst, ndim, sizes);
  dispatch_bits(src.dtype, [&]<class T>() { copy_runs<T>(c); });
}

void fill(void* data, DType dtype, int64_t n, const void* value) {
  dispatch_bits(dtype, [&]<class T>() {
    T v;
    std::memcpy(&v, value, sizeof(T));
    parallel_for(0, n, kCopyGrain,
                 [&](int64_t begin, int64_t end) { fill_bits(static_cast<T*>(data) + begin, 1, end - begin, v); });
  });
}

void fill_strided(const Operand& dst, int ndim, const int64_t* sizes, const void* value) {
  Iteration it;
  it.ndim = ndim;
  it.operands = 1;
  std::copy_n(sizes, ndim, it.sizes);
  std::copy_n(dst.strides, ndim, it.strides[0]);
  normalize(it);
  if (it.total == 0) return;
  if (it.ndim == 1 && it.inner_stride(0) == 1) return fill(dst.data, dst.dtype, it.total, value);
  dispatch_bits(dst.dtype, [&]<class T>() {
    T v;
    std::memcpy(&v, value, sizeof(T));
    parallel_for(0, it.total, kElementGrain, [&](int64_t begin, int64_t end) {
      Walker at(it, begin);
      for (int64_t left = end - begin; left > 0;) {
        int64_t n = std::min(left, at.left_in_run());
        fill_bits(static_cast<T*>(dst.data) + at.offset(0), it.inner_stride(0), n, v);
        at.advance(n);
        left -= n;
      }
    });
  });
}

}  // namespace deft::cpu
