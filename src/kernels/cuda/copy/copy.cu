// Copies within a device: plain bytes, conversions in packs, transposes through shared memory, and anything else by
// index.
#include "kernels/cuda/copy/copy.h"
#include "kernels/cuda/elementwise/convert.cuh"

namespace deft::cuda {

namespace {

constexpr int kThreads = 256;

bool aligned(const void* p, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(bytes) == 0;
}

// ---- Conversion without gaps
template <class T>
using stored_t = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;
template <class To, class From>
__device__ __forceinline__ To convert_stored(stored_t<From> v) {
  if constexpr (std::is_same_v<From, bool>)
    return convert<To>(v != 0);
  else
    return convert<To>(v);
}

constexpr int kConvertPacks = 4;
// The number of elements that fit into 16 bytes of the wider type.
template <class To, class From>
inline constexpr int kConvertWidth = 16 / (sizeof(To) > sizeof(From) ? sizeof(To) : sizeof(From));

template <class To, class From>
__global__ void __launch_bounds__(kThreads) convert_kernel(const void* from, void* to, int64_t n, bool packs) {
  constexpr int kWidth = kConvertWidth<To, From>, kTile = kThreads * kWidth * kConvertPacks;
  using In = Pack<stored_t<From>, kWidth>;
  using Out = Pack<To, kWidth>;
  int64_t begin = static_cast<int64_t>(blockIdx.x) * kTile;
  const auto* in = static_cast<const stored_t<From>*>(from) + begin;
  To* out = static_cast<To*>(to) + begin;
  int thread = static_cast<int>(threadIdx.x);
  if (packs && begin + kTile <= n) {
    In v[kConvertPacks];
#pragma unroll
    for (int u = 0; u < kConvertPacks; ++u) v[u] = reinterpret_cast<const In*>(in)[u * kThreads + thread];
#pragma unroll
    for (int u = 0; u < kConvertPacks; ++u) {
      Out r;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) r.v[k] = convert_stored<To, From>(v[u].v[k]);
      reinterpret_cast<Out*>(out)[u * kThreads + thread] = r;
    }
  } else {
    for (int k = thread; k < kTile && begin + k < n; k += kThreads) out[k] = convert_stored<To, From>(in[k]);
  }
}

template <class To, class From>
void launch_convert(Encoder& e, const void* from, void* to, int64_t n) {
  constexpr int kWidth = kConvertWidth<To, From>;
  bool packs = aligned(from, kWidth * static_cast<int64_t>(sizeof(From))) &&
               aligned(to, kWidth * static_cast<int64_t>(sizeof(To)));
  constexpr int kTile = kThreads * kWidth * kConvertPacks;
  e.launch(&convert_kernel<To, From>, static_cast<unsigned>((n + kTile - 1) / kTile), kThreads, 0, from, to, n, packs);
}

void convert_dense(Encoder& e, const Operand& from, const Operand& to, int64_t n) {
  dispatch_all(from.dtype, [&]<class From>() {
    dispatch_all(to.dtype, [&]<class To>() {
      if constexpr (!std::is_same_v<To, From>) launch_convert<To, From>(e, from.data, to.data, n);
    });
  });
}

// ---- By index. Operand 0 is where to write.
template <class Unit>
__global__ void __launch_bounds__(kThreads)
    move_kernel(const __grid_constant__ OffsetMap<2> map, const Unit* from, Unit* to, int64_t n, bool narrow) {
  int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= n) return;
  int64_t at[2];
  if (narrow)
    map.offsets(static_cast<uint32_t>(index), at);
  else
    map.offsets(index, at);
  to[at[0]] = from[at[1]];
}
template <class From>
__global__ void __launch_bounds__(kThreads)
    convert_strided_kernel(const __grid_constant__ OffsetMap<2> map, const stored_t<From>* from, void* to,
                           DType to_dtype, int64_t n, bool narrow) {
  int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= n) return;
  int64_t at[2];
  if (narrow)
    map.offsets(static_cast<uint32_t>(index), at);
  else
    map.offsets(index, at);
  store_as<From>(to, to_dtype, at[0], convert_stored<From, From>(from[at[1]]));
}

