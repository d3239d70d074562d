#include "kernels/cuda/copy/shape_ops.h"

#include <algorithm>

#include "kernels/cuda/index/index_math.cuh"

namespace deft::cuda {
namespace {

constexpr int kThreads = 256, kUnroll = 4;

// --- rows ------------------------------------------------------------------------------------------------------

constexpr int kBatch = 32;

// Pitches and row lengths in units of what one thread moves.
struct Rows {
  const void* from;
  void* to;
  int64_t total, from_pitch, to_pitch;
  Divider units;
};
struct RowBatch {
  Rows rows[kBatch];
};

template <class U>
__global__ void __launch_bounds__(kThreads) rows_kernel(RowBatch batch) {
  const Rows& r = batch.rows[blockIdx.y];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kThreads * kUnroll) + threadIdx.x;
  if (first >= r.total) return;
  const U* from = static_cast<const U*>(r.from);
  U* to = static_cast<U*>(r.to);
  U value[kUnroll];
  int64_t at[kUnroll];
#pragma unroll
  for (int k = 0; k < kUnroll; ++k) {
    const int64_t p = first + k * kThreads;
    if (p >= r.total) continue;
    int64_t unit, row = r.units.split(p, unit);
    value[k] = from[row * r.from_pitch + unit];
    at[k] = row * r.to_pitch + unit;
  }
#pragma unroll
  for (int k = 0; k < kUnroll; ++k)
    if (first + k * kThreads < r.total) to[at[k]] = value[k];
}

int64_t unit_of(const RowCopy& c) {
  int64_t all = 16 | reinterpret_cast<int64_t>(c.from) | reinterpret_cast<int64_t>(c.to) | c.bytes;
  if (c.rows > 1) all |= c.from_pitch | c.to_pitch;
  return all & -all;
}

void copy_batch(Encoder& e, const RowCopy* copies, int count) {
  int64_t unit = 16, most = 0;
  for (int i = 0; i < count; ++i) unit = std::min(unit, unit_of(copies[i]));
  RowBatch batch;
  for (int i = 0; i < count; ++i) {
    const RowCopy& c = copies[i];
    const int64_t units = c.bytes / unit, total = c.rows * units;
    batch.rows[i] = {c.from, c.to, total, c.from_pitch / unit, c.to_pitch / unit, Divider(units, total)};
    most = std::max(most, total);
  }
  auto kernel = unit == 16  ? &rows_kernel<uint4>
                : unit == 8 ? &rows_kernel<uint64_t>
                : unit == 4 ? &rows_kernel<uint32_t>
                : unit == 2 ? &rows_kernel<uint16_t>
                            : &rows_kernel<uint8_t>;
  e.launch(kernel, dim3(Encoder::blocks_for(most, kThreads * kUnroll), static_cast<unsigned>(count)), kThreads, 0,
           batch);
}

// --- triangle, one_hot, slice_backward -------------------------------------------------------------------------

template <class T>
__global__ void triangle_kernel(Walk<1> walk, int64_t total, const T* x, Divider rows, Divider cols, int64_t diagonal,
                                bool upper, T* out) {
  int64_t i = thread_number();
  if (i >= total) return;
  int64_t row, col;
  rows.split(cols.split(i, col), row);
  T value = 0;
  if (upper ? col >= row + diagonal : col <= row + diagonal) {
    int64_t at[1];
    walk.at(i, at);
    value = x[at[0]];
  }
  out[i] = value;
}

__global__ void one_hot_kernel(const int64_t* index, int64_t total, Divider classes, int64_t* out, FaultSite site) {
  int64_t i = thread_number();
  if (i >= total) return;
  int64_t c, row = classes.split(i, c), v = index[row];
  if (c == 0 && outside(v, classes.size) && first_of_warp()) raise_fault(site, v, row, classes.size - 1);
  out[i] = v == c;
}

template <class U>
__global__ void slice_kernel(int64_t total, Divider inner, Divider size, int64_t start, Divider step, int64_t count,
                             const U* g, U* out) {
  int64_t i = thread_number();
  if (i >= total) return;
  int64_t unit, at, rest;
  const int64_t outer = size.split(inner.split(i, unit), at);
  U value{};
  if (at >= start) {
    const int64_t k = step.split(at - start, rest);
    if (rest == 0 && k < count) value = g[(outer * count + k) * inner.size + unit];
  }
  out[i] = value;
}

}  // namespace

