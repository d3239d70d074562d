// Scans in up to three launches: totals of pieces of the lines, a scan of the totals, and the scan of every piece from
// the total before it. A piece is scanned by a warp along its line, or by one thread where lines are interleaved.
#include "kernels/cuda/elementwise/convert.cuh"
#include "kernels/cuda/reduce/scan.h"

namespace deft::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kItems = 4;  // neighbours a warp lane takes
constexpr int64_t kTile = 32 * kItems;

struct ScanArgs {
  const void* in;
  void* out;
  DType dtype;  // of integers
  int64_t n, lines, pieces, piece;
  int64_t in_step, out_step;
  bool product;
  bool narrow;
  OffsetMap<2> map;
};

struct AnyInteger {};
template <class T>
struct ProductOf {};

// m * 2^e: the product of a part may be beyond a double where that of the whole is not, or is 0.
struct Scaled {
  double m;
  int64_t e;
};
__device__ __forceinline__ Scaled normalized(double m, int64_t e) {
  if (m == 0 || !isfinite(m)) return {m, 0};
  int by;
  m = frexp(m, &by);
  return {m, e + by};
}

// How elements of T are read and written; A is what they are accumulated in.
template <class T>
struct Access {
  using A = double;
  __device__ static A load(const ScanArgs& a, int64_t at) { return convert<A>(static_cast<const T*>(a.in)[at]); }
  __device__ static void store(const ScanArgs& a, int64_t at, A v) { static_cast<T*>(a.out)[at] = convert<T>(v); }
};
template <class T>
struct Access<ProductOf<T>> {
  using A = Scaled;
  __device__ static A load(const ScanArgs& a, int64_t at) { return normalized(Access<T>::load(a, at), 0); }
  __device__ static void store(const ScanArgs& a, int64_t at, A v) {
    constexpr int64_t kBeyond = 4096;  // any double
    const int64_t e = v.e < -kBeyond ? -kBeyond : v.e > kBeyond ? kBeyond : v.e;
    Access<T>::store(a, at, ldexp(v.m, static_cast<int>(e)));
  }
};
template <>
struct Access<AnyInteger> {
  using A = uint64_t;  // overflow wraps
  __device__ static A load(const ScanArgs& a, int64_t at) {
    return static_cast<A>(load_as<int64_t>(a.in, a.dtype, at));
  }
  __device__ static void store(const ScanArgs& a, int64_t at, A v) {
    static_cast<int64_t*>(a.out)[at] = static_cast<int64_t>(v);
  }
};

template <class A>
__device__ __forceinline__ A join(const ScanArgs& a, A x, A y) {
  return a.product ? x * y : x + y;
}
__device__ __forceinline__ Scaled join(const ScanArgs&, Scaled x, Scaled y) { return normalized(x.m * y.m, x.e + y.e); }
template <class A>
__device__ __forceinline__ A neutral(const ScanArgs& a) {
  if constexpr (std::is_same_v<A, Scaled>)
    return {1, 0};
  else
    return a.product ? A(1) : A(0);
}

template <class A>
__device__ __forceinline__ A from_left(A v, int by) {
  return __shfl_up_sync(0xffffffffu, v, by);
}
__device__ __forceinline__ Scaled from_left(Scaled v, int by) { return {from_left(v.m, by), from_left(v.e, by)}; }
template <class A>
__device__ __forceinline__ A of_last_lane(A v) {
  return __shfl_sync(0xffffffffu, v, 31);
}
__device__ __forceinline__ Scaled of_last_lane(Scaled v) { return {of_last_lane(v.m), of_last_lane(v.e)}; }

__device__ __forceinline__ void line_offsets(const ScanArgs& a, int64_t line, int64_t (&at)[2]) {
  if (a.narrow)
    a.map.offsets(static_cast<uint32_t>(line), at);
  else
    a.map.offsets(line, at);
}