// The largest unit, in elements, in which both sides move: 16 bytes at most.
int64_t unit_of(const Iteration& it, const void* from, const void* to, int64_t size) {
  int last = it.ndim - 1;
  int64_t unit = 1;
  if (it.strides[0][last] != 1 || it.strides[1][last] != 1) return unit;
  while (unit * size < 16) {
    int64_t next = unit * 2;
    bool fits = it.sizes[last] % next == 0 && aligned(from, next * size) && aligned(to, next * size);
    for (int d = 0; d < last; ++d) fits &= it.strides[0][d] % next == 0 && it.strides[1][d] % next == 0;
    if (!fits) break;
    unit = next;
  }
  return unit;
}

void move_strided(Encoder& e, Iteration it, const Operand& from, const Operand& to) {
  auto size = static_cast<int64_t>(size_of(from.dtype));
  int64_t unit = unit_of(it, from.data, to.data, size);
  if (unit > 1) {
    it.sizes[it.ndim - 1] /= unit;
    for (int d = 0; d < it.ndim - 1; ++d)
      for (int o = 0; o < 2; ++o) it.strides[o][d] /= unit;
    it.normalize(true);
  }
  OffsetMap<2> map(it);
  auto launch = [&]<class Unit>() {
    e.launch(&move_kernel<Unit>, Encoder::blocks_for(it.total), kThreads, 0, map, static_cast<const Unit*>(from.data),
             static_cast<Unit*>(to.data), it.total, it.narrow);
  };
  switch (unit * size) {
    case 1:
      return launch.operator()<uint8_t>();
    case 2:
      return launch.operator()<uint16_t>();
    case 4:
      return launch.operator()<uint32_t>();
    case 8:
      return launch.operator()<uint2>();
    default:
      return launch.operator()<uint4>();
  }
}

void convert_strided(Encoder& e, const Iteration& it, const Operand& from, const Operand& to) {
  OffsetMap<2> map(it);
  dispatch_all(from.dtype, [&]<class From>() {
    e.launch(&convert_strided_kernel<From>, Encoder::blocks_for(it.total), kThreads, 0, map,
             static_cast<const stored_t<From>*>(from.data), to.data, to.dtype, it.total, it.narrow);
  });
}

// ---- Transposes. Rows are contiguous in `from`, columns in `to`; everything else is a batch.
struct TransposeArgs {
  int64_t rows, columns;        // in words
  int64_t from_row, to_column;  // strides in elements
  uint32_t row_tiles, column_tiles;
  OffsetMap<2> batch;
};

constexpr int kTileSide = 32, kTileRows = 8;

// A word is K elements of a row of `from`, and later K elements of a column: threads exchange K x K elements in
// registers, words through shared memory. Sizes and strides are multiples of K.
template <class Element, class Word>
__global__ void __launch_bounds__(kTileSide* kTileRows)
    transpose_kernel(const __grid_constant__ TransposeArgs a, const Element* from, Element* to) {
  constexpr int K = sizeof(Word) / sizeof(Element);
  __shared__ Word tile[K][kTileSide][kTileSide + 1];
  uint32_t column_tile = blockIdx.x % a.column_tiles, rest = blockIdx.x / a.column_tiles;
  uint32_t row_tile = rest % a.row_tiles, number = rest / a.row_tiles;
  int64_t at[2];
  a.batch.offsets(number, at);
  int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);

  // Word (row group r, word c): K words, one of each row in the group.
  int64_t c = static_cast<int64_t>(column_tile) * kTileSide + x;
#pragma unroll
  for (int j = 0; j < kTileSide; j += kTileRows) {
    int64_t r = static_cast<int64_t>(row_tile) * kTileSide + y + j;
    if (r >= a.rows || c >= a.columns) continue;
    Pack<Element, K> in[K];
#pragma unroll
    for (int k = 0; k < K; ++k)
      in[k] = *reinterpret_cast<const Pack<Element, K>*>(from + at[1] + (r * K + k) * a.from_row + c * K);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      Pack<Element, K> out;
#pragma unroll
      for (int i = 0; i < K; ++i) out.v[i] = in[i].v[k];
      tile[k][x][y + j] = *reinterpret_cast<Word*>(&out);
    }
  }
  __syncthreads();
  int64_t r = static_cast<int64_t>(row_tile) * kTileSide + x;
