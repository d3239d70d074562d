// compile(f): the first call with inputs of a kind runs f and writes down what it does; later ones run the plan made
// from that. Plans record no gradients: CaptureError where f would record some, so call it under no_grad or
// inference_mode.
//
//   auto fast = deft::compile([&](const Tensor& x) { return model(x); });
//   Tensor y = fast(x);
//   std::cout << fast.explain();
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "graph/passes.h"

namespace deft {

struct CompileOptions {
  size_t plans = 16;                    // at most; the one that was not used for the longest time goes first
  size_t plan_bytes = size_t{1} << 30;  // of all arenas and constants made for plans
  graph::PassOptions passes = {};
  int shadow = 0;  // every n-th call of a plan is compared with f itself; 0: never
  // A number that changes when f would do something else: modes of modules, say. Part of the key.
  std::function<uint64_t()> state = {};
};

struct CompileStats {
  int64_t calls = 0, replays = 0, captures = 0, evictions = 0, shadows = 0;
};

class Compiled {
 public:
  using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
  explicit Compiled(Function function, CompileOptions options = {});
  ~Compiled();
  Compiled(Compiled&&) noexcept;
  Compiled& operator=(Compiled&&) noexcept;

  // Any number of tensors; one call at a time. Results are the caller's own.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs);
  // For functions with one result.
  template <class... T>
  Tensor operator()(const T&... inputs) {
    return run({inputs...}).front();
  }

  CompileStats stats() const;
  // Why the last calls were not served by a plan that was there, oldest first; the last hundred.
  const std::vector<std::string>& misses() const;
  // Instructions, what the passes did and left, memory, and the misses, of all plans.
  std::string explain() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

Compiled compile(Compiled::Function function, CompileOptions options = {});
// Functions of one or more tensors that give one tensor.
template <class F>
requires std::copy_constructible<F> && std::is_invocable_r_v<Tensor, F, const Tensor&> Compiled
compile(F f, CompileOptions options = {}) {
  return compile([f = std::move(f)](const std::vector<Tensor>& x) { return std::vector<Tensor>{f(x.at(0))}; },
                 std::move(options));
}
template <class F>
requires std::copy_constructible<F> && std::is_invocable_r_v<Tensor, F, const Tensor&, const Tensor&> Compiled
compile(F f, CompileOptions options = {}) {
  return compile([f = std::move(f)](const std::vector<Tensor>& x) { return std::vector<Tensor>{f(x.at(0), x.at(1))}; },
                 std::move(options));
}

}  // namespace deft
