// Changes to a graph that keep its meaning. Each can be switched off; each reports what it did and what it left, and
// why.
#pragma once

#include <cstdint>
#include <functional>
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
  uint64_t stamp;  // of its storage
};

enum class Stage : uint8_t {
#define DEFT_PASS(name, ...)
#define DEFT_STAGE(name) name,
#include "graph/passes.def"
#undef DEFT_STAGE
#undef DEFT_PASS
};

// A pass of a folder above this one, such as one that inserts quantized ops.
struct AddedPass {
  std::string name;
  Stage stage = Stage::folded;
  std::function<void(Graph&, std::vector<Dependency>&, Notes&)> run;
};

struct PassOptions {
#define DEFT_PASS(name, ...) bool name = true;
#define DEFT_STAGE(name)
#include "graph/passes.def"
#undef DEFT_STAGE
#undef DEFT_PASS
  bool cost_model = true;  // off: passes do what they can, whether it pays or not (`weigh` below; graph/cost.h)
  std::vector<AddedPass> added = {};
};
// From names such as "merge_equal,remove_unused" that switch passes off; ValueError for an unknown one.
PassOptions without(PassOptions options, const std::string& names);

// Instructions whose inputs are all constants run now. Their inputs become dependencies.
void fold_constants(Graph& graph, std::vector<Dependency>& dependencies, Notes& notes);
// The second of two equal instructions is left out where nothing was written in between.
void merge_equal(Graph& graph, Notes& notes);
// Instructions whose results have no reader, and which write nothing that is read, are left out.
void remove_unused(Graph& graph, Notes& notes);
// y = batch_norm(convolution(x)) with fixed statistics becomes one convolution with other weights. Rounds differently.
void fold_batch_norm(Graph& graph, std::vector<Dependency>& dependencies, Notes& notes);
// An activation and the sum with a residual go into the matmul or convolution before them. Rounds less often for
// 16-bit floats; activations may differ in their last bits.
void fuse_epilogues(Graph& graph, Notes& notes, bool weigh = true);
// Batch norm in training takes the residual and the relu after it, and its gradient that of the relu; with `weigh`,
// where that was measured to be faster. Same bits.
void fuse_norms(Graph& graph, Notes& notes, bool weigh = true);
// Matmuls that are added to something in place read that and store the sum. Rounds less often.
void fuse_sums(Graph& graph, Notes& notes, bool weigh = true);
// Results of 16-bit matmuls that are only widened are stored in f32. Rounds less often.
void fuse_casts(Graph& graph, Notes& notes, bool weigh = true);
// Consecutive elementwise ops become one fused chain, with the same bits; ops that write parts of a buffer in place as
// well (graph/separate_writes.h).
void fuse_elementwise(Graph& graph, Notes& notes);
// Casts to a wider type and back go. Same bits.
void assign_precision(Graph& graph, Notes& notes);
// Images of convolutions become NHWC; conversions are counted. Rounds differently.
void assign_layout(Graph& graph, Notes& notes, bool weigh = true);
// softmax(q k^T * scale + mask) v in single ops becomes scaled_dot_product_attention. Rounds differently.
void fuse_attention(Graph& graph, std::vector<Dependency>& dependencies, Notes& notes, bool weigh = true);
// Ops of which only some rows are read compute those rows only. Rounds as the ops do for that number of rows.
void narrow_early(Graph& graph, Notes& notes);
// Matmuls of one input with constant weights become one matmul and views of its result. Same bits, as far as the
// kernels of the two widths agree.
void merge_siblings(Graph& graph, std::vector<Dependency>& dependencies, Notes& notes, bool weigh = true);
// Matmuls of a single row (GEMV) with a weight that is not too large read it packed in panels. Sums in another order.
void pack_rows(Graph& graph, Notes& notes);
// Softmax and norms take the elementwise ops before and after them, a few rows at a time. Same bits.
void fuse_rows(Graph& graph, Notes& notes, bool weigh = true);
// Weights that autocast rounds in every training step are rounded by its optimizer instead. Same bits.
void keep_casts(Graph& graph, Notes& notes, bool weigh = true);
// Recomputes results of cheap ops right before a much later read, where that saves memory. Same bits.
void recompute(Graph& graph, Notes& notes, bool weigh = true);
// Constant weights of matmuls and convolutions are packed now instead of in the second run.
void prepack_weights(Graph& graph, Notes& notes);

// All that are on, in the order of passes.def; the graph is verified after each.
void run_passes(Graph& graph, const PassOptions& options, std::vector<Dependency>& dependencies, Notes& notes);

}  // namespace deft::graph