#pragma unroll
  for (int j = 0; j < kTileSide; j += kTileRows) {
    int64_t column = static_cast<int64_t>(column_tile) * kTileSide + y + j;
    if (r >= a.rows || column >= a.columns) continue;
#pragma unroll
    for (int k = 0; k < K; ++k)
      *reinterpret_cast<Word*>(to + at[0] + (column * K + k) * a.to_column + r * K) = tile[k][y + j][x];
  }
}

struct Transpose {
  int row_dim, column_dim;  // of the iteration: contiguous in `to`, contiguous in `from`
};

// Dims of a transpose worth a tile, if the iteration is one.
bool find_transpose(const Iteration& it, Transpose& t) {
  constexpr int64_t kWorthwhile = 16;
  int last = it.ndim - 1;
  if (it.ndim < 2 || it.strides[0][last] != 1 || it.strides[1][last] < 2 || it.sizes[last] < kWorthwhile) return false;
  for (int d = 0; d < last; ++d) {
    if (it.strides[1][d] != 1 || it.sizes[d] < kWorthwhile) continue;
    t = {last, d};
    return true;
  }
  return false;
}

// All strides, sizes and addresses are multiples of `words` elements.
bool moves_in_words(const Iteration& it, const Transpose& t, const Operand& from, const Operand& to, int64_t words) {
  auto bytes = words * static_cast<int64_t>(size_of(from.dtype));
  if (!aligned(from.data, bytes) || !aligned(to.data, bytes)) return false;
  if (it.sizes[t.row_dim] % words || it.sizes[t.column_dim] % words) return false;
  for (int d = 0; d < it.ndim; ++d) {
    if (d != t.row_dim && it.strides[0][d] % words) return false;
    if (d != t.column_dim && it.strides[1][d] % words) return false;
  }
  return true;
}

template <class Element, class Word>
bool launch_transpose(Encoder& e, const Iteration& it, const Transpose& t, const Operand& from, const Operand& to) {
  constexpr int64_t K = sizeof(Word) / sizeof(Element);
  int64_t rows = it.sizes[t.row_dim] / K, columns = it.sizes[t.column_dim] / K;
  int64_t row_tiles = (rows + kTileSide - 1) / kTileSide, column_tiles = (columns + kTileSide - 1) / kTileSide;
  int64_t sizes[kMaxDims], strides[2][kMaxDims];
  int dims = 0;
  for (int d = 0; d < it.ndim; ++d) {
    if (d == t.row_dim || d == t.column_dim) continue;
    sizes[dims] = it.sizes[d];
    for (int o = 0; o < 2; ++o) strides[o][dims] = it.strides[o][d];
    ++dims;
  }
  Iteration batch(dims, sizes);
  batch.add(strides[0]);
  batch.add(strides[1]);
  batch.normalize(true);
  if (!batch.narrow || row_tiles > INT32_MAX || column_tiles > INT32_MAX) return false;
  if (static_cast<double>(batch.total) * static_cast<double>(row_tiles) * static_cast<double>(column_tiles) > INT32_MAX)
    return false;
  TransposeArgs a{rows,
                  columns,
                  it.strides[1][t.row_dim],
                  it.strides[0][t.column_dim],
                  static_cast<uint32_t>(row_tiles),
                  static_cast<uint32_t>(column_tiles),
                  OffsetMap<2>(batch)};
  e.launch(&transpose_kernel<Element, Word>, static_cast<unsigned>(batch.total * row_tiles * column_tiles),
           dim3(kTileSide, kTileRows), 0, a, static_cast<const Element*>(from.data), static_cast<Element*>(to.data));
  return true;
}

