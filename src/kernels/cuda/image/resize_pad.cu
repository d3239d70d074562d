#include "kernels/cuda/elementwise/convert.cuh"
#include "kernels/cuda/image/resize.h"
#include "kernels/cuda/index/index_math.cuh"

namespace deft::cuda {
namespace {

struct PadDim {
  int64_t in = 1, before = 0, stride = 0;
  Divider out;
};
struct PadMap {
  PadKind kind;
  int ndim = 0;
  PadDim dims[kMaxDims];
};

// Where output position o of a dim comes from; -1 for the constant.
__device__ __forceinline__ int64_t pad_source(PadKind kind, int64_t n, int64_t i) {
  if (i >= 0 && i < n) return i;
  switch (kind) {
    case PadKind::constant:
      return -1;
    case PadKind::replicate:
      return i < 0 ? 0 : n - 1;
    case PadKind::reflect:
      return i < 0 ? -i : 2 * (n - 1) - i;
    default:
      return i < 0 ? i + n : i - n;
  }
}

template <class T>
__global__ void pad_kernel(PadMap m, int64_t total, T value, const T* x, T* y) {
  int64_t i = thread_number();
  if (i >= total) return;
  int64_t rest = i, from = 0, at;
  bool inside = true;
  for (int d = m.ndim - 1; d >= 0; --d) {
    rest = m.dims[d].out.split(rest, at);
    const int64_t s = pad_source(m.kind, m.dims[d].in, at - m.dims[d].before);
    inside = inside && s >= 0;
    from += s * m.dims[d].stride;
  }
  y[i] = inside ? x[from] : value;
}

// Three axes, those that are not there in front.
struct PadAxis {
  int64_t in = 1, out = 1, before = 0;
};
struct PadGrid {
  PadKind kind;
  PadAxis axis[3];
  Divider inner, size[3];
  int64_t total;
};

// The outputs that copy input i, as up to three ranges in ascending order.
struct Copies {
  int64_t begin[3], end[3];
};
__device__ __forceinline__ Copies copies_of(PadKind kind, const PadAxis& a, int64_t i) {
  const int64_t own = i + a.before;
  Copies c{{0, own, 0}, {0, own + 1, 0}};
  if (kind == PadKind::replicate) {
    if (i == 0) c.begin[1] = 0;
    if (i == a.in - 1) c.end[1] = a.out;
    return c;
  }
  const bool reflect = kind == PadKind::reflect;
  const int64_t left = reflect ? a.before - i : own - a.in;
  const int64_t right = reflect ? a.before + 2 * (a.in - 1) - i : own + a.in;
  if (left >= 0 && left < a.before) c.begin[0] = left, c.end[0] = left + 1;
  if (right >= a.before + a.in && right < a.out) c.begin[2] = right, c.end[2] = right + 1;
  return c;
}

template <class T>
__global__ void pad_backward_kernel(PadGrid g, const T* dy, T* dx) {
  using Acc = accumulate_t<T>;
  int64_t i = thread_number();
  if (i >= g.total) return;
  int64_t inner, at[3], outer = g.inner.split(i, inner);
#pragma unroll
  for (int k = 2; k >= 0; --k) outer = g.size[k].split(outer, at[k]);
  Copies c[3];
#pragma unroll
  for (int k = 0; k < 3; ++k) c[k] = copies_of(g.kind, g.axis[k], at[k]);
  Acc sum = 0;
#pragma unroll
  for (int a = 0; a < 3; ++a)
    for (int64_t z = c[0].begin[a]; z < c[0].end[a]; ++z) {
#pragma unroll
      for (int b = 0; b < 3; ++b)
        for (int64_t y = c[1].begin[b]; y < c[1].end[b]; ++y) {
          const int64_t row = ((outer * g.axis[0].out + z) * g.axis[1].out + y) * g.axis[2].out;
#pragma unroll
          for (int d = 0; d < 3; ++d)
            for (int64_t x = c[2].begin[d]; x < c[2].end[d]; ++x)
              sum += convert<Acc>(dy[(row + x) * g.inner.size + inner]);
        }
    }
  dx[i] = convert<T>(sum);
}

// The dims of `c`, neighbours that are not padded merged where the strides allow it.
PadMap map_of(const PadCall& c, int64_t total) {
  PadMap m;
  m.kind = c.kind;
  int64_t out[kMaxDims];
  bool plain = false;
  for (int d = 0; d < c.ndim; ++d) {
    const bool padded = c.before[d] != 0 || c.after[d] != 0;
    const int64_t size = c.sizes[d] + c.before[d] + c.after[d];
    if (!padded && size == 1) continue;
    PadDim& last = m.dims[m.ndim > 0 ? m.ndim - 1 : 0];
    if (m.ndim > 0 && plain && !padded && last.stride == c.strides[d] * c.sizes[d]) {
      last.in *= c.sizes[d];
      last.stride = c.strides[d];
      out[m.ndim - 1] *= size;
    } else {
      m.dims[m.ndim] = {c.sizes[d], c.before[d], c.strides[d], {}};
      out[m.ndim++] = size;
    }
    plain = !padded;
  }
  for (int d = 0; d < m.ndim; ++d) m.dims[d].out = Divider(out[d], total);
  return m;
}

}  // namespace

void pad_forward(Encoder& e, const PadCall& c, const void* x, void* y) {
  int64_t total = 1;
  for (int d = 0; d < c.ndim; ++d) total *= c.sizes[d] + c.before[d] + c.after[d];
  if (total == 0) return;
  const PadMap map = map_of(c, total);
  dispatch_bits(c.dtype, [&]<class T>() {
    e.launch(&pad_kernel<T>, Encoder::blocks_for(total), 256, 0, map, total, static_cast<T>(c.value),
             static_cast<const T*>(x), static_cast<T*>(y));
  });
}

void pad_backward(Encoder& e, const PadCall& c, const void* dy, void* dx) {
  int first = 0, last = c.ndim;
  int64_t outer = 1, inner = 1;
  while (first < c.ndim && c.before[first] == 0 && c.after[first] == 0) outer *= c.sizes[first++];
  while (last > first && c.before[last - 1] == 0 && c.after[last - 1] == 0) inner *= c.sizes[--last];
  PadGrid g;
  g.kind = c.kind;
  g.total = outer * inner;
  for (int k = 0; k < 3; ++k) {
    const int d = last - 3 + k;
    if (d >= first) g.axis[k] = {c.sizes[d], c.sizes[d] + c.before[d] + c.after[d], c.before[d]};
    g.total *= g.axis[k].in;
  }
  if (g.total == 0) return;
  g.inner = Divider(inner, g.total);
  for (int k = 0; k < 3; ++k) g.size[k] = Divider(g.axis[k].in, g.total);
  dispatch_floating(c.dtype, [&]<class T>() {
    e.launch(&pad_backward_kernel<T>, Encoder::blocks_for(g.total), 256, 0, g, static_cast<const T*>(dy),
             static_cast<T*>(dx));
  });
}

}  // namespace deft::cuda
