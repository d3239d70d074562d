// A chain of elementwise ops as CUDA source, made from the ops' own formulas. For *.cuda.cpp files only.
#pragma once

#include <span>
#include <string>

#include "kernels/cuda/device/nvrtc.h"
#include "kernels/cuda/elementwise/chain_args.h"
#include "runtime/dtype.h"

namespace deft {

// How an input is read: one element per element of the result, one after `period` elements again, a single one in
// device memory, or a number passed by value.
enum class ChainAccess : uint8_t { full, repeated, single, passed };

// What the source of a chain depends on; not on sizes, numbers and parameters. Compared as bytes.
struct ChainForm {
  struct Input {
    ChainAccess access;
    DType dtype;
    uint8_t period;  // of repeated ones: its number, the same for inputs with the same period
  };
  struct Step {
    int16_t op;  // as in ElementwiseChain::Step
    DType compute, stored;
    uint8_t inputs;
    uint8_t in[3];  // as in ElementwiseChain::Step
  };
  uint8_t inputs, steps;
  Input input[cuda::kChainInputs];
  Step step[cuda::kChainSteps];

  // Neighbours a thread works on at once, and how often: 16 bytes of the widest elements, some of these in flight.
  int width() const;
  int packs() const;
};

inline constexpr const char* kChainKernel = "deft_chain";  // the kernel's name
std::string chain_source(const ChainForm& form);
// What the source includes. Written by cmake/embed_files.cmake.
std::span<const cuda::SourceFile> formula_sources();

}  // namespace deft
