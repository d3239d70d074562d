// Packs weights for the CPU's GEMMs and convolutions before the first call.
#pragma once

#include <span>

#include "core/op.h"

namespace deft {

struct Prepacked {
  int64_t bytes = 0;           // of the cached form; 0 if there is none
  const char* left = nullptr;  // why not
};
// For an op that reads input 1 as a weight: linear, matmul, convolution and their fused forms. Makes what its kernel
// would keep from the second call with this tensor and version on (core/derived_cache.h, which also ends it).
Prepacked prepack(const OpDef& def, std::span<const Meta* const> inputs, const Tensor& weight, const Meta& out,
                  const void* params);
bool has_weight(const OpDef& def);

}  // namespace deft
