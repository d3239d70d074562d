// Who makes, reads and writes what, for passes that bring instructions together.
#pragma once

#include <vector>

#include "graph/ir.h"

namespace deft::graph {

class Uses {
 public:
  explicit Uses(const Graph& graph);

  // The last instruction before `at` that makes or writes `id`; -1 where there is none.
  int maker(ValueId id, size_t at) const;
  // `id` is a temporary without views that only the instruction `reader` reads, after it was made by `maker` and before
  // anybody writes it.
  bool only_between(ValueId id, size_t maker, size_t reader) const;
  // Nothing of what `from` reads is written between the two instructions.
  bool inputs_stand(size_t from, size_t to) const;

 private:
  bool writes(const Instruction& x, BufferId buffer) const;
  bool reads(const Instruction& x, BufferId buffer) const;
  const Graph& g_;
  std::vector<int> places_;  // values in each buffer
};

// Instructions that a pass took out have no op.
void remove_taken(Graph& graph);

}  // namespace deft::graph
