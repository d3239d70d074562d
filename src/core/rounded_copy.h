// A bf16 copy of an f32 tensor that is kept from step to step of a training: plans under autocast read weights in bf16,
// and optimizers write the copy of a weight while they update it, instead of a pass over all weights in every step.
//
// It is valid until the tensor is written elsewhere (Note [Derived] in core/derived_cache.h). It lives as long as one
// of its readers shares it: no optimizer rounds for plans that are gone.
#pragma once

#include <memory>

#include "core/tensor.h"

namespace deft {

// Null: there is none, or the tensor was written since.
std::shared_ptr<const Tensor> find_rounded_copy(const Tensor& of);
// From now on `copy`, of the same strides, holds the values of the tensor, rounded.
void keep_rounded_copy(const Tensor& of, const std::shared_ptr<const Tensor>& copy);

}  // namespace deft
