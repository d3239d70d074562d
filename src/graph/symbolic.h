// Captures of one function at several sizes, taken together as a graph with symbols: what a further size needs is
// filled in, without running the function.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "graph/ir.h"

namespace deft::graph {

// A dimension of an input.
struct InputDim {
  size_t input = 0;
  int dim = 0;
  bool operator==(const InputDim&) const = default;
};

// Sizes that a dimension may have.
struct DimRange {
  InputDim dim;
  int64_t low = 0, high = 0;
};

// Inputs of the same kind: as many, each of the same rank, type, device and order in memory. Sizes may differ where
// both are 2 or more: 0 and 1 mean something else to broadcasting and to strides.
bool same_kind(const std::vector<Meta>& a, const std::vector<Meta>& b);

// Note [Templates]: every number of a graph that is not the same in all captures - sizes, strides, offsets, integers
// among parameters, tensors that the function fills with a number or counts up - must be a + b * (product of up to
// three sizes that differ), with one answer that is simpler than all others. What a function does at sizes that were
// not seen is a guess even so, since it may branch on them. Hence confirmed().
class Template {
 public:
  // The graph as captured, before passes. It keeps its constants alive.
  explicit Template(Graph captured);

  std::vector<Meta> inputs() const;
  // Takes in a capture with other sizes of the same kind.
  void add(Graph captured);
  // A capture came out exactly as predicted, and none has added another symbol since.
  bool confirmed() const { return confirmed_ && fault_.empty(); }
  // The same for these inputs: a new size must be of a symbol that was predicted correctly at a new size before.
  bool confirmed_for(const std::vector<Meta>& inputs) const;
  // Why there is no graph with symbols: which number of which op. Empty where there is one.
  const std::string& fault() const { return fault_; }
  // Nothing that is captured later can change that.
  bool is_over() const { return over_; }
  // One list for each symbol: the dims that have its size, in all captures.
  const std::vector<std::vector<InputDim>>& symbols() const { return symbols_; }

  // For files: the graph with the sizes of the first capture, and how its numbers follow from the sizes, as text.
  const Graph& graph() const { return captures_[0]; }
  std::string rules() const;
  // From such text, confirmed. `check` sees each graph that is made and throws where it may not run. LoadError where
  // the text gives no rules for the graph.
  static Template of_rules(Graph graph, const std::string& rules, std::function<void(const Graph&)> check);

  bool follows(InputDim d) const;  // it is a symbol's

  // The graph for inputs of the same kind, checked by the ops' own rules. Nothing, and the reason, where a size differs
  // that is no symbol, or where the rules object.
  std::optional<Graph> instantiate(const std::vector<Meta>& inputs, std::string& why) const;

 private:
  struct Term {
    size_t number = 0;  // which one of the graph's
    int64_t base = 0, factor = 0;
    std::vector<size_t> symbols;  // whose sizes are multiplied
  };
  std::string fault_of_rules() const;  // empty where the rules belong to the graph
  static int64_t value_of(const Term& t, const std::vector<int64_t>& sizes);
  void give_up(std::string why);
  bool constants_fit(const Graph& captured) const;
  void find_filled();
  void find_symbols();
  void fit();
  std::string fit_number(size_t number, const std::vector<int64_t>& values,
                         const std::vector<std::vector<int64_t>>& sizes,
                         const std::vector<std::vector<size_t>>& candidates);
  bool was_captured(size_t symbol, const std::vector<Meta>& inputs) const;
  std::optional<std::vector<int64_t>> sizes_of(const std::vector<Meta>& inputs, std::string& why) const;

  std::vector<Graph> captures_;
  std::vector<BufferId> filled_;  // constants that the function makes anew each time
  std::vector<std::vector<InputDim>> symbols_;
  std::vector<Term> terms_;
  std::string fault_ = "only one size was captured";
  bool confirmed_ = false, over_ = false;
  std::vector<bool> foretold_;  // symbols predicted at a size that was in no capture
  std::function<void(const Graph&)> check_;
};

// Puts the inputs of a captured graph at the beginning of buffers that end with them: a plan may be called with tensors
// anywhere in memory. False, and nothing changes, where the function reaches memory around an input.
bool trim_inputs(Graph& graph);

}  // namespace deft::graph
