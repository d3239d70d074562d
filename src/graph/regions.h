// The regions of values in their buffers.
#pragma once

#include <optional>

#include "graph/ir.h"

namespace deft::graph {

inline int64_t element_bytes(const Value& v) { return static_cast<int64_t>(size_of(v.meta.dtype)); }

// The same elements in the same order, of the same type.
bool same_place(const Value& a, const Value& b);
// Whether no byte belongs to both values of a buffer, as far as that is easily seen: one ends before the other begins,
// or they lie side by side in the same rows.
bool are_apart(const Value& a, const Value& b);

// All of its buffer, in one piece and in the order of its dimensions.
bool is_whole(const Graph& graph, ValueId id);
// `v`, in rows of `from` elements, as a part of rows of `to` elements. Nothing where it runs on over the end of a row.
std::optional<Value> widened(const Value& v, int64_t from, int64_t to);

}  // namespace deft::graph
