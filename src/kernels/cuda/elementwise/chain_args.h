// The arguments of a generated chain kernel: kernels/cuda/elementwise/chain.cuh.
#pragma once

#include "kernels/cuda/device/iteration.h"

namespace deft::cuda {

inline constexpr int kChainInputs = 8, kChainSteps = 16, kChainParamBytes = 32, kChainThreads = 256;

// A number of the host: d for steps that run in floats, i for integers and bool.
struct ChainNumber {
  double d;
  int64_t i;
};

struct ChainArgs {
  const void* in[kChainInputs];  // nullptr: number[i]
  void* out;
  int64_t n;
  // Inputs that repeat share their periods: divide[p] divides by period[p] where `narrow`.
  int64_t period[kChainInputs];
  FastDivide divide[kChainInputs];
  ChainNumber number[kChainInputs];
  alignas(8) unsigned char params[kChainSteps][kChainParamBytes];
  uint32_t zero;      // 0; see chain.cuh
  bool packs;         // inputs and result are aligned to the kernel's packs
  bool packs_repeat;  // so are inputs that repeat, and their periods are whole packs
  bool narrow;        // n is below 2^31
};

}  // namespace deft::cuda
