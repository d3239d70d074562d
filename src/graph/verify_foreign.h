// Checks of an untrusted graph: after them no kernel reads or writes outside its buffers.
#pragma once

#include "graph/ir.h"

namespace deft::graph {

// All that verify() checks, and all that verify() assumes of graphs made in this process: parameters as the ops' rules
// complete them, results laid out as the kernels write them, memory that is not read and written at once, values of
// parameters that rules leave to the functions around the ops. Only ops of inference. A typed error says what is wrong.
void verify_foreign(const Graph& graph);
// ValueError where no memory could hold a value; what is computed of its places overflows nowhere after that.
void check_bounds(const Value& v);

// parse() for untrusted text. At most `most` buffers, values and instructions each.
Graph parse_foreign(const std::string& text, const std::vector<Tensor>& constants, uint64_t most);

}  // namespace deft::graph
