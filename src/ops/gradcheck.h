// Compares gradients with differences: for tests of ops, layers and losses.
#pragma once

#include <functional>
#include <optional>

#include "core/tensor.h"

namespace deft {

struct GradcheckOptions {
  double eps = 1e-6;  // step of the central differences
  double atol = 1e-5, rtol = 1e-3;
  // Differences of fourth order: with eps = 1e-4 exact enough to find single precision inside an f64 formula.
  bool fourth_order = false;
  std::optional<bool> full = {};  // the whole Jacobian, or random projections of it; not given: by size
};
using GradcheckFn = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

// Checks the gradients of f with respect to the inputs that require grad: that they equal central differences, are
// finite, are the same when computed again, and do not depend on the memory layout of the incoming gradient. Throws
// GradError that names the place and both numbers. Floating inputs must be f64 (DTypeError); others are passed on as
// they are. f is called many times, each time with the same random numbers, and on copies of the inputs, which stay on
// their device.
void gradcheck(const GradcheckFn& f, const std::vector<Tensor>& inputs, GradcheckOptions options = {},
               Site site = Site::current());
// False where gradcheck() would throw GradError.
bool gradcheck_ok(const GradcheckFn& f, const std::vector<Tensor>& inputs, GradcheckOptions options = {},
                  Site site = Site::current());
// The same for the gradient of the gradient, with respect to the inputs and the incoming gradient.
void gradgradcheck(const GradcheckFn& f, const std::vector<Tensor>& inputs, GradcheckOptions options = {},
                   Site site = Site::current());

}  // namespace deft
