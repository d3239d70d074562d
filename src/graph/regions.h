// Where values lie in their buffers.
#pragma once

#include "graph/ir.h"

namespace deft::graph {

// The same elements in the same order, of the same type.
bool same_place(const Value& a, const Value& b);
// Whether no byte belongs to both values of a buffer, as far as that is easily seen: one ends before the other begins,
// or they lie side by side in the same rows.
bool are_apart(const Value& a, const Value& b);

}  // namespace deft::graph
