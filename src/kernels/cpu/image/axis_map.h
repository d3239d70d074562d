// Per-axis maps between two grids: plain index maps (padding, nearest) and weighted sums (interpolation, and the
// gradients of all of them, which are the transposed sums).
#pragma once

#include <cstdint>

#include "kernels/cpu/workspace.h"
#include "runtime/dtype.h"

namespace deft::cpu::detail {

// y[o] = x[maps(o)], or the element at `fill` where a map gives -1. Contiguous; maps[d] has out[d] entries.
void map_copy(DType dtype, int ndim, const int64_t* in, const int64_t* out, const int64_t* const* maps,
              const void* fill, const void* x, void* y);

// Output o is the sum of weight[t] * input index[t] for t in [start[o], start[o + 1]).
class AxisSum {
 public:
  AxisSum(int64_t in, int64_t out, int64_t taps) : in_(in), out_(out), start_(out + 1), index_(taps), weight_(taps) {
    start_[0] = 0;
  }
  AxisSum(const AxisSum& of, bool transposed);

  int64_t in() const { return in_; }
  int64_t out() const { return out_; }
  int64_t begin(int64_t o) const { return start_[o]; }
  int64_t end(int64_t o) const { return start_[o + 1]; }
  int64_t index(int64_t t) const { return index_[t]; }
  double weight(int64_t t) const { return weight_[t]; }

  // Builds outputs in order: add() for every tap of one output, then close(o).
  void add(int64_t i, double w) {
    index_[count_] = i;
    weight_[count_++] = w;
  }
  void close(int64_t o) { start_[o + 1] = count_; }

 private:
  int64_t in_, out_, count_ = 0;
  Workspace<int64_t> start_, index_;
  Workspace<double> weight_;
};

// y = the three sums applied to each of `outer` grids of cells of `inner` values. Floats, summed in the accumulation
// type.
void apply_sums(DType dtype, const AxisSum& z, const AxisSum& y, const AxisSum& x, int64_t outer, int64_t inner,
                const void* from, void* to);

}  // namespace deft::cpu::detail
