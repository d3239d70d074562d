// How the kernels of batch and group norm walk NCHW planes and NHWC rows, and the affine map both passes end with.
#pragma once

#include <algorithm>

#include "kernels/cuda/device/iteration.h"
#include "kernels/cuda/norm/channel_norm.h"
#include "kernels/cuda/reduce/block_reduce.cuh"

namespace deft::cuda {

inline constexpr int kChannelThreads = 256;
// Threads of a block that adds up `parts` partial sums: a few for each. One warp took 12 us for a norm of ResNet-50.
inline unsigned finish_threads(int64_t parts) {
  return static_cast<unsigned>(std::clamp<int64_t>((parts / 4 + 31) / 32 * 32, 32, kChannelThreads));
}
// Blocks that sum NHWC rows, per multiprocessor. Each leaves a part per channel for the finish to read: a step
// of ResNet-50 in bf16 takes 19.2 ms with 2, 19.7 with 4, 20.3 with 8.
inline constexpr int kResidentBlocks = 2;
// Packs a thread has in flight.
template <int kVec>
inline constexpr int kChannelItems = kVec == 1 ? 8 : 4;

// The segments that NCHW planes are summed over: each has `parts` runs of `length` elements, part_stride apart, and is
// cut into chunks, one for a block. Runs are counted in packs of kVec.
struct Segments {
  int64_t count, stride;
  int64_t parts, length, part_stride;  // length in packs, strides in elements
  FastDivide by_length;
  bool narrow;
  int64_t chunks, chunk;  // chunk in packs
  int threads;

  Segments(const Encoder& e, int64_t segments, int64_t segment_stride, int64_t part_count, int64_t part_length,
           int64_t stride_of_parts, int vec)
      : count(segments),
        stride(segment_stride),
        parts(part_count),
        length(part_length / vec),
        part_stride(stride_of_parts),
        narrow(packs() < INT32_MAX) {
    if (narrow) by_length = FastDivide(static_cast<uint32_t>(std::max<int64_t>(1, length)));
    threads = 32;
    while (threads < kChannelThreads && threads * 2 < packs()) threads *= 2;
    const int64_t wanted = (8 * e.multiprocessors() + count - 1) / count;
    const int64_t most = (packs() + threads * 4 - 1) / (threads * 4);
    chunks = std::max<int64_t>(1, std::min(wanted, most));
    chunk = (packs() + chunks - 1) / chunks;
    chunks = (packs() + chunk - 1) / chunk;
  }
  constexpr int64_t packs() const { return parts * length; }
  constexpr int64_t units() const { return count * chunks; }  // each is work for a block

  __device__ __forceinline__ int64_t offset(int64_t pack, int vec) const {
    if (parts == 1) return pack * vec;
    const int64_t part = narrow ? by_length.quotient(static_cast<uint32_t>(pack)) : pack / length;
    return part * part_stride + (pack - part * length) * vec;
  }
};

// NHWC rows of c elements: a block has 2^log_x threads along channels, the others along the `rows` rows of an
// image, of which it works on a chunk.
struct NhwcRows {
  int log_x = 0;
  int64_t images, rows, c, strips, chunks, chunk;

  NhwcRows(const Encoder& e, const ChannelsView& v, int vec, int blocks_per_processor)
      : images(v.n), rows(v.s), c(v.c) {
    const int64_t packs = c / vec;
    while (log_x < 5 && (int64_t{1} << log_x) < packs) ++log_x;
    strips = (packs + (int64_t{1} << log_x) - 1) >> log_x;
    const int64_t wanted = (blocks_per_processor * e.multiprocessors() + images * strips - 1) / (images * strips);
    const int64_t least = int64_t{4} * (kChannelThreads >> log_x);
    chunks = std::max<int64_t>(1, std::min(wanted, (rows + least - 1) / least));
    chunk = (rows + chunks - 1) / chunks;
    chunks = (rows + chunk - 1) / chunk;
  }
  constexpr int64_t units() const { return images * chunks * strips; }  // each is work for a block
  // One for each unit: too many for a grid fail to launch.
  unsigned blocks() const { return static_cast<unsigned>(std::min<int64_t>(units(), UINT32_MAX)); }
};

// The place of a thread in NhwcRows: strips are next to each other.
template <int kVec>
struct LastPlace {
  int x, y, height;
  int64_t image, part, channel, begin, end;
  bool live;
  __device__ __forceinline__ explicit LastPlace(const NhwcRows& r, int64_t block = blockIdx.x) {
    x = threadIdx.x & ((1 << r.log_x) - 1);
    y = threadIdx.x >> r.log_x;
    height = kChannelThreads >> r.log_x;
    const int64_t unit = block / r.strips, strip = block - unit * r.strips;
    image = unit / r.chunks;
    part = unit - image * r.chunks;
    channel = ((strip << r.log_x) + x) * kVec;
    live = channel < r.c;
    begin = part * r.chunk;
    end = min(begin + r.chunk, r.rows);
  }
  // Element number of row `row` of the image.
  __device__ __forceinline__ int64_t at(const NhwcRows& r, int64_t row) const {
    return (image * r.rows + row) * r.c + channel;
  }
};

// Rounded as if it had been stored.
template <class T, class A>
__device__ __forceinline__ A rounded(A v) {
  return convert<A>(convert<T>(v));
}
// The gradient that a relu passes, by its result.
template <class A>
__device__ __forceinline__ A passed(A g, A result) {
  return result <= A(0) ? A(0) : g;
}

// norm = of_x * (x - center) + offset, with coefficients per entry: one per channel (batch norm) or plane (group norm).
enum class MapKind {
  sum,      // of_g * other + norm
  gated,    // the same where the norm of the gate's coefficients is not <= 0, otherwise norm
  relu_sum  // relu(norm + other)
};
template <class A>
struct MapTable {
  A *of_g, *of_x, *center, *offset;
  const A *gate_of_x = nullptr, *gate_offset = nullptr;
};
// `other` may be null; out may be other or x.
template <class T>
void map_channels(Encoder& e, const ChannelsView& v, bool per_plane, MapKind kind, const T* other, const T* x,
                  const MapTable<accumulate_t<T>>& m, T* out);

}  // namespace deft::cuda
