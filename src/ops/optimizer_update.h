// Optimizer steps of many tensors in one call. f32 parameters that are dense in any memory order, on a GPU also 16-bit
// ones, take one pass over their memory all together, on a GPU in a few launches; everything else (f64, 16 bits on the
// CPU, strided parameters) is composed of tensor ops with the same formulas. Nothing is recorded; versions count up as
// after any in-place op. All tensors are checked before the first is written.
#pragma once

#include <span>

#include "core/tensor.h"
#include "kernels/cpu/elementwise/optimizer.h"

namespace deft {

// A parameter, its gradient and its optimizer state. States and master are made by optimizer_state().
struct UpdateTensor {
  Tensor param, grad;
  Tensor state[3];  // those the update needs
  Tensor master;    // undefined, or the f32 value of a 16-bit parameter: updated in its place, then rounded into it
};

// f64 for f64, otherwise f32: moving averages do not move in 16 bits.
DType optimizer_state_dtype(DType param);
// Like `param` in shape, device and memory order; zeros. Counts as optimizer memory.
Tensor optimizer_state(const Tensor& param, Site site = Site::current());

// The numbers of one step; the kernels' header says which state is which.
using OptimizerUpdate = cpu::OptimizerOptions;
using SgdUpdate = cpu::SgdOptions;
using AdamUpdate = cpu::AdamOptions;
using RmspropUpdate = cpu::RmspropOptions;
using AdagradUpdate = cpu::AdagradOptions;
using LambUpdate = cpu::LambOptions;
void sgd_update(std::span<const UpdateTensor> tensors, const SgdUpdate& update, Site site = Site::current());
void adam_update(std::span<const UpdateTensor> tensors, const AdamUpdate& update, Site site = Site::current());
void rmsprop_update(std::span<const UpdateTensor> tensors, const RmspropUpdate& update, Site site = Site::current());
void adagrad_update(std::span<const UpdateTensor> tensors, const AdagradUpdate& update, Site site = Site::current());
void lamb_update(std::span<const UpdateTensor> tensors, const LambUpdate& update, Site site = Site::current());

}  // namespace deft
