// Keeping gradients small. Parameters without a gradient, and frozen ones, take no part.
#pragma once

#include <vector>

#include "core/tensor.h"

namespace deft {
double clip_factor(double norm, double max_norm);
}

namespace deft::optim {

// The norm over all gradients together; infinity gives the largest absolute value.
double grad_norm(const std::vector<Tensor>& params, double norm_type = 2, Site site = Site::current());
// What gradients of this norm are multiplied by so that it becomes at most max_norm.
using deft::clip_factor;

// Scales all gradients together, in place, so that their norm is at most max_norm; returns the norm before. A norm that
// is inf or NaN makes the gradients NaN, or with error_if_nonfinite a ValueError. A function that compile() captures
// clips by the norm of each call, but what it does with the number returned here is what it did when it was captured.
//
// To spare the pass that writes them: step({.grad_scale = clip_factor(grad_norm(params), max_norm)}).
double clip_grad_norm_(const std::vector<Tensor>& params, double max_norm, double norm_type = 2,
                       bool error_if_nonfinite = false, Site site = Site::current());
// Limits every element to [-limit, limit].
void clip_grad_value_(const std::vector<Tensor>& params, double limit, Site site = Site::current());

}  // namespace deft::optim
