// The few ops that the autograd core itself calls. They are defined with all others in ops/; core only declares them.
#pragma once

#include "core/tensor.h"

namespace deft {

struct OpDef;

Tensor add(const Tensor& a, const Tensor& b, Site site);
Tensor zeros(IntList sizes, TensorOptions options, Site site);
Tensor ones_like(const Tensor& x, Site site);
Tensor sum_to_size(const Tensor& x, IntList sizes, Site site);
Tensor as_strided(const Tensor& x, IntList sizes, IntList strides, int64_t offset, Site site);
// `base` with the elements of the strided region replaced by `source`.
Tensor as_strided_scatter(const Tensor& base, const Tensor& source, IntList sizes, IntList strides, int64_t offset,
                          Site site);
bool has_nan(const Tensor& x);
// dispatch() inside autocast: converts the inputs as the op's policy says (amp/autocast.cpp).
[[gnu::cold, gnu::noinline]] void dispatch_autocast(const OpDef& def, const Tensor* const* inputs, int count,
                                                    Tensor* outputs, void* params, const Site& site);

namespace detail {
// A copy in host memory; counted as a synchronisation called `what`. An unknown `site` is the user's current line.
Tensor to_host(const Tensor& x, const char* what, const Site& site);
}  // namespace detail

}  // namespace deft