// Piece p of line l is item l * pieces + p.
template <class T, bool kTotals>
__global__ void __launch_bounds__(kThreads)
    scan_along(const __grid_constant__ ScanArgs a, typename Access<T>::A* totals) {
  using A = typename Access<T>::A;
  const int lane = threadIdx.x % 32;
  const int64_t item = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / 32;
  if (item >= a.lines * a.pieces) return;
  const int64_t begin = item % a.pieces * a.piece, end = begin + a.piece < a.n ? begin + a.piece : a.n;
  int64_t at[2];
  line_offsets(a, item / a.pieces, at);
  A carry = !kTotals && totals ? totals[item] : neutral<A>(a);
  for (int64_t tile = begin; tile < end; tile += kTile) {
    const int64_t first = tile + lane * kItems;
    A v[kItems];
#pragma unroll
    for (int k = 0; k < kItems; ++k)
      v[k] = first + k < end ? Access<T>::load(a, at[0] + (first + k) * a.in_step) : neutral<A>(a);
#pragma unroll
    for (int k = 1; k < kItems; ++k) v[k] = join(a, v[k - 1], v[k]);
    A sum = v[kItems - 1];
#pragma unroll
    for (int by = 1; by < 32; by *= 2) {
      A left = from_left(sum, by);
      if (lane >= by) sum = join(a, left, sum);
    }
    if constexpr (!kTotals) {
      A before = from_left(sum, 1);
      before = lane ? join(a, carry, before) : carry;
#pragma unroll
      for (int k = 0; k < kItems; ++k)
        if (first + k < end) Access<T>::store(a, at[1] + (first + k) * a.out_step, join(a, before, v[k]));
    }
    carry = join(a, carry, of_last_lane(sum));
  }
  if (kTotals && lane == 0) totals[item] = carry;
}

// Piece p of line l is item p * lines + l: neighbouring threads have neighbouring lines.
template <class T, bool kTotals>
__global__ void __launch_bounds__(kThreads)
    scan_side_by_side(const __grid_constant__ ScanArgs a, typename Access<T>::A* totals) {
  using A = typename Access<T>::A;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (item >= a.lines * a.pieces) return;
  const int64_t line = item % a.lines, piece = item / a.lines;
  const int64_t begin = piece * a.piece, end = begin + a.piece < a.n ? begin + a.piece : a.n;
  int64_t at[2];
  line_offsets(a, line, at);
  A carry = !kTotals && totals ? totals[line * a.pieces + piece] : neutral<A>(a);
  int64_t i = begin;
  for (; i + kItems <= end; i += kItems) {
    A v[kItems];
#pragma unroll
    for (int k = 0; k < kItems; ++k) v[k] = Access<T>::load(a, at[0] + (i + k) * a.in_step);
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      carry = join(a, carry, v[k]);
      if constexpr (!kTotals) Access<T>::store(a, at[1] + (i + k) * a.out_step, carry);
    }
  }
  for (; i < end; ++i) {
    carry = join(a, carry, Access<T>::load(a, at[0] + i * a.in_step));
    if constexpr (!kTotals) Access<T>::store(a, at[1] + i * a.out_step, carry);
  }
  if (kTotals) totals[line * a.pieces + piece] = carry;
}

// Totals of a line's pieces into what lies before each: one warp for a line.
template <class A>
__global__ void __launch_bounds__(kThreads) scan_totals(const __grid_constant__ ScanArgs a, A* totals) {
  const int lane = threadIdx.x % 32;
  const int64_t line = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / 32;
  if (line >= a.lines) return;
  A carry = neutral<A>(a);
  for (int64_t tile = 0; tile < a.pieces; tile += 32) {
    const int64_t p = tile + lane;
    A sum = p < a.pieces ? totals[line * a.pieces + p] : neutral<A>(a);
#pragma unroll
    for (int by = 1; by < 32; by *= 2) {
      A left = from_left(sum, by);
      if (lane >= by) sum = join(a, left, sum);
    }
    A before = from_left(sum, 1);
    if (p < a.pieces) totals[line * a.pieces + p] = lane ? join(a, carry, before) : carry;
    carry = join(a, carry, of_last_lane(sum));
  }
}

