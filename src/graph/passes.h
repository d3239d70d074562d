// Changes to a graph that keep its meaning. Each can be switched off; each says what it did and what it left, and why.
#pragma once

#include <string>
#include <vector>

#include "graph/ir.h"

namespace deft::graph {

// What the passes report, for explain().
struct Notes {
  std::vector<std::string> done, left;
};

// A tensor whose values went into the graph: where it changes, the graph is no longer right.
struct Dependency {
  Tensor tensor;
  uint32_t version;
};

struct PassOptions {
  bool fold_constants = true;
  bool merge_equal = true;
  bool remove_unused = true;
  bool fold_batch_norm = true;
  bool fuse_epilogues = true;
  bool fuse_elementwise = true;
};
// From names such as "merge_equal,remove_unused" that switch passes off; ValueError for an unknown one.
PassOptions without(PassOptions options, const std::string& names);

// Instructions whose inputs are all constants run now. Their inputs become dependencies.
void fold_constants(Graph& graph, std::vector<Dependency>& dependencies, Notes& notes);
// The second of two equal instructions is left out where nothing was written in between.
void merge_equal(Graph& graph, Notes& notes);
// Instructions whose results nobody reads, and which write nothing that is read, are left out.
void remove_unused(Graph& graph, Notes& notes);
// y = batch_norm(convolution(x)) with fixed statistics becomes one convolution with other weights. Rounds differently.
void fold_batch_norm(Graph& graph, std::vector<Dependency>& dependencies, Notes& notes);
// An activation and the sum with a residual go into the product or convolution before them. Rounds less often for
// 16-bit floats; activations may differ in their last bits.
void fuse_epilogues(Graph& graph, Notes& notes);
// Elementwise ops that follow each other become one pass over memory, with the same bits.
void fuse_elementwise(Graph& graph, Notes& notes);

// All that are on, in order; the graph is verified after each.
void run_passes(Graph& graph, const PassOptions& options, std::vector<Dependency>& dependencies, Notes& notes);

}  // namespace deft::graph
