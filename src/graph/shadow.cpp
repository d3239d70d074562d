#include "graph/shadow.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "core/describe.h"
#include "core/grad_mode.h"
#include "ops/binary.h"
#include "ops/copy.h"
#include "ops/creation.h"
#include "ops/reduce.h"
#include "ops/unary.h"

namespace deft::graph {

namespace {

struct Difference {
  double error = 0, size = 0;  // of finite values, the largest
};
// Values that are not finite must be equal in both; otherwise the error is infinite.
Difference largest_difference(const std::vector<double>& found, const std::vector<double>& wanted) {
  Difference d;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double a = found[i], b = wanted[i];
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    d.error = std::max(d.error, std::isfinite(a) && std::isfinite(b) ? std::abs(a - b) : HUGE_VAL);
  }
  for (double b : wanted)
    if (std::isfinite(b)) d.size = std::max(d.size, std::abs(b));
  return d;
}

// A stated bound for what passes may change: relative to the largest value, a few roundings.
void check_equal(const Tensor& found, const Tensor& wanted, const std::string& what) {
  NoGradGuard no_grad;
  DEFT_CHECK(found.sizes() == wanted.sizes() && found.dtype() == wanted.dtype(), InternalError,
             "compile: {} of a plan is {}, the function's is {}; please report it", what, describe(found.meta()),
             describe(wanted.meta()));
  if (!is_floating(wanted.dtype())) {
    DEFT_CHECK(found.ne(wanted).to(DType::i64).sum().item<int64_t>() == 0, InternalError,
               "compile: {} of a plan differs from the function's; please report it", what);
    return;
  }
  const auto [error, size] = largest_difference(found.to_vector<double>(), wanted.to_vector<double>());
  double bound = (wanted.dtype() == DType::f64 ? 1e-12 : size_of(wanted.dtype()) == 2 ? 0x1p-6 : 1e-4) * size;
  DEFT_CHECK(error <= bound, InternalError,
             "compile: {} of a plan differs by {} from the function's, of values up to {}; please report it", what,
             error, size);
}

Tensor bytes_of(const Tensor& t) {
  const Storage& s = *t.impl()->storage;
  Tensor copy = empty({static_cast<int64_t>(s.nbytes)}, {DType::u8});
  std::memcpy(copy.data_ptr(), s.data, s.nbytes);
  return copy;
}
Tensor on_bytes(const Tensor& bytes, const Tensor& like) {
  Value v{like.meta(), 0, static_cast<const char*>(like.data_ptr()) - static_cast<char*>(like.impl()->storage->data)};
  return on_memory_of(bytes, v);
}

}  // namespace

bool Shadow::is_possible(const Graph& graph) {
  return std::none_of(graph.instructions.begin(), graph.instructions.end(),
                      [](const Instruction& x) { return x.action == Action::call; });
}

Shadow::Shadow(const Graph& graph, const GradState& gradients, GradState::Inputs inputs)
    : gradients_(gradients), inputs_(inputs), draws_(rng_state()) {
  std::vector<Tensor> given;
  for (const Tensor* t : inputs) given.push_back(*t);
  gradients.add_inputs(inputs, given);
  std::vector<bool> written(graph.buffers.size(), false);
  for (const Instruction& x : graph.instructions)
    for (ValueId id : rewritten_values(x)) written[static_cast<size_t>(graph.value(id).buffer)] = true;
  auto keep = [&](const Tensor& t) {
    if (t.device().is_cpu()) written_.push_back({t, bytes_of(t)});
  };
  for (size_t i = 0; i < graph.buffers.size(); ++i)
    if (written[i] && graph.buffers[i].kind == BufferKind::constant) keep(graph.buffers[i].constant);
  for (size_t i = 0; i < graph.inputs.size(); ++i)
    if (written[static_cast<size_t>(graph.value(graph.inputs[i]).buffer)]) keep(given[i]);
  for (const LeafGrad& l : gradients.leaves) gradients_before_.push_back(gradients.leaf(l, inputs).grad());
}

void Shadow::compare(const std::vector<Tensor>& results, const Function& function, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> memory, made;
  for (const Memory& m : written_) {
    memory.push_back(bytes_of(m.tensor));
    Storage& s = *m.tensor.impl()->storage;
    std::memcpy(s.data, m.before.data_ptr(), s.nbytes);
    s.bump_version("compile", {});
  }
  for (size_t i = 0; i < gradients_.leaves.size(); ++i) {
    const Tensor& leaf = gradients_.leaf(gradients_.leaves[i], inputs_);
    made.push_back(leaf.grad());
    if (gradients_before_[i].defined())
      leaf.set_grad(gradients_before_[i]);
    else
      leaf.zero_grad();
  }
  set_rng_state(draws_);
  std::vector<Tensor> wanted = function(inputs);
  DEFT_CHECK(wanted.size() == results.size(), InternalError,
             "compile: a plan gives {} results, the function {}; please report it", results.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) check_equal(results[i], wanted[i], fmt::format("result {}", i));
  for (size_t i = 0; i < memory.size(); ++i)
    check_equal(on_bytes(memory[i], written_[i].tensor), written_[i].tensor, "a tensor that is written");
  for (size_t i = 0; i < made.size(); ++i) {
    Tensor now = gradients_.leaf(gradients_.leaves[i], inputs_).grad();
    DEFT_CHECK(now.defined() == made[i].defined(), InternalError,
               "compile: a plan leaves a gradient where the function does not, or the opposite; please report it");
    if (now.defined() && !now.shares_storage_with(made[i])) check_equal(made[i], now, "a gradient");
  }
}

}  // namespace deft::graph
