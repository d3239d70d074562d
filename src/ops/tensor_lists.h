// Norms, scaling, checks and averages of many tensors in one call: tensors that are dense f32 or bf16, on a GPU
// also as f16, takes one pass all together; the rest is composed of tensor ops. Nothing is recorded; versions count up
// as after any in-place op.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"

namespace deft {

// The p-norm over all elements of all tensors; 0 of none. p may be infinite. Devices are waited for once.
double total_norm(std::span<const Tensor> tensors, double p = 2, Site site = Site::current());
// x *= factor for all of them, without recording.
void scale_tensors_(std::span<const Tensor> tensors, double factor, Site site = Site::current());

// What tensors of this norm are multiplied by so that it becomes at most max_norm; 1 if it is so already. NaN stays.
double clip_factor(double norm, double max_norm);
// Scales all of them by clip_factor(); returns the l2 norm before. On one GPU the scaling is enqueued before the norm
// is waited for.
double clip_norm_(std::span<const Tensor> tensors, double max_norm, Site site = Site::current());

// The index of the first tensor with an element that is inf or NaN; -1 if there is none. Devices are waited for once.
int64_t first_not_finite(std::span<const Tensor> tensors, Site site = Site::current());
// The same, and all of them are multiplied by `factor` afterwards; on a GPU in the same pass.
int64_t unscale_tensors_(std::span<const Tensor> tensors, double factor, Site site = Site::current());

// to += weight (from - to), computed in the type of `to`.
void lerp_tensors_(std::span<const Tensor> to, std::span<const Tensor> from, double weight,
                   Site site = Site::current());

}  // namespace deft
