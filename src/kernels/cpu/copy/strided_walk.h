// Sizes and element strides of one operand, and a walk over several of the same sizes in row-major order (strided.h
// walks in the order of memory, which an index list or a mask does not allow).
#pragma once

#include <cstdint>

#include "runtime/limits.h"

namespace deft::cpu {

struct Strided {
  int ndim = 0;
  int64_t sizes[kMaxDims] = {};
  int64_t strides[kMaxDims] = {};

  int64_t numel() const {
    int64_t count = 1;
    for (int d = 0; d < ndim; ++d) count *= sizes[d];
    return count;
  }
  static Strided contiguous(const int64_t* sizes, int ndim) {
    Strided s;
    s.ndim = ndim;
    int64_t step = 1;
    for (int d = ndim - 1; d >= 0; --d) {
      s.sizes[d] = sizes[d];
      s.strides[d] = step;
      step *= sizes[d];
    }
    return s;
  }
};

// N operands over the same index space, adjacent dims merged where every operand allows it.
template <int N>
class StridedWalk {
 public:
  StridedWalk(int ndim, const int64_t* sizes, const int64_t* const (&strides)[N]) {
    for (int d = 0; d < ndim; ++d) {
      if (sizes[d] == 1) continue;
      bool merge = ndim_ > 0;
      for (int i = 0; merge && i < N; ++i) merge = strides_[i][ndim_ - 1] == strides[i][d] * sizes[d];
      if (!merge) ++ndim_;
      sizes_[ndim_ - 1] = (merge ? sizes_[ndim_ - 1] : 1) * sizes[d];
      for (int i = 0; i < N; ++i) strides_[i][ndim_ - 1] = strides[i][d];
    }
    if (ndim_ == 0) {
      ndim_ = 1;
      sizes_[0] = 1;
      for (int i = 0; i < N; ++i) strides_[i][0] = 0;
    }
    for (int d = 0; d < ndim_; ++d) count_ *= sizes_[d];
  }

  int64_t count() const { return count_; }
  int64_t step(int operand) const { return strides_[operand][ndim_ - 1]; }  // along a run

  // Calls f(offsets, length) for the runs along the last dim that make up elements [begin, end) in row-major order.
  template <class F>
  void runs(int64_t begin, int64_t end, F f) const {
    if (begin >= end) return;
    int64_t at[kMaxDims], offsets[N] = {}, rest = begin;
    for (int d = ndim_ - 1; d >= 0; --d) {
      at[d] = rest % sizes_[d];
      rest /= sizes_[d];
      for (int i = 0; i < N; ++i) offsets[i] += at[d] * strides_[i][d];
    }
    const int last = ndim_ - 1;
    for (int64_t p = begin; p < end;) {
      const int64_t room = sizes_[last] - at[last], length = room < end - p ? room : end - p;
      f(static_cast<const int64_t*>(offsets), length);
      p += length;
      if (p >= end) return;
      for (int i = 0; i < N; ++i) offsets[i] -= at[last] * strides_[i][last];
      at[last] = 0;
      for (int d = last - 1; d >= 0; --d) {
        ++at[d];
        for (int i = 0; i < N; ++i) offsets[i] += strides_[i][d];
        if (at[d] < sizes_[d]) break;
        for (int i = 0; i < N; ++i) offsets[i] -= at[d] * strides_[i][d];
        at[d] = 0;
      }
    }
  }

 private:
  int ndim_ = 0;
  int64_t count_ = 1;
  int64_t sizes_[kMaxDims];
  int64_t strides_[N][kMaxDims];
};

}  // namespace deft::cpu
