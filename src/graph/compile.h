// compile(f): the first call with inputs of a kind runs f and records its ops; later calls run the plan made from them.
// Plans record no gradients. f may run backward() and an optimizer itself, a whole training step; a result
// that still needs its graph is a CaptureError.
//
//   auto fast = deft::compile([&](const Tensor& x) { return model(x); });
//   Tensor y = fast(x);
//   std::cout << fast.explain();
//
// Plans keep the tensors that f reads. Optimizers, schedules, scalers and averages that f calls are called again by
// each replay: they must live longer than the compiled function.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "graph/passes.h"
#include "graph/symbolic.h"

namespace deft {

struct CompileOptions {
  size_t plans = 16;                    // at most; the one that was not used for the longest time goes first
  size_t plan_bytes = size_t{1} << 30;  // of all arenas and constants made for plans
  graph::PassOptions passes = {};
  // Sizes become symbols where captures show how the graph follows from them; see docs/guide/compile.md.
  bool symbolic = true;
  std::vector<graph::InputDim> dynamic = {};  // dims that f does not branch on: two captures are enough
  std::vector<graph::DimRange> ranges = {};   // no template is used for other sizes of these dims
  int shadow = 0;                             // every n-th call of a plan is compared with f itself; 0: never
  // A number that changes when f would do something else: modes of modules, say. Part of the key.
  std::function<uint64_t()> state = {};
};

struct CompileStats {
  int64_t calls = 0, replays = 0, captures = 0, evictions = 0, shadows = 0, instantiated = 0;
  int64_t arena_bytes = 0;  // of all plans there are: what lies between their inputs and results, or stays cast
};

class Compiled {
 public:
  using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
  explicit Compiled(Function function, CompileOptions options = {}, Site site = Site::current());
  ~Compiled();
  Compiled(Compiled&&) noexcept;
  Compiled& operator=(Compiled&&) noexcept;

  // Any number of tensors; one call at a time. Results are the caller's own.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs);
  // The same into an existing vector: its tensors are released first, so that their memory is reused.
  void run(const std::vector<Tensor>& inputs, std::vector<Tensor>& results);
  // For functions with one result; ValueError for others. The quickest way to call a plan: no vector is made.
  template <class... T>
  Tensor operator()(const T&... inputs) {
    const Tensor* pointers[] = {&inputs...};
    return run_one(pointers);
  }

  CompileStats stats() const;
  // Why the last calls were not served by a plan that was there, oldest first; the last hundred.
  const std::vector<std::string>& misses() const;
  // Instructions, what the passes did and left, memory, and the misses, of all plans.
  std::string explain() const;

  // For files (io/plan_file.h): the plans in the modes and the state of the one used last, that one first, but none
  // that a constant went into which was written since; confirmed templates in these modes and state; and plans without
  // a function, in any mode: a call that neither they nor the templates serve is a ValueError.
  std::vector<const graph::Graph*> graphs() const;
  std::vector<const graph::Template*> templates() const;
  const std::vector<graph::DimRange>& ranges() const;
  static Compiled of_graphs(std::vector<graph::Graph> graphs, std::vector<graph::Template> templates = {},
                            std::vector<graph::DimRange> ranges = {});

 private:
  Tensor run_one(std::span<const Tensor* const> inputs);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

namespace detail {
void check_input_count(size_t found, size_t wanted);  // ValueError
}

Compiled compile(Compiled::Function function, CompileOptions options = {}, Site site = Site::current());
// Functions of one or more tensors that give one tensor.
template <class F>
requires std::copy_constructible<F> && std::is_invocable_r_v<Tensor, F, const Tensor&> Compiled
compile(F f, CompileOptions options = {}, Site site = Site::current()) {
  auto of_list = [f = std::move(f)](const std::vector<Tensor>& x) {
    detail::check_input_count(x.size(), 1);
    return std::vector<Tensor>{f(x[0])};
  };
  return compile(Compiled::Function(std::move(of_list)), std::move(options), site);
}
template <class F>
requires std::copy_constructible<F> && std::is_invocable_r_v<Tensor, F, const Tensor&, const Tensor&> Compiled
compile(F f, CompileOptions options = {}, Site site = Site::current()) {
  auto of_list = [f = std::move(f)](const std::vector<Tensor>& x) {
    detail::check_input_count(x.size(), 2);
    return std::vector<Tensor>{f(x[0], x[1])};
  };
  return compile(Compiled::Function(std::move(of_list)), std::move(options), site);
}

}  // namespace deft
