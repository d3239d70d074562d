// c = a^T b, where k is the outermost dim of both, as in gradients of weights: neither is packed. For a
// narrow a and b, of which packing would be a good part of the work.
#pragma once

#include <cstdint>

namespace deft::cpu {

struct GemmTn {
  int64_t m, n, k;
  const float* a;  // k rows of m values, a_row apart
  int64_t a_row;
  const float* b;  // k rows of n values, b_row apart
  int64_t b_row;
  float* c;  // m rows of n values, without a gap
};
// False, and nothing done: not for these sizes, or not on this machine. Values of c are chains of multiply-adds in
// order of k, added up in order after some thousands.
bool run_gemm_tn(const GemmTn& p);

}  // namespace deft::cpu
