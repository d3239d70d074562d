// Normal form of a strided iteration: the dims reordered, merged, and walked run by run.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/elementwise/elementwise.h"

namespace deft::cpu {

// Elements a thread should have at least, for work of about one operation per element.
inline constexpr int64_t kElementGrain = 32 * 1024;

struct Iteration {
  int ndim = 0;  // at least 1 after normalize(); the last dim is the innermost
  int operands = 0;
  int64_t total = 0;  // elements; set by normalize()
  int64_t sizes[kMaxDims];
  int64_t strides[kMaxInputs + 1][kMaxDims];  // in elements

  int64_t inner() const { return sizes[ndim - 1]; }
  int64_t inner_stride(int operand) const { return strides[operand][ndim - 1]; }
};

// Orders dims by the strides of operand 0 (largest outermost; ties by the next operands), drops dims of size 1 and
// merges dims that every operand walks as one. Without `reorder` elements keep their row-major order.
void normalize(Iteration& it, bool reorder = true);

// A position in a normalized Iteration: the element offsets of all operands.
class Walker {
 public:
  Walker(const Iteration& it, int64_t linear);
  int64_t offset(int operand) const { return offsets_[operand]; }
  int64_t left_in_run() const { return it_.inner() - index_[it_.ndim - 1]; }
  // Moves on by n <= left_in_run() elements.
  void advance(int64_t n);

 private:
  void next_run();
  const Iteration& it_;
  int64_t index_[kMaxDims];
  int64_t offsets_[kMaxInputs + 1];
};

// Kernels that move elements without looking at them use integers of the same size. The elements are floats to others,
// so the access must not be typed.
template <class T>
inline T load_bits(const T* p) {
  T v;
  std::memcpy(&v, p, sizeof(T));
  return v;
}
template <class T>
inline void store_bits(T* p, T v) {
  std::memcpy(p, &v, sizeof(T));
}
template <class T>
inline void fill_bits(T* d, int64_t stride, int64_t n, T v) {
  if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) store_bits(d + i, v);
  } else {
    for (int64_t i = 0; i < n; ++i) store_bits(d + i * stride, v);
  }
}
template <class T>
inline void copy_bits(const T* s, int64_t s_stride, T* d, int64_t d_stride, int64_t n) {
  if (s_stride == 1 && d_stride == 1 && n >= 16) {  // shorter ones are not worth a call
    std::memmove(d, s, static_cast<size_t>(n) * sizeof(T));
  } else if (s_stride == 1 && d_stride == 1) {
    for (int64_t i = 0; i < n; ++i) store_bits(d + i, load_bits(s + i));
  } else if (d_stride == 1 && s_stride == 0) {
    fill_bits(d, 1, n, load_bits(s));
  } else if (d_stride == 1 && s_stride == -1) {
    for (int64_t i = 0; i < n; ++i) store_bits(d + i, load_bits(s - i));
  } else if (d_stride == 1 && s_stride == 2) {
    for (int64_t i = 0; i < n; ++i) store_bits(d + i, load_bits(s + 2 * i));
  } else if (d_stride == 1) {
    for (int64_t i = 0; i < n; ++i) store_bits(d + i, load_bits(s + i * s_stride));
  } else {
    for (int64_t i = 0; i < n; ++i) store_bits(d + i * d_stride, load_bits(s + i * s_stride));
  }
}

}  // namespace deft::cpu
