#include "kernels/cpu/copy/strided.h"

#include <algorithm>
#include <cstdlib>

namespace deft::cpu {
namespace {

// True if dim a should be outside dim b.
bool outside(const Iteration& it, int a, int b) {
  for (int k = 0; k < it.operands; ++k) {
    int64_t sa = std::abs(it.strides[k][a]), sb = std::abs(it.strides[k][b]);
    if (sa != sb) return sa > sb;
  }
  return false;
}

void swap_dims(Iteration& it, int a, int b) {
  std::swap(it.sizes[a], it.sizes[b]);
  for (int k = 0; k < it.operands; ++k) std::swap(it.strides[k][a], it.strides[k][b]);
}

void copy_dim(Iteration& it, int from, int to) {
  it.sizes[to] = it.sizes[from];
  for (int k = 0; k < it.operands; ++k) it.strides[k][to] = it.strides[k][from];
}

bool mergeable(const Iteration& it, int outer, int inner) {
  for (int k = 0; k < it.operands; ++k) {
    if (it.strides[k][outer] != it.strides[k][inner] * it.sizes[inner]) return false;
  }
  return true;
}

}  // namespace

void normalize(Iteration& it, bool reorder) {
  int n = 0;
  it.total = 1;
  for (int d = 0; d < it.ndim; ++d) {
    it.total *= it.sizes[d];
    if (it.sizes[d] != 1) copy_dim(it, d, n++);
  }
  for (int i = 1; reorder && i < n; ++i) {  // insertion sort: stable, and dims are few and mostly in order
    for (int j = i; j > 0 && outside(it, j, j - 1); --j) swap_dims(it, j, j - 1);
  }
  int last = 0;
  for (int d = 1; d < n; ++d) {
    if (mergeable(it, last, d)) {
      int64_t merged = it.sizes[last] * it.sizes[d];
      copy_dim(it, d, last);
      it.sizes[last] = merged;
    } else {
      copy_dim(it, d, ++last);
    }
  }
  it.ndim = last + 1;
  if (n == 0) {
    it.sizes[0] = 1;
    for (int k = 0; k < it.operands; ++k) it.strides[k][0] = 1;
  }
}

Walker::Walker(const Iteration& it, int64_t linear) : it_(it), offsets_{} {
  for (int d = it.ndim - 1; d >= 0; --d) {
    index_[d] = linear % it.sizes[d];
    linear /= it.sizes[d];
    for (int k = 0; k < it.operands; ++k) offsets_[k] += index_[d] * it.strides[k][d];
  }
}

void Walker::advance(int64_t n) {
  const int last = it_.ndim - 1;
  index_[last] += n;
  for (int k = 0; k < it_.operands; ++k) offsets_[k] += n * it_.strides[k][last];
  if (index_[last] == it_.sizes[last]) next_run();
}

void Walker::next_run() {
  for (int d = it_.ndim - 1; d > 0; --d) {
    index_[d] = 0;
    for (int k = 0; k < it_.operands; ++k) {
      offsets_[k] += it_.strides[k][d - 1] - it_.sizes[d] * it_.strides[k][d];
    }
    if (++index_[d - 1] < it_.sizes[d - 1]) return;
  }
}

}  // namespace deft::cpu
