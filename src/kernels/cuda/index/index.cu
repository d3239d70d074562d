#include "kernels/cuda/index/index.h"

#include "kernels/cuda/index/index_math.cuh"
#include "kernels/cuda/index/index_report.h"

namespace deft::cuda {
namespace {

// --- gather ----------------------------------------------------------------------------------------------------

// Operands of the walk: source (without its step along dim), index, out, position of the index in the user's tensor.
template <class T>
__global__ void gather_kernel(Walk<4> walk, int64_t total, const T* src, const int64_t* index, T* out, int64_t step,
                              int64_t size, BadIndex bad) {
  int64_t i = thread_number();
  if (i >= total) return;
  int64_t at[4];
  walk.at(i, at);
  int64_t v = index[at[1]];
  T value = 0;
  if (outside(v, size))
    report(bad, v, size, at[3]);
  else
    value = src[at[0] + v * step];
  out[at[2]] = value;
}

// --- index_select ----------------------------------------------------------------------------------------------

constexpr int kThreads = 256, kUnroll = 4;

// Blocks of `units` values of type U; strides of the source in such values.
struct BlockCopy {
  const void* src;
  int64_t src_outer, src_step;
  const int64_t* index;
  int64_t index_step, size;
  void* out;
  Divider units, count;
  int64_t total;
};

// All loads of a thread are on their way before its first store.
template <class U>
__global__ void __launch_bounds__(kThreads) select_blocks(BlockCopy c, BadIndex bad) {
  const U* src = static_cast<const U*>(c.src);
  U* out = static_cast<U*>(c.out);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kThreads * kUnroll) + threadIdx.x;
  int64_t from[kUnroll];
  bool good[kUnroll];
#pragma unroll
  for (int k = 0; k < kUnroll; ++k) {
    int64_t p = first + k * kThreads, unit, i;
    good[k] = p < c.total;
    if (!good[k]) continue;
    int64_t outer = c.count.split(c.units.split(p, unit), i);
    int64_t v = c.index[i * c.index_step];
    from[k] = outer * c.src_outer + v * c.src_step + unit;
    if (outside(v, c.size)) {
      report(bad, v, c.size, i);
      good[k] = false;
    }
  }
  U value[kUnroll];
#pragma unroll
  for (int k = 0; k < kUnroll; ++k) value[k] = good[k] ? src[from[k]] : U{};
#pragma unroll
  for (int k = 0; k < kUnroll; ++k)
    if (first + k * kThreads < c.total) out[first + k * kThreads] = value[k];
}

// The dims [from, to) as one: its stride, or false.
bool merged_stride(const IndexSpace& s, const Operand& o, int from, int to, int64_t& stride) {
  int64_t size = 1;
  stride = 0;
  for (int d = to - 1; d >= from; --d) {
    if (s.sizes[d] == 1) continue;
    if (size == 1) stride = o.strides[d];
    if (o.strides[d] != stride * size) return false;
    size *= s.sizes[d];
  }
  return true;
}

bool contiguous(const IndexSpace& s, const Operand& o) {
  int64_t next = 1;
  for (int d = s.ndim - 1; d >= 0; --d) {
    if (s.sizes[d] != 1 && o.strides[d] != next) return false;
    next *= s.sizes[d];
  }
  return true;
}

// The largest power of two up to 16 that divides all.
int64_t common_unit(std::initializer_list<int64_t> bytes) {
  int64_t all = 16;
  for (int64_t b : bytes) all |= b;
  return all & -all;
}

bool select_as_blocks(Encoder& e, const IndexSpace& s, const Operand& src, const Operand& index, const Operand& out,
                      const BadIndex& bad) {
  int64_t outer_stride, inner_stride, inner = 1, outer = 1;
  if (!contiguous(s, out) || !merged_stride(s, src, 0, s.dim, outer_stride) ||
      !merged_stride(s, src, s.dim + 1, s.ndim, inner_stride))
    return false;
  for (int d = 0; d < s.dim; ++d) outer *= s.sizes[d];
  for (int d = s.dim + 1; d < s.ndim; ++d) inner *= s.sizes[d];
  if (inner > 1 && inner_stride != 1) return false;
  const int64_t element = static_cast<int64_t>(size_of(src.dtype)), count = s.sizes[s.dim];
  const int64_t unit =
      common_unit({inner * element, reinterpret_cast<int64_t>(src.data), reinterpret_cast<int64_t>(out.data),
                   src.strides[s.dim] * element, outer_stride * element});
  BlockCopy c;
  c.src = src.data;
  c.src_outer = outer_stride * element / unit;
  c.src_step = src.strides[s.dim] * element / unit;
  c.index = static_cast<const int64_t*>(index.data);
  c.index_step = index.strides[s.dim];
  c.size = s.dim_size;
  c.out = out.data;
  const int64_t units = inner * element / unit;
  c.total = outer * count * units;
  c.units = Divider(units, c.total);
  c.count = Divider(count, c.total);
  auto kernel = unit == 16  ? &select_blocks<uint4>
                : unit == 8 ? &select_blocks<uint64_t>
                : unit == 4 ? &select_blocks<uint32_t>
                : unit == 2 ? &select_blocks<uint16_t>
                            : &select_blocks<uint8_t>;
  e.launch(kernel, Encoder::blocks_for(c.total, kThreads * kUnroll), kThreads, 0, c, bad);
  return true;
}

__global__ void check_kernel(const int64_t* index, int64_t step, int64_t count, int64_t size, BadIndex bad) {
  int64_t i = thread_number();
  if (i >= count) return;
  int64_t v = index[i * step];
  if (outside(v, size)) report(bad, v, size, i);
}

// --- linear positions ------------------------------------------------------------------------------------------

// Operands: index, position in the user's tensor.
__global__ void fold_kernel(Walk<2> walk, int64_t total, const int64_t* index, int64_t size, bool first, FaultSite site,
                            int64_t last, int64_t* linear) {
  int64_t i = thread_number();
  if (i >= total) return;
  int64_t at[2];
  walk.at(i, at);
  int64_t v = index[at[0]], before = first ? 0 : linear[i];
  if (v < -size || v >= size) {
    if (first_of_warp()) raise_fault(site, v, size, at[1], last);
    before = -1;
  }
  linear[i] = before < 0 ? -1 : before * size + (v < 0 ? v + size : v);
}

struct Dims {
  int ndim;
  int64_t sizes[kMaxDims], strides[kMaxDims];
};

// linear == nullptr: positions 0, 1, 2, ...
__global__ void offsets_kernel(Dims d, const int64_t* linear, int64_t count, int64_t* out) {
  int64_t i = thread_number();
  if (i >= count) return;
  int64_t rest = linear ? linear[i] : i, at = 0;
  if (rest < 0) {
    out[i] = -1;
    return;
  }
  for (int k = d.ndim - 1; k >= 0; --k) {
    at += rest % d.sizes[k] * d.strides[k];
    rest /= d.sizes[k];
  }
  out[i] = at;
}

Dims dims_of(int ndim, const int64_t* sizes, const int64_t* strides) {
  Dims d{ndim, {}, {}};
  for (int i = 0; i < ndim; ++i) d.sizes[i] = sizes[i], d.strides[i] = strides[i];
  return d;
}

// --- losses ----------------------------------------------------------------------------------------------------

__global__ void targets_kernel(const int64_t* target, int64_t count, int64_t classes, int64_t ignore, int64_t* safe,
                               bool* ignored, FaultSite site) {
  int64_t i = thread_number();
  if (i >= count) return;
  int64_t t = target[i];
  bool skip = t == ignore, good = !outside(t, classes);
  if (!skip && !good && first_of_warp()) raise_fault(site, t, i, classes, ignore);
  ignored[i] = skip;
  safe[i] = skip || !good ? 0 : t;
}

template <class T>
__global__ void edges_kernel(const T* x, int64_t count, T limit, bool* edge, FaultSite site) {
  int64_t i = thread_number();
  if (i >= count) return;
  T v = x[i];
  if ((v < T(0) || v > T(1)) && first_of_warp()) raise_fault(site, i);
  edge[i] = v * (T(1) - v) <= limit;
}

}  // namespace

