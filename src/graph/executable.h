// A graph ready to run repeatedly: kernels in order on memory that was planned before. A run allocates nothing but
// results that the caller still holds from the run before.
#pragma once

#include <memory>

#include "graph/ir.h"
#include "graph/memory_plan.h"

namespace deft::graph {

class Executable {
 public:
  explicit Executable(Graph graph);
  ~Executable();
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  // Inputs as in the capture: shapes, types, strides. One run at a time.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs);
  // The same for a caller who knows that they are: as many inputs and results as the graph has. No vectors.
  void run(const Tensor* const* inputs, Tensor* results);

  const Graph& graph() const;
  const MemoryPlan& memory() const;
  size_t kernels() const;  // that a run calls

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace deft::graph
