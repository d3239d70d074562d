// Words for error messages.
#pragma once

#include <string>

#include "core/tensor_impl.h"

namespace deft {

// "[2, 3] f32".
std::string describe(const Meta& meta);
inline std::string describe(const TensorImpl& t) { return describe(t.meta); }
// Why `t` has no grad_fn, naming who turned gradients off: "it was made under no_grad, entered at train.cpp:88".
std::string describe_missing_graph(const TensorImpl& t);

}  // namespace deft