BadIndex bad_index(const Encoder& e, const IndexSpace& s) {
  if (s.checked) return {{}, 1, true};
  const int rank = s.list ? 1 : s.ndim;
  const char* text = rank == 1   ? "{0}: found index {1} at position {3}, expected 0 <= index < {2}"
                     : rank == 2 ? "{0}: found index {1} at position ({3}, {4}), expected 0 <= index < {2}"
                                 : "{0}: found index {1} at position {3} of the flat index, expected 0 <= index < {2}";
  return {e.fault_site(FaultKind::index, text), rank == 2 ? s.sizes[1] : 1, false};
}

void gather(Encoder& e, const IndexSpace& s, const Operand& src, const Operand& index, const Operand& out) {
  if (s.numel() == 0) return;
  int64_t base[kMaxDims], position[kMaxDims], next = 1;
  for (int d = s.ndim - 1; d >= 0; --d) {
    base[d] = d == s.dim ? 0 : src.strides[d];
    position[d] = s.list ? d == s.dim : next;
    next *= s.sizes[d];
  }
  Iteration it(s.ndim, s.sizes);
  it.add(base);
  it.add(index.strides);
  it.add(out.strides);
  it.add(position);
  it.normalize(true);
  dispatch_bits(src.dtype, [&]<class T>() {
    e.launch(&gather_kernel<T>, Encoder::blocks_for(it.total), 256, 0, Walk<4>(it), it.total,
             static_cast<const T*>(src.data), static_cast<const int64_t*>(index.data), static_cast<T*>(out.data),
             src.strides[s.dim], s.dim_size, bad_index(e, s));
  });
}

