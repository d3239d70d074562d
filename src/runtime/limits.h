// Compile-time limits shared by all layers.
#pragma once

namespace deft {

inline constexpr int kMaxDims = 12;

}  // namespace deft
