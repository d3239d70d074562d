// GEMV: one row times a small f32 matrix that stays in cache, from panels of columns, so that sums need no horizontal
// adds.
#pragma once

#include <cstdint>

#include "kernels/cpu/gemm/blocked_gemm.h"
#include "kernels/cpu/workspace.h"

namespace deft::cpu {

// The most values of a matrix for which it pays off.
inline constexpr int64_t kMostGemvValues = 1024 * 1024;

// A matrix [n, k] in panels of 16 of its n: [panel][k][16], zeros beyond the last and up to a multiple of 4 of k.
class GemvPanels {
 public:
  static constexpr int64_t kColumns = 16, kStep = 4;
  GemvPanels(const float* matrix, int64_t n, int64_t k, int64_t line, int64_t step);
  const float* panel(int64_t column) const { return values_.data() + column * padded_k(); }
  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  int64_t panels() const { return (n_ + kColumns - 1) / kColumns; }
  int64_t bytes() const { return panels() * kColumns * padded_k() * static_cast<int64_t>(sizeof(float)); }

 private:
  int64_t padded_k() const { return (k_ + kStep - 1) / kStep * kStep; }
  int64_t n_, k_;
  Workspace<float> values_;
};

// y[n] = activation(x[k] * matrix + bias + residual); bias and residual may be null. The order of each sum depends on
// the machine and on n, never on the number of threads.
void multiply_row(const float* x, const GemvPanels& b, const float* bias, const float* residual, Activation activation,
                  float* y);

}  // namespace deft::cpu
