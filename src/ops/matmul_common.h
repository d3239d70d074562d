// Shared by the kernels of matmul and linear on all devices: which matrices there are, and how batches of them become
// fewer and larger ones. `Gemm` is the device's GemmCall.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "core/tensor.h"

namespace deft {

namespace cpu {
struct GemmCall;
class PackedMatrix;
}  // namespace cpu

// The cached packed right side, if there is one. All GEMMs of a call share a right side of two dims.
std::shared_ptr<const cpu::PackedMatrix> kept_right(const Tensor& right, const cpu::GemmCall& g);

// What autocast makes of an operand of a matmul, also for ops that are composed of other ops.
Tensor lowered(const Tensor& x);

// A matmul over batch dims, outermost first, each with its size and the strides of a, b and c. No size is 0 or 1.
struct Batches {
  int count = 0;
  int64_t size[kMaxDims], a[kMaxDims], b[kMaxDims], c[kMaxDims];

  // Adds a dim inside those there are, merged into the last one where all three walk on evenly.
  void add(int64_t n, int64_t sa, int64_t sb, int64_t sc) {
    if (n == 1) return;
    if (count) {
      int64_t &la = a[count - 1], &lb = b[count - 1], &lc = c[count - 1];
      if (la == sa * n && lb == sb * n && lc == sc * n) {
        size[count - 1] *= n;
        la = sa, lb = sb, lc = sc;
        return;
      }
    }
    size[count] = n, a[count] = sa, b[count] = sb, c[count] = sc;
    ++count;
  }
  // The batched GEMMs that are left when the last dim is one batch.
  int64_t outer_total() const {
    int64_t total = 1;
    for (int i = 0; i + 1 < count; ++i) total *= size[i];
    return total;
  }
  // The order does not matter to the result.
  void put_largest_last() {
    int at = static_cast<int>(std::max_element(size, size + count) - size);
    if (count == 0 || at == count - 1) return;
    std::swap(size[at], size[count - 1]), std::swap(a[at], a[count - 1]);
    std::swap(b[at], b[count - 1]), std::swap(c[at], c[count - 1]);
  }
};

// Folds batch dims into the matrices where one operand is shared: one large GEMM beats many small ones.
template <class Gemm>
void fold(Batches& batches, Gemm& g) {
  auto follows = [](int64_t batch, int64_t rows, int64_t row) { return rows == 1 || batch == rows * row; };
  while (batches.count) {
    int i = batches.count - 1;
    int64_t n = batches.size[i], a = batches.a[i], b = batches.b[i], c = batches.c[i];
    if (b == 0 && follows(a, g.m, g.a_row) && follows(c, g.m, g.c_row)) {
      if (g.m == 1) g.a_row = a, g.c_row = c;
      g.m *= n;
    } else if (a == 0 && !g.bias && follows(b, g.n, g.b_col) && follows(c, g.n, g.c_col)) {
      if (g.n == 1) g.b_col = b, g.c_col = c;
      g.n *= n;
    } else {
      return;
    }
    --batches.count;
  }
}

// Calls f(g at its place, batch, strides of a, b and c) for every batch over the last dim.
template <class Gemm, class F>
void for_each_gemm(const Batches& batches, const Gemm& g, F f) {
  int outer = std::max(batches.count - 1, 0);
  int64_t total = batches.outer_total();
  auto bytes = static_cast<int64_t>(size_of(g.dtype));
  for (int64_t linear_index = 0; linear_index < total; ++linear_index) {
    int64_t rest = linear_index, at_a = 0, at_b = 0, at_c = 0;
    for (int i = outer - 1; i >= 0; --i) {
      int64_t at = rest % batches.size[i];
      rest /= batches.size[i];
      at_a += at * batches.a[i], at_b += at * batches.b[i], at_c += at * batches.c[i];
    }
    Gemm one = g;
    one.a = static_cast<const char*>(g.a) + at_a * bytes;
    one.b = static_cast<const char*>(g.b) + at_b * bytes;
    one.c = static_cast<char*>(g.c) + at_c * bytes;
    if (batches.count)
      f(one, batches.size[outer], batches.a[outer], batches.b[outer], batches.c[outer]);
    else
      f(one, int64_t{1}, int64_t{0}, int64_t{0}, int64_t{0});
  }
}

// One of the GEMMs of matmul(a, b), and the batches it runs over. `out` is dense and not empty.
template <class Gemm>
Gemm matmul_call(const Tensor& x, const Tensor& y, const Tensor& result, Batches& batches) {
  const Meta &a = x.meta(), &b = y.meta(), &out = result.meta();
  int ra = a.rank(), rb = b.rank();
  Gemm g{};
  g.dtype = a.dtype;
  g.m = ra == 1 ? 1 : a.sizes[ra - 2];
  g.n = rb == 1 ? 1 : b.sizes[rb - 1];
  g.k = a.sizes[ra - 1];
  g.a = x.data_ptr();
  g.a_row = ra == 1 ? 0 : a.strides[ra - 2];
  g.a_col = a.strides[ra - 1];
  g.b = y.data_ptr();
  g.b_row = rb == 1 ? b.strides[0] : b.strides[rb - 2];
  g.b_col = rb == 1 ? 0 : b.strides[rb - 1];
  g.c = result.data_ptr();
  g.c_row = g.n;
  g.c_col = 1;
  int batch_dims = std::max(std::max(ra, rb) - 2, 0);
  for (int i = 0; i < batch_dims; ++i) {
    int at_a = ra - 2 - batch_dims + i, at_b = rb - 2 - batch_dims + i;
    int64_t sa = at_a < 0 || a.sizes[at_a] == 1 ? 0 : a.strides[at_a];
    int64_t sb = at_b < 0 || b.sizes[at_b] == 1 ? 0 : b.strides[at_b];
    batches.add(out.sizes[i], sa, sb, out.strides[i]);
  }
  return g;
}

// The GEMM of linear(x, w) + bias (undefined or contiguous), and the rows of x it runs over.
template <class Gemm>
Gemm linear_call(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& result, Batches& rows) {
  const Meta &x = input.meta(), &w = weight.meta(), &out = result.meta();
  int last = x.rank() - 1;
  Gemm g{};
  g.dtype = x.dtype;
  g.m = 1;
  g.n = w.sizes[0];
  g.k = w.sizes[1];
  g.a = input.data_ptr();
  g.a_row = g.k;
  g.a_col = x.strides[last];
  g.b = weight.data_ptr();
  g.b_row = w.strides[1];
  g.b_col = w.strides[0];
  g.c = result.data_ptr();
  g.c_row = g.n;
  g.c_col = 1;
  if (bias.defined()) g.bias = bias.data_ptr();
  if (x.contiguous) {
    g.m = out.numel / g.n;
    return g;
  }
  for (int i = 0; i < last; ++i) rows.add(x.sizes[i], x.strides[i], 0, out.strides[i]);
  return g;
}

}  // namespace deft
