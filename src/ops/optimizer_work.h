// Notifies observers (core/observer.h) of the passes of ops/optimizer_update.h: they are no ops, but the
// profiler counts their work like that of kernels.
#pragma once

#include "core/op.h"
#include "ops/optimizer_update.h"

namespace deft {

// A pass over many tensors as a kernel that ran: its first input is one of them, its Params are the work of all.
struct TensorPass {
  struct Params {
    double flops = 0, bytes = 0;
  };
  static constexpr OpInfo info{.name = "tensor_pass", .inputs = kListInput, .outputs = 0};
  static constexpr const char* not_differentiable = "optimizer steps and clipping are not recorded";
};

// Additions, multiplications, divisions and roots of one element; what an option turns off is not counted.
double flops_per_element(const SgdUpdate& update);
double flops_per_element(const AdamUpdate& update);
double flops_per_element(const RmspropUpdate& update);
double flops_per_element(const AdagradUpdate& update);
double flops_per_element(const LambUpdate& update);

// Gradients are read; parameters and states read and written; the 16-bit copy of a master, and a momentum that begins,
// written only.
double bytes_of_update(const UpdateTensor& tensor, unsigned states, bool states_begin = false);

// Notifies the observer of this thread, if there is one.
void notify_pass(const Tensor& one, const TensorPass::Params& work, const Site& site);
// A pass that does `flops` operations per element and moves `times_bytes` times the bytes of the tensors.
void notify_pass(std::span<const Tensor> tensors, double flops, double times_bytes, const Site& site);

}  // namespace deft