// Enough pieces to keep the device busy, but none so short that its total costs more than it saves.
void cut_lines(const Encoder& e, ScanArgs& a, bool side_by_side) {
  const int64_t threads = static_cast<int64_t>(e.multiprocessors()) * 1024;
  const int64_t workers = side_by_side ? threads : threads / 32, shortest = side_by_side ? 64 : 16 * kTile;
  int64_t pieces = workers / a.lines;
  if (pieces > a.n / shortest) pieces = a.n / shortest;
  if (pieces < 1) pieces = 1;
  a.piece = (a.n + pieces - 1) / pieces;
  if (!side_by_side) a.piece = (a.piece + kTile - 1) / kTile * kTile;
  a.pieces = (a.n + a.piece - 1) / a.piece;
}

template <class T>
void run_scan(Encoder& e, const ScanArgs& a, bool side_by_side) {
  using A = typename Access<T>::A;
  const int64_t items = a.lines * a.pieces;
  const unsigned blocks = Encoder::blocks_for(side_by_side ? items : items * 32);
  if (a.pieces == 1) {
    e.launch(side_by_side ? scan_side_by_side<T, false> : scan_along<T, false>, blocks, kThreads, 0, a,
             static_cast<A*>(nullptr));
    return;
  }
  Workspace totals(e, static_cast<size_t>(items) * sizeof(A));
  e.launch(side_by_side ? scan_side_by_side<T, true> : scan_along<T, true>, blocks, kThreads, 0, a, totals.as<A>());
  e.launch(scan_totals<A>, Encoder::blocks_for(a.lines * 32), kThreads, 0, a, totals.as<A>());
  e.launch(side_by_side ? scan_side_by_side<T, false> : scan_along<T, false>, blocks, kThreads, 0, a, totals.as<A>());
}

int64_t magnitude(int64_t v) { return v < 0 ? -v : v; }

// The first element along the dim comes last in a reverse scan.
void turn_round(void*& data, int64_t& step, size_t size, int64_t n) {
  data = static_cast<char*>(data) + (n - 1) * step * static_cast<int64_t>(size);
  step = -step;
}

}  // namespace

void scan(Encoder& e, const ScanCall& c) {
  int64_t sizes[kMaxDims], in[kMaxDims], out[kMaxDims];
  int rank = 0;
  for (int d = 0; d < c.ndim; ++d) {
    if (d == c.dim) continue;
    sizes[rank] = c.sizes[d];
    in[rank] = c.in.strides[d];
    out[rank++] = c.out.strides[d];
  }
  Iteration lines(rank, sizes);
  lines.add(in);
  lines.add(out);
  lines.normalize();
  const int64_t n = c.sizes[c.dim];
  if (n == 0 || lines.total == 0) return;
  void *from = c.in.data, *to = c.out.data;
  int64_t in_step = c.in.strides[c.dim], out_step = c.out.strides[c.dim];
  if (c.reverse) {
    turn_round(from, in_step, size_of(c.in.dtype), n);
    turn_round(to, out_step, size_of(c.out.dtype), n);
  }
  ScanArgs a{from, to,      c.in.dtype, n,         lines.total,  1,
             n,    in_step, out_step,   c.product, lines.narrow, OffsetMap<2>(lines)};
  const int64_t side_step = magnitude(lines.strides[0][lines.ndim - 1]);
  const bool neighbours = side_step != 0 && side_step < magnitude(in_step) && lines.sizes[lines.ndim - 1] >= 8;
  const bool side_by_side = neighbours || n <= 8;
  cut_lines(e, a, side_by_side);
  if (!is_floating(c.in.dtype)) return run_scan<AnyInteger>(e, a, side_by_side);
  const bool in_order = side_by_side && a.pieces == 1;  // no part is multiplied on its own
  dispatch_floating(c.in.dtype, [&]<class T>() {
    if (c.product && !in_order)
      run_scan<ProductOf<T>>(e, a, side_by_side);
    else
      run_scan<T>(e, a, side_by_side);
  });
}

void scan_bytes(Encoder& e, const uint8_t* in, int64_t* out, int64_t n) {
  ScanCall c;
  c.ndim = 1;
  c.sizes[0] = n;
  c.in.data = const_cast<uint8_t*>(in);
  c.in.dtype = DType::u8;
  c.out.data = out;
  c.out.dtype = DType::i64;
  c.in.strides[0] = c.out.strides[0] = 1;
  scan(e, c);
}

}  // namespace deft::cuda
