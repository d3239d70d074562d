#include "kernels/cpu/copy/copy.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "kernels/cpu/copy/streaming_store.h"
#include "kernels/cpu/copy/strided.h"
#include "kernels/cpu/copy/transpose.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace {

constexpr int64_t kCopyGrain = 4 * kElementGrain;  // a copy costs less than an operation

// Blocks of a transpose, in bytes. A cache line of the destination is written whole; sources further apart than the
// caches have ways allow no more than some sixteen columns at once. Measured and no better: consecutive blocks along
// the source, prefetching the next one, zeroing the lines of the destination first (dc zva).
constexpr int64_t kTileBytes = 32 * 1024;
// On x86, which reads and writes whole lines (kernels/cpu/copy/transpose.cpp), as much of the source as lies in order.
constexpr int64_t kTileRowBytes = kHasStreams ? 1024 : 256;
constexpr int64_t kTileColBytes = 64;
// Where whole lines are written straight to the destination, a call goes on for this many columns: the caches see that
// lines need not be read first only as long as nothing else is written in between, not even to the stack.
constexpr int64_t kLongCols = 1024;
// Runs instead of elements: read in order over this many bytes, and written to as many places.
constexpr int64_t kRunRowBytes = 4 * 1024;
constexpr int64_t kRunCols = 16;
constexpr int64_t kLongRun = 4 * 1024;  // longer ones are copied in the order of the destination

// Operand 0 of `it` is the destination, operand 1 the source.
struct Copy {
  const char* src;
  char* dst;
  DType from, to;
  Iteration it;
  const char* src_at(int64_t element) const { return src + element * static_cast<int64_t>(size_of(from)); }
  char* dst_at(int64_t element) const { return dst + element * static_cast<int64_t>(size_of(to)); }
};

void convert_streamed(const Copy& c, int64_t begin, int64_t end) {
  alignas(64) char block[kStreamBlock];
  const auto from = static_cast<int64_t>(size_of(c.from)), to = static_cast<int64_t>(size_of(c.to));
  const int64_t step = kStreamBlock / std::max(from, to);
  for (int64_t at = begin; at < end; at += step) {
    const int64_t n = std::min(step, end - at);
    prefetch_range(c.src_at(at) + kStreamAhead, n * from);
    convert(c.src_at(at), c.from, block, c.to, static_cast<size_t>(n));
    stream_copy(c.dst_at(at), block, static_cast<size_t>(n * to));
  }
  end_stream();
}

