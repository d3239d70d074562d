// c = a^T b, where k is the outermost dim of both, as in weight gradients, without packing: for narrow a and b, where
// packing would be a large part of the work.
#pragma once

#include <cstdint>

namespace deft::cpu {

struct GemmTn {
  int64_t m, n, k;
  const float* a;  // k rows of m values, a_row apart
  int64_t a_row;
  const float* b;  // k rows of n values, b_row apart
  int64_t b_row;
  float* c;  // m rows of n values, contiguous
};
// Returns false, having done nothing, for other sizes or machines. Values of c are chains of multiply-adds in order of
// k; chains of some thousands of steps are then added in order.
bool run_gemm_tn(const GemmTn& p);

}  // namespace deft::cpu
