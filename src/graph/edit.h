// Small steps that passes share: parameters of instructions, constants.
#pragma once

#include <cstring>
#include <vector>

#include "graph/passes.h"
#include "ops/param_fields.h"

namespace deft::graph {

template <class T>
T params_of(const Instruction& x) {
  T p;
  std::memcpy(static_cast<void*>(&p), x.params.data(), sizeof p);
  return p;
}
template <class T>
void set_params(Instruction& x, const T& p) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&p);
  x.params = settled_params(*x.def, bytes);
}

// It draws from the generator. Attention has a field for a draw that it uses only with dropout.
bool draws(const Instruction& x);

// A value that the program never changes; kNone is one too.
bool is_constant(const Graph& graph, ValueId id);
// Its tensor. The plan depends on it from now on, unless it is unreachable from elsewhere.
Tensor read_constant(const Graph& graph, ValueId id, std::vector<Dependency>& dependencies);
ValueId add_constant(Graph& graph, const Tensor& t);
// Releases constants that no instruction uses any more.
void drop_unused_constants(Graph& graph);

}  // namespace deft::graph