bool transpose(Encoder& e, const Iteration& it, const Operand& from, const Operand& to) {
  Transpose t;
  if (!find_transpose(it, t)) return false;
  switch (size_of(from.dtype)) {
    case 1:
      if (moves_in_words(it, t, from, to, 4)) return launch_transpose<uint8_t, uint32_t>(e, it, t, from, to);
      return launch_transpose<uint8_t, uint8_t>(e, it, t, from, to);
    case 2:
      if (moves_in_words(it, t, from, to, 2)) return launch_transpose<uint16_t, uint32_t>(e, it, t, from, to);
      return launch_transpose<uint16_t, uint16_t>(e, it, t, from, to);
    case 4:
      return launch_transpose<uint32_t, uint32_t>(e, it, t, from, to);
    default:
      return launch_transpose<uint64_t, uint64_t>(e, it, t, from, to);
  }
}

// Few neighbours in `from` and many in `to`: going through `from` in order reads each cache line once, and its few
// columns are written in runs.
bool read_in_order(const Iteration& it) {
  int last = it.ndim - 1;
  if (it.strides[1][last] < 2) return false;
  for (int d = 0; d < last; ++d)
    if (it.strides[1][d] == 1) return it.sizes[d] < it.sizes[last];
  return false;
}

}  // namespace

void copy_strided(Encoder& e, const Operand& from, const Operand& to, int ndim, const int64_t* sizes) {
  Iteration it(ndim, sizes);
  it.add(to.strides);
  it.add(from.strides);
  it.normalize();
  if (it.total == 0) return;
  bool converts = from.dtype != to.dtype;
  if (it.linear(0) && it.linear(1)) {
    if (converts) return convert_dense(e, from, to, it.total);
    if (from.data != to.data) e.copy(to.data, from.data, static_cast<size_t>(it.total) * size_of(to.dtype));
    return;
  }
  if (converts) return convert_strided(e, it, from, to);
  if (transpose(e, it, from, to)) return;
  if (!read_in_order(it)) return move_strided(e, it, from, to);
  // Operand 0 decides the order: exchange roles for sorting only.
  Iteration by_source(ndim, sizes);
  by_source.add(from.strides);
  by_source.add(to.strides);
  by_source.normalize();
  for (int d = 0; d < by_source.ndim; ++d) std::swap(by_source.strides[0][d], by_source.strides[1][d]);
  move_strided(e, by_source, from, to);
}

namespace {

// A thread writes 16 bytes, which may belong to two lines.
template <class Unit>
__global__ void __launch_bounds__(kThreads)
    lines_kernel(const __grid_constant__ LinesCopy c, FastDivide by_length, int64_t total, bool narrow) {
  constexpr int kWidth = 16 / sizeof(Unit);
  const int64_t begin = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kWidth;
  if (begin >= total) return;
  int64_t line = narrow ? by_length.quotient(static_cast<uint32_t>(begin)) : begin / c.to_length;
  int64_t column = begin - line * c.to_length;
  const Unit* from = static_cast<const Unit*>(c.from);
  Pack<Unit, kWidth> values;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    values.v[k] = line < c.count && column < c.length ? from[line * c.step + column] : Unit{0};
    if (++column == c.to_length) column = 0, ++line;
  }
  Unit* to = static_cast<Unit*>(c.to) + begin;
  if (begin + kWidth <= total) {
    *reinterpret_cast<Pack<Unit, kWidth>*>(to) = values;
  } else {
    for (int k = 0; begin + k < total; ++k) to[k] = values.v[k];
  }
}

}  // namespace

void copy_lines(Encoder& e, const LinesCopy& c) {
  const int64_t total = c.to_count * c.to_length;
  if (total == 0) return;
  const bool narrow = total <= INT32_MAX;
  const FastDivide by_length(narrow ? static_cast<uint32_t>(c.to_length) : 1);
  const auto launch = [&](auto kernel) {
    const int64_t packs = (total * static_cast<int64_t>(c.size) + 15) / 16;
    e.launch(kernel, Encoder::blocks_for(packs, kThreads), kThreads, 0, c, by_length, total, narrow);
  };
  c.size == 2 ? launch(&lines_kernel<uint16_t>) : launch(&lines_kernel<uint32_t>);
}

}  // namespace deft::cuda
