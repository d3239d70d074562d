// Words for error messages.
#pragma once

#include <string>

#include "core/tensor_impl.h"

namespace deft {

// "[2, 3] f32".
std::string describe(const Meta& meta);
inline std::string describe(const TensorImpl& t) { return describe(t.meta); }
// Why nothing was recorded here: "grad mode was turned off at train.cpp:88", or "" when grad mode is on.
std::string describe_grad_mode();

}  // namespace deft
