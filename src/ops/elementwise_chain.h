// Several elementwise ops in one pass over memory, with the same bits as one by one. Made by compile().
#pragma once

#include "core/op.h"
#include "ops/prepared_kernel.h"

namespace deft {

struct OpSamples;

struct ElementwiseChain {
  static constexpr int kInputs = 8, kSteps = 16, kOperands = 4, kParamBytes = 32;
  struct Step {
    int32_t op;  // op_index(); ~op_index() for the gradient of that op, of (g, x, y)
    DType stored;
    uint8_t inputs;
    uint8_t in[kOperands];  // below kInputs: an input; else kInputs + the number of an earlier step
    alignas(8) uint8_t params[kParamBytes];
    bool operator==(const Step&) const = default;
  };
  struct Params {
    int32_t inputs = 0, steps = 0;
    int32_t like = 0;           // the input whose sizes the result has, and its strides if it is dense
    int64_t period[kInputs]{};  // see kernels/cpu/elementwise/elementwise_chain.h; of an input in rows with gaps: 0
    Step step[kSteps]{};
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{
      .name = "elementwise_chain", .inputs = kListInput, .dtypes = kAllTypes, .fusion = Fusion::elementwise};
  static constexpr const char* not_differentiable = "it is part of a compiled plan; gradients are recorded uncompiled";
  static Meta infer(std::span<const Meta* const> inputs, Params& p);
  static void cpu(KernelCall& c);
  static PreparedKernel prepare(const KernelCall& c);
  static void cuda(KernelCall& c);

  // The op of step s, and the type its formula runs in.
  static const OpDef& op_of(const Params& p, int s);
  static DType compute_type(const KernelCall& c, const Params& p, int s);
  // On CPUs inputs may consist of rows: the length of the contiguous rows, and the distance from row to row.
  // Nothing where this one does not.
  struct Rows {
    int64_t length = 0, distance = 0;
  };
  static Rows rows_of(const Meta& m);
  // True if chains are one pass over memory there. On a GPU that needs NVRTC; without it their ops run one by one.
  static bool fuses_on(Device device);
  // Part of the CUDA plug-in.
  static bool cuda_ready();
  static void cuda_one_by_one(KernelCall& c);  // by the ops' own kernels, through memory
};

}  // namespace deft
