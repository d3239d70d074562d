#include "ops/elementwise_chain.h"

#include "base/check.h"
#include "kernels/cpu/elementwise_chain.h"
#include "ops/elementwise.h"
#include "ops/op_table.h"

namespace deft {

static_assert(ElementwiseChain::kInputs == cpu::kChainInputs && ElementwiseChain::kSteps == cpu::kChainSteps &&
              ElementwiseChain::kOperands == cpu::kMaxInputs);

Meta ElementwiseChain::infer(std::span<const Meta* const> inputs, Params& p) {
  DEFT_CHECK(p.steps > 0 && p.steps <= kSteps && p.inputs == static_cast<int32_t>(inputs.size()) && p.like >= 0 &&
                 p.like < p.inputs,
             ValueError, "elementwise_chain: {} steps and {} inputs do not fit its parameters", p.steps, inputs.size());
  Meta out = *inputs[static_cast<size_t>(p.like)];
  out.dtype = p.step[p.steps - 1].stored;
  out.wrapped_number = false;
  return out;
}

namespace {

// What promotion looks at: type, and whether it is a number, a 0-d tensor or more.
Meta operand_meta(const KernelCall& c, const ElementwiseChain::Params& p, int source) {
  if (source < ElementwiseChain::kInputs) return c.in(source).meta();
  Meta m = c.out().meta();
  m.dtype = p.step[source - ElementwiseChain::kInputs].stored;
  return m;
}

cpu::ChainStep chain_step(const KernelCall& c, const ElementwiseChain::Params& p, int s) {
  const ElementwiseChain::Step& from = p.step[s];
  const OpDef* def = op_at(from.op);
  DEFT_CHECK(def && def->elementwise, ValueError, "elementwise_chain: step {} is no elementwise op", s);
  const ElementwiseDef& e = *def->elementwise;
  Meta metas[ElementwiseChain::kOperands];
  const Meta* pointers[ElementwiseChain::kOperands];
  cpu::ChainStep step{};
  step.inputs = from.inputs;
  for (int i = 0; i < from.inputs; ++i) {
    step.in[i] = from.in[i];
    metas[i] = operand_meta(c, p, from.in[i]);
    pointers[i] = &metas[i];
  }
  DType common = elementwise::common_type(pointers + e.condition, from.inputs - e.condition, e.result);
  step.compute = elementwise::compute_type(common);
  step.result = e.result == ResultType::boolean ? DType::boolean : step.compute;
  step.stored = from.stored;
  step.fn = e.table()[e.row * kDTypeCount + static_cast<int>(step.compute)];
  DEFT_CHECK(step.fn, DTypeError, "{}: does not take {}; convert it with to()", def->info.name, name_of(step.compute));
  step.params = def->params_bytes ? from.params : nullptr;
  return step;
}

}  // namespace

void ElementwiseChain::cpu(KernelCall& c) {
  const Params& p = c.params<ElementwiseChain>();
  cpu::ChainCall call;
  call.count = c.out().numel();
  if (call.count == 0) return;
  call.inputs = p.inputs;
  call.steps = p.steps;
  for (int i = 0; i < p.inputs; ++i) call.in[i] = {c.in(i).data_ptr(), c.in(i).dtype(), p.period[i]};
  for (int s = 0; s < p.steps; ++s) call.step[s] = chain_step(c, p, s);
  call.out = c.out().data_ptr();
  cpu::elementwise_chain(call);
}

}  // namespace deft
