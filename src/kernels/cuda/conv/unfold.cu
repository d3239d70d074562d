#include "kernels/cuda/conv/unfold.h"

#include "kernels/cuda/elementwise/convert.cuh"
#include "kernels/cuda/index/index_math.cuh"

namespace deft::cuda {
namespace {

struct Window {
  int64_t in[2], out[2], stride[2], pad[2], dilation[2], kernel[2];
};
struct UnfoldSizes {
  Divider out[2], kernel[2];
};

template <class T>
__global__ void unfold_kernel(Window w, UnfoldSizes s, int64_t total, const T* x, T* columns) {
  int64_t i = thread_number();
  if (i >= total) return;
  int64_t o[2], k[2], rest = s.out[1].split(i, o[1]);
  rest = s.out[0].split(rest, o[0]);
  rest = s.kernel[1].split(rest, k[1]);
  const int64_t plane = s.kernel[0].split(rest, k[0]);
  const int64_t row = o[0] * w.stride[0] - w.pad[0] + k[0] * w.dilation[0];
  const int64_t col = o[1] * w.stride[1] - w.pad[1] + k[1] * w.dilation[1];
  const bool inside = row >= 0 && row < w.in[0] && col >= 0 && col < w.in[1];
  columns[i] = inside ? x[(plane * w.in[0] + row) * w.in[1] + col] : T(0);
}

// The window position that reads source s through tap t, or -1.
__device__ __forceinline__ int64_t position_of(const Window& w, const Divider& stride, int d, int64_t s, int64_t t) {
  const int64_t at = s + w.pad[d] - t * w.dilation[d];
  if (at < 0) return -1;
  int64_t rest, position = stride.split(at, rest);
  return rest != 0 || position >= w.out[d] ? -1 : position;
}

struct FoldSizes {
  Divider in[2], stride[2];
};

template <class T>
__global__ void fold_kernel(Window w, FoldSizes s, int64_t total, const T* columns, T* x) {
  using Acc = std::conditional_t<std::is_integral_v<T>, uint64_t, accumulate_t<T>>;
  int64_t i = thread_number();
  if (i >= total) return;
  int64_t row, col, plane = s.in[1].split(i, col);
  plane = s.in[0].split(plane, row);
  const T* block = columns + plane * w.kernel[0] * w.kernel[1] * w.out[0] * w.out[1];
  Acc sum = 0;
  for (int64_t a = 0; a < w.kernel[0]; ++a) {
    const int64_t y = position_of(w, s.stride[0], 0, row, a);
    if (y < 0) continue;
    for (int64_t b = 0; b < w.kernel[1]; ++b) {
      const int64_t z = position_of(w, s.stride[1], 1, col, b);
      if (z < 0) continue;
      sum += convert<Acc>(block[((a * w.kernel[1] + b) * w.out[0] + y) * w.out[1] + z]);
    }
  }
  x[i] = convert<T>(sum);
}

Window window_of(const UnfoldCall& c) {
  Window w;
  for (int d = 0; d < 2; ++d) {
    w.in[d] = c.in[d];
    w.out[d] = c.out[d];
    w.stride[d] = c.stride[d];
    w.pad[d] = c.pad[d];
    w.dilation[d] = c.dilation[d];
    w.kernel[d] = c.kernel[d];
  }
  return w;
}

}  // namespace

void unfold(Encoder& e, const UnfoldCall& c, const void* x, void* columns) {
  const int64_t total = c.planes * c.kernel[0] * c.kernel[1] * c.out[0] * c.out[1];
  if (total == 0) return;
  UnfoldSizes s;
  for (int d = 0; d < 2; ++d) {
    s.out[d] = Divider(c.out[d], total);
    s.kernel[d] = Divider(c.kernel[d], total);
  }
  dispatch_bits(c.dtype, [&]<class T>() {
    e.launch(&unfold_kernel<T>, Encoder::blocks_for(total), 256, 0, window_of(c), s, total, static_cast<const T*>(x),
             static_cast<T*>(columns));
  });
}

void fold(Encoder& e, const UnfoldCall& c, const void* columns, void* x) {
  const int64_t total = c.planes * c.in[0] * c.in[1];
  if (total == 0) return;
  FoldSizes s;
  for (int d = 0; d < 2; ++d) {
    s.in[d] = Divider(c.in[d], total);
    s.stride[d] = Divider(c.stride[d], c.in[d] + c.pad[d]);
  }
  dispatch_all(c.dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>)
      e.launch(&fold_kernel<T>, Encoder::blocks_for(total), 256, 0, window_of(c), s, total,
               static_cast<const T*>(columns), static_cast<T*>(x));
  });
}

}  // namespace deft::cuda
