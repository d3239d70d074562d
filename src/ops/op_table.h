// Every op of the library by name.
#pragma once

#include <string_view>

#include "core/op.h"

namespace deft {

// nullptr where there is none.
const OpDef* find_op(std::string_view name);
// Its place in the table of this version, and back: -1 and nullptr where there is none.
int op_index(const OpDef& def);
const OpDef* op_at(int index);

}  // namespace deft