bool as_rows(int ndim, const int64_t* sizes, const Operand& from, const Operand& to, RowCopy& c) {
  if (from.dtype != to.dtype) return false;
  Iteration it(ndim, sizes);
  it.add(to.strides);
  it.add(from.strides);
  it.normalize();
  const int last = it.ndim - 1;
  const auto element = static_cast<int64_t>(size_of(from.dtype));
  const bool inner = it.sizes[last] == 1 || (it.strides[0][last] == 1 && it.strides[1][last] == 1);
  if (it.ndim > (inner ? 2 : 1)) return false;
  c = {from.data, to.data, 1, inner ? it.sizes[last] * element : element, 0, 0};
  if (it.ndim == 2 || !inner) {  // without a contiguous dim: rows of one element
    c.rows = it.sizes[0];
    c.to_pitch = it.strides[0][0] * element;
    c.from_pitch = it.strides[1][0] * element;
  }
  return true;
}

void copy_rows(Encoder& e, const std::vector<RowCopy>& copies) {
  for (size_t i = 0; i < copies.size(); i += kBatch)
    copy_batch(e, copies.data() + i, static_cast<int>(std::min<size_t>(kBatch, copies.size() - i)));
}

void triangle(Encoder& e, int ndim, const int64_t* sizes, const Operand& x, int64_t diagonal, bool upper, void* out) {
  Iteration it(ndim, sizes);
  it.add(x.strides);
  it.normalize(true);
  if (it.total == 0) return;
  const Divider rows(sizes[ndim - 2], it.total), cols(sizes[ndim - 1], it.total);
  dispatch_bits(x.dtype, [&]<class T>() {
    e.launch(&triangle_kernel<T>, Encoder::blocks_for(it.total), kThreads, 0, Walk<1>(it), it.total,
             static_cast<const T*>(x.data), rows, cols, diagonal, upper, static_cast<T*>(out));
  });
}

void one_hot(Encoder& e, const int64_t* index, int64_t count, int64_t classes, int64_t* out) {
  const int64_t total = count * classes;
  if (total == 0) return;
  const FaultSite site = e.fault_site(FaultKind::index, "{0}: class {1} at element {2} is outside 0 to {3}");
  e.launch(&one_hot_kernel, Encoder::blocks_for(total), kThreads, 0, index, total, Divider(classes, total), out, site);
}

void slice_backward(Encoder& e, DType dtype, int64_t outer, int64_t size, int64_t inner, int64_t start, int64_t step,
                    int64_t count, const void* g, void* out) {
  const int64_t bytes = inner * static_cast<int64_t>(size_of(dtype));
  const int64_t all = 16 | bytes | reinterpret_cast<int64_t>(g) | reinterpret_cast<int64_t>(out), unit = all & -all;
  const int64_t units = bytes / unit, total = outer * size * units;
  if (total == 0) return;
  auto run = [&]<class U>() {
    e.launch(&slice_kernel<U>, Encoder::blocks_for(total), kThreads, 0, total, Divider(units, total),
             Divider(size, total), start, Divider(step, size), count, static_cast<const U*>(g), static_cast<U*>(out));
  };
  switch (unit) {
    case 16:
      return run.template operator()<uint4>();
    case 8:
      return run.template operator()<uint64_t>();
    case 4:
      return run.template operator()<uint32_t>();
    case 2:
      return run.template operator()<uint16_t>();
    default:
      return run.template operator()<uint8_t>();
  }
}

}  // namespace deft::cuda
