#include "kernels/cuda/device/iteration.h"

#include <utility>

namespace deft::cuda {

Iteration::Iteration(int rank, const int64_t* size_list) : ndim(rank) {
  for (int d = 0; d < rank; ++d) sizes[d] = size_list[d];
}

void Iteration::add(const int64_t* stride_list) {
  for (int d = 0; d < ndim; ++d) strides[operands][d] = stride_list[d];
  ++operands;
}

namespace {

int64_t magnitude(int64_t v) { return v < 0 ? -v : v; }

// True if dim a should lie outside dim b: by the first operand whose strides differ.
bool outside(const Iteration& it, int a, int b) {
  for (int o = 0; o < it.operands; ++o) {
    int64_t sa = magnitude(it.strides[o][a]), sb = magnitude(it.strides[o][b]);
    if (sa && sb && sa != sb) return sa > sb;
  }
  return a < b;
}

void swap_dims(Iteration& it, int a, int b) {
  std::swap(it.sizes[a], it.sizes[b]);
  for (int o = 0; o < it.operands; ++o) std::swap(it.strides[o][a], it.strides[o][b]);
}

bool merges(const Iteration& it, int outer, int inner) {
  for (int o = 0; o < it.operands; ++o)
    if (it.strides[o][outer] != it.strides[o][inner] * it.sizes[inner]) return false;
  return true;
}

}  // namespace

void Iteration::normalize(bool keep_order) {
  total = 1;
  int kept = 0;
  for (int d = 0; d < ndim; ++d) {
    total *= sizes[d];
    if (sizes[d] == 1) continue;
    if (kept != d) swap_dims(*this, kept, d);
    ++kept;
  }
  if (kept == 0) {  // one element
    kept = 1;
    sizes[0] = total;
    for (int o = 0; o < operands; ++o) strides[o][0] = 0;
  }
  ndim = kept;
  if (!keep_order)
    for (int i = 1; i < ndim; ++i)
      for (int j = i; j > 0 && !outside(*this, j - 1, j); --j) swap_dims(*this, j - 1, j);
  int last = 0;
  for (int d = 1; d < ndim; ++d) {
    if (merges(*this, last, d)) {
      sizes[last] *= sizes[d];
      for (int o = 0; o < operands; ++o) strides[o][last] = strides[o][d];
    } else {
      ++last;
      sizes[last] = sizes[d];
      for (int o = 0; o < operands; ++o) strides[o][last] = strides[o][d];
    }
  }
  ndim = last + 1;
  narrow = total < INT32_MAX;
  if (narrow)
    for (int d = 0; d < ndim; ++d) divide[d] = FastDivide(static_cast<uint32_t>(sizes[d] > 0 ? sizes[d] : 1));
}

}  // namespace deft::cuda