void copy_contiguous(const Copy& c) {
  if (c.src == c.dst && c.from == c.to) return;
  if (c.from != c.to && c.src != c.dst && streams(c.it.total * static_cast<int64_t>(size_of(c.to)))) [[unlikely]]
    return parallel_for(0, c.it.total, kCopyGrain,
                        [&](int64_t begin, int64_t end) { convert_streamed(c, begin, end); });
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

// ---- Transposes: the dim that is dense in the destination is not the closest one in the source. Elements are whole
// runs where the last dim is dense in both. Blocks that are converted, or whose rows are shorter than a vector, go
// through a buffer.
struct Transpose {
  int64_t run = 1;               // elements
  int64_t rows, cols;            // rows: close in src, cols: dense in dst
  int64_t row_step, col_stride;  // of rows and cols in src
  int64_t row_stride;            // of rows in dst
  int64_t tile_rows, tile_cols;
  bool direct;  // rows of at least 16 bytes go straight to the destination
  bool stream;  // past the caches
  bool packed;  // into a buffer first: the cache lines of a source column would evict each other
  Iteration outer;
};

// Rows of the source that are this many bytes apart share a set of L1.
constexpr int64_t kSameSet = 16 * 1024;
constexpr int64_t kPackedStride = kTileRowBytes + 64;

struct TileBuffers {
  alignas(64) char result[kTileBytes + 16];
  alignas(64) char packed[kTileBytes / kTileRowBytes * kPackedStride];
};

void copy_tile(const Copy& c, const Transpose& t, int64_t src_offset, int64_t dst_offset, int64_t rows, int64_t cols,
               TileBuffers& buffers) {
  const int64_t size = static_cast<int64_t>(size_of(c.from)), row = cols * t.run;
  const bool direct = t.direct && row * size >= 16;
  TransposeBlock block{.size = static_cast<size_t>(t.run * size),
                       .src = c.src_at(src_offset),
                       .src_step = t.row_step * size,
                       .src_stride = t.col_stride * size,
                       .dst = direct ? c.dst_at(dst_offset) : buffers.result,
                       .dst_stride = (direct ? t.row_stride : row) * size,
                       .rows = rows,
                       .cols = cols,
                       .stream = t.stream};
  if (t.packed) {
    for (int64_t j = 0; j < cols; ++j) {
      std::memcpy(buffers.packed + j * kPackedStride, block.src + j * block.src_stride,
                  static_cast<size_t>(rows * size));
    }
    block.src = buffers.packed;
    block.src_stride = kPackedStride;
  }
  transpose_block(block);
  if (direct) return;
  char* from = buffers.result;
  if (t.row_stride == row) return convert(from, c.from, c.dst_at(dst_offset), c.to, static_cast<size_t>(rows * row));
  for (int64_t i = 0; i < rows; ++i) {
    convert(from + i * row * size, c.from, c.dst_at(dst_offset + i * t.row_stride), c.to, static_cast<size_t>(row));
  }
}

void copy_tiles(const Copy& c, const Transpose& t) {
  const int64_t down = (t.rows + t.tile_rows - 1) / t.tile_rows, across = (t.cols + t.tile_cols - 1) / t.tile_cols;
  const int64_t grain = std::max<int64_t>(1, kElementGrain / (t.tile_rows * t.tile_cols * t.run));
  parallel_for(0, t.outer.total * down * across, grain, [&](int64_t begin, int64_t end) {
    TileBuffers buffers;
    for (int64_t k = begin; k < end; ++k) {
      Walker at(t.outer, k / (down * across));
      const int64_t i = k % (down * across) / across * t.tile_rows, j = k % across * t.tile_cols;
      copy_tile(c, t, at.offset(1) + i * t.row_step + j * t.col_stride, at.offset(0) + i * t.row_stride + j * t.run,
                std::min(t.tile_rows, t.rows - i), std::min(t.tile_cols, t.cols - j), buffers);
    }
    if (t.stream) end_stream();
  });
}

void choose_tile(const Copy& c, Transpose& t, int64_t run_bytes) {
  const int64_t room = kTileBytes / run_bytes;
  const bool runs = run_bytes > 8, same = c.from == c.to;
  t.tile_rows = std::min(t.rows, std::max<int64_t>(1, (runs ? kRunRowBytes : kTileRowBytes) / run_bytes));
  t.tile_cols = std::min({t.cols, runs ? kRunCols : kTileColBytes / run_bytes, room / t.tile_rows});
  t.direct = same;
  t.stream = same && streams(c.it.total * static_cast<int64_t>(size_of(c.to)));
  t.packed = false;
  if (same && run_bytes > 1 && !runs && t.tile_cols == kTileColBytes / run_bytes) {
    // Short rows that follow each other in the destination are written through a buffer, in one go.
    t.direct = t.row_stride != t.cols || t.cols > room / t.tile_rows;
    t.tile_cols = std::min(t.cols, t.direct ? kLongCols : room / t.tile_rows);
    t.packed = !t.direct && t.row_step == 1 && t.tile_rows * run_bytes == kTileRowBytes &&
               t.col_stride * run_bytes % kSameSet == 0;
    return;
  }
  if (t.tile_cols == t.cols) t.tile_rows = std::min(t.rows, room / t.tile_cols);
  if (t.tile_rows == t.rows) t.tile_cols = std::min(t.cols, room / t.tile_rows);
}

bool plan_transpose(const Copy& c, Transpose& t) {
  const Iteration& it = c.it;
  int inner = it.ndim - 1;
  if (it.inner_stride(0) == 1 && it.inner_stride(1) == 1) t.run = it.sizes[inner--];
  const int64_t run_bytes = t.run * static_cast<int64_t>(size_of(c.from));
  if (inner < 1 || run_bytes > kLongRun || it.strides[0][inner] != t.run || it.strides[1][inner] == 0) return false;
  int dim = inner;
  for (int d = 0; d < inner; ++d) {
    if (it.strides[1][d] != 0 && std::abs(it.strides[1][d]) < std::abs(it.strides[1][dim])) dim = d;
  }
  if (dim == inner) return false;
  t.rows = it.sizes[dim];
  t.row_step = it.strides[1][dim];
  t.row_stride = it.strides[0][dim];
  t.cols = it.sizes[inner];
  t.col_stride = it.strides[1][inner];
  choose_tile(c, t, run_bytes);
  t.outer.operands = 2;
  for (int d = 0; d < inner; ++d) {
    if (d == dim) continue;
    const int n = t.outer.ndim++;
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
  if (plan_transpose(c, t)) return copy_tiles(c, t);
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

namespace {

// Counting with small integers, which every processor turns into vectors of doubles.
template <class T>
void sequence_block(T* to, int n, double start, double step, double first) {
  for (int i = 0; i < n; ++i) to[i] = static_cast<T>(start + (first + i) * step);
}

}  // namespace

void fill_sequence(void* data, DType dtype, int64_t n, double start, double step, int64_t first) {
  constexpr int64_t kBlock = 512;
  dispatch_all(dtype, [&]<class T>() {
    T* to = static_cast<T*>(data);
    parallel_for(0, n, kCopyGrain, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; at += kBlock) {
        const int m = static_cast<int>(std::min(kBlock, end - at));
        const auto number = static_cast<double>(first + at);
        if constexpr (std::is_arithmetic_v<T>) {
          sequence_block(to + at, m, start, step, number);
        } else {
          float values[kBlock];
          sequence_block(values, m, start, step, number);
          convert(values, DType::f32, to + at, dtype, static_cast<size_t>(m));
        }
      }
    });
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
