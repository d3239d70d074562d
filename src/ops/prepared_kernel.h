// A kernel's call with everything precomputed that does not depend on tensor addresses. For plans, which call the same
// kernels on the same tensors again and again.
#pragma once

#include <functional>

#include "core/op.h"

namespace deft {

using PreparedKernel = std::function<void()>;

// The tensors and parameters of the call must stay; their memory may be another one in each run. Empty for ops that
// have no such form.
PreparedKernel prepare_kernel(const KernelCall& call);

}  // namespace deft
