// An op's parameters as text that means the same in every build: fields one after the other, ops by their names.
//   view {[4,16]}     clamp {0x0p+0 inf 0 127}     elementwise_chain {like 0; 0 0; add f32 i0 i1; relu f32 s0}
//   fused_rows {0 false [64] | - | softmax 1 0 f32 : 1 | mul 2 1 f32}
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/op.h"

namespace deft::graph {

std::string params_text(const OpDef& def, const std::vector<std::byte>& params);

// ValueError where the text is not the op's parameters, or a field has no value of its type: enums without a name,
// steps that read later steps. The op's infer() checks the values.
std::vector<std::byte> parse_params(const OpDef& def, std::string_view text);

}  // namespace deft::graph
