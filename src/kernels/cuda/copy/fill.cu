#include "kernels/cuda/copy/fill.h"
#include "kernels/cuda/elementwise/convert.cuh"

namespace deft::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kPacksPerThread = 4;
constexpr int64_t kPacksPerBlock = kThreads * kPacksPerThread;

struct alignas(16) Pattern {  // an element, repeated
  uint8_t bytes[16];
};

// `head` bytes up to the first 16-byte boundary, `packs` times 16 bytes, `tail` bytes. The pattern starts anew at each
// boundary, since all counts are multiples of the element's size.
__global__ void __launch_bounds__(kThreads)
    fill_bytes_kernel(uint8_t* to, int head, int64_t packs, int tail, const __grid_constant__ Pattern pattern) {
  int thread = static_cast<int>(threadIdx.x);
  if (blockIdx.x == 0) {
    if (thread < head) to[thread] = pattern.bytes[thread];
    if (thread < tail) to[head + packs * 16 + thread] = pattern.bytes[thread];
  }
  uint4 value = *reinterpret_cast<const uint4*>(pattern.bytes);
  auto* out = reinterpret_cast<uint4*>(to + head);
  int64_t begin = static_cast<int64_t>(blockIdx.x) * kPacksPerBlock + thread;
#pragma unroll
  for (int u = 0; u < kPacksPerThread; ++u)
    if (begin + u * kThreads < packs) out[begin + u * kThreads] = value;
}

void fill_dense(Encoder& e, void* data, size_t size, int64_t n, const void* value) {
  Pattern pattern;
  bool zero = true;
  for (size_t i = 0; i < sizeof pattern; ++i) {
    pattern.bytes[i] = static_cast<const uint8_t*>(value)[i % size];
    zero &= pattern.bytes[i] == 0;
  }
  int64_t bytes = n * static_cast<int64_t>(size);
  if (zero) return e.zero(data, static_cast<size_t>(bytes));
  int64_t head = static_cast<int64_t>(-reinterpret_cast<uintptr_t>(data) % 16);
  if (head > bytes) head = bytes;
  int64_t packs = (bytes - head) / 16, tail = (bytes - head) % 16;
  int64_t blocks = (packs + kPacksPerBlock - 1) / kPacksPerBlock;
  e.launch(&fill_bytes_kernel, static_cast<unsigned>(blocks > 0 ? blocks : 1), kThreads, 0, static_cast<uint8_t*>(data),
           head, packs, tail, pattern);
}

template <class Bits>
__global__ void __launch_bounds__(kThreads)
    fill_strided_kernel(const __grid_constant__ OffsetMap<1> map, Bits* to, int64_t n, bool narrow, Bits value) {
  int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= n) return;
  int64_t at[1];
  if (narrow)
    map.offsets(static_cast<uint32_t>(index), at);
  else
    map.offsets(index, at);
  to[at[0]] = value;
}

// No fused multiply-add, so that results are those of the CPU.
__device__ double real_value(const Sequence& s, int64_t i) {
  if (s.kind == Sequence::Kind::real || 2 * i < s.count)
    return __dadd_rn(s.first, __dmul_rn(static_cast<double>(i), s.slope));
  return __dsub_rn(s.last, __dmul_rn(static_cast<double>(s.count - 1 - i), s.slope));
}

__global__ void __launch_bounds__(kThreads) sequence_kernel(void* to, DType dtype, const __grid_constant__ Sequence s) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= s.count) return;
  if (s.kind == Sequence::Kind::whole)
    store_as<int64_t>(to, dtype, i, s.start + i * s.step);
  else if (s.kind == Sequence::Kind::diagonal)
    store_as<int64_t>(to, dtype, i, i / s.columns == i % s.columns ? 1 : 0);
  else
    store_as<double>(to, dtype, i, real_value(s, i));
}

}  // namespace

void fill_strided(Encoder& e, const Operand& to, int ndim, const int64_t* sizes, const void* value) {
  Iteration it(ndim, sizes);
  it.add(to.strides);
  it.normalize();
  if (it.total == 0) return;
  if (it.linear(0)) return fill_dense(e, to.data, size_of(to.dtype), it.total, value);
  OffsetMap<1> map(it);
  dispatch_bits(to.dtype, [&]<class Bits>() {
    Bits bits;
    __builtin_memcpy(&bits, value, sizeof bits);
    e.launch(&fill_strided_kernel<Bits>, Encoder::blocks_for(it.total), kThreads, 0, map, static_cast<Bits*>(to.data),
             it.total, it.narrow, bits);
  });
}

void fill_sequence(Encoder& e, void* to, DType dtype, const Sequence& sequence) {
  if (sequence.count == 0) return;
  e.launch(&sequence_kernel, Encoder::blocks_for(sequence.count), kThreads, 0, to, dtype, sequence);
}

}  // namespace deft::cuda