void index_select(Encoder& e, const IndexSpace& s, const Operand& src, const Operand& index, const Operand& out) {
  if (s.numel() == 0) {
    // Nothing to read, but bad indices are errors all the same.
    if (!s.checked)
      check_indices(e, static_cast<const int64_t*>(index.data), index.strides[s.dim], s.sizes[s.dim], s.dim_size);
    return;
  }
  if (!select_as_blocks(e, s, src, index, out, bad_index(e, s))) gather(e, s, src, index, out);
}

void check_indices(Encoder& e, const int64_t* index, int64_t step, int64_t count, int64_t size) {
  if (count == 0) return;
  IndexSpace s{1, {count}, 0, size, true};
  e.launch(&check_kernel, Encoder::blocks_for(count), 256, 0, index, step, count, size, bad_index(e, s));
}

void fold_index(Encoder& e, const FoldIndex& f, int64_t* linear) {
  Iteration it(f.ndim, f.sizes);
  it.add(f.strides);
  it.add(f.position_strides);
  it.normalize(true);
  if (it.total == 0) return;
  e.launch(&fold_kernel, Encoder::blocks_for(it.total), 256, 0, Walk<2>(it), it.total, f.index, f.size, f.first, f.site,
           f.last, linear);
}

void index_offsets(Encoder& e, const int64_t* linear, int64_t count, int ndim, const int64_t* sizes,
                   const int64_t* strides, int64_t* out) {
  if (count == 0) return;
  e.launch(&offsets_kernel, Encoder::blocks_for(count), 256, 0, dims_of(ndim, sizes, strides), linear, count, out);
}

void region_offsets(Encoder& e, int ndim, const int64_t* sizes, const int64_t* strides, int64_t* out) {
  int64_t count = 1;
  for (int d = 0; d < ndim; ++d) count *= sizes[d];
  index_offsets(e, nullptr, count, ndim, sizes, strides, out);
}

void class_targets(Encoder& e, const int64_t* target, int64_t count, int64_t classes, int64_t ignore, int64_t* safe,
                   bool* ignored, const FaultSite& site) {
  if (count == 0) return;
  e.launch(&targets_kernel, Encoder::blocks_for(count), 256, 0, target, count, classes, ignore, safe, ignored, site);
}

void probability_edges(Encoder& e, DType dtype, const void* x, int64_t count, double limit, bool* edge,
                       const FaultSite& site) {
  if (count == 0) return;
  auto run = [&]<class T>() {
    e.launch(&edges_kernel<T>, Encoder::blocks_for(count), 256, 0, static_cast<const T*>(x), count,
             static_cast<T>(limit), edge, site);
  };
  if (dtype == DType::f64)
    run.template operator()<double>();
  else
    run.template operator()<float>();
}

}  // namespace deft::cuda
