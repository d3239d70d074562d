#include "ops/elementwise_chain.h"

#include "base/check.h"
#include "kernels/cpu/elementwise/elementwise_chain.h"
#include "ops/chain_links.h"
#include "ops/cuda_ops.h"
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
  if (!out.is_dense()) out.set_strides(contiguous_strides(out.sizes));
  out.dtype = p.step[p.steps - 1].stored;
  out.wrapped_number = false;
  return out;
}

ElementwiseChain::Rows ElementwiseChain::rows_of(const Meta& m) {
  Rows r;
  int64_t count = 1, expected = 0;  // of rows so far, and where the next dimension continues them
  for (int d = m.rank() - 1; d >= 0; --d) {
    if (m.sizes[d] == 1) continue;
    if (r.length == 0) {
      if (m.strides[d] != 1) return {};
      r.length = m.sizes[d];
    } else if (count == 1 && m.strides[d] == r.length) {
      r.length *= m.sizes[d];
    } else {
      if (count > 1 && m.strides[d] != expected) return {};
      if (count == 1) r.distance = m.strides[d];
      count *= m.sizes[d];
      expected = m.strides[d] * m.sizes[d];
    }
  }
  return r;
}

const OpDef& ElementwiseChain::op_of(const Params& p, int s) {
  const int op = p.step[s].op;
  const OpDef* def = op_at(op < 0 ? ~op : op);
  DEFT_CHECK(def && def->elementwise && (op >= 0 || def->elementwise->grad_table), ValueError,
             "elementwise_chain: step {} is no elementwise op", s);
  return *def;
}

DType ElementwiseChain::compute_type(const KernelCall& c, const Params& p, int s) {
  const Step& step = p.step[s];
  if (step.op < 0) return elementwise::compute_type(step.stored);
  const ElementwiseDef& e = *op_of(p, s).elementwise;
  // What promotion looks at: type, and whether it is a number, a 0-d tensor or more.
  Meta made[kOperands];
  const Meta* operands[kOperands];
  for (int i = 0; i < step.inputs; ++i) {
    operands[i] = step.in[i] < kInputs ? &c.in(step.in[i]).meta() : &(made[i] = c.out().meta());
    if (step.in[i] >= kInputs) made[i].dtype = p.step[step.in[i] - kInputs].stored;
  }
  return elementwise::compute_type(
      elementwise::common_type(operands + e.condition, step.inputs - e.condition, e.result));
}

bool ElementwiseChain::fuses_on(Device device) {
  return device.is_cpu() || (cuda_ops.fuses_chains && cuda_ops.fuses_chains());
}

namespace {

cpu::ChainStep chain_step(const KernelCall& c, const ElementwiseChain::Params& p, int s) {
  const ElementwiseChain::Step& from = p.step[s];
  const bool gradient = from.op < 0;
  const OpDef& def = ElementwiseChain::op_of(p, s);
  const ElementwiseDef& e = *def.elementwise;
  cpu::ChainStep step{};
  step.inputs = from.inputs;
  for (int i = 0; i < from.inputs; ++i) step.in[i] = from.in[i];
  step.compute = ElementwiseChain::compute_type(c, p, s);
  step.result = e.result == ResultType::boolean && !gradient ? DType::boolean : step.compute;
  step.stored = from.stored;
  const auto table = gradient ? e.grad_table : e.table;
  step.fn = table()[e.row * kDTypeCount + static_cast<int>(step.compute)];
  DEFT_CHECK(step.fn, DTypeError, "{}: does not take {}; convert it with to()", def.info.name, name_of(step.compute));
  step.params = def.params_bytes ? from.params : nullptr;
  return step;
}

cpu::ChainCall chain_call(const KernelCall& c) {
  const ElementwiseChain::Params& p = c.params<ElementwiseChain>();
  cpu::ChainCall call{};
  call.count = c.out().numel();
  call.inputs = p.inputs;
  call.steps = p.steps;
  for (int i = 0; i < p.inputs; ++i) {
    const ElementwiseChain::Rows rows = p.period[i] == 0 && !c.in(i).meta().is_dense()
                                            ? ElementwiseChain::rows_of(c.in(i).meta())
                                            : ElementwiseChain::Rows();
    call.in[i] = {nullptr, c.in(i).dtype(), p.period[i], rows.length, rows.distance};
  }
  const OpDef* ops[ElementwiseChain::kSteps];
  for (int s = 0; s < p.steps; ++s) {
    call.step[s] = chain_step(c, p, s);
    ops[s] = p.step[s].op < 0 ? nullptr : &ElementwiseChain::op_of(p, s);
  }
  add_links(call, ops);
  return call;
}

void run(cpu::ChainCall& call, const Tensor* const* inputs, const Tensor& out) {
  if (call.count == 0) return;
  for (int i = 0; i < call.inputs; ++i) call.in[i].data = inputs[i]->data_ptr();
  call.out = out.data_ptr();
  cpu::elementwise_chain(call);
}

}  // namespace

void ElementwiseChain::cpu(KernelCall& c) {
  cpu::ChainCall call = chain_call(c);
  run(call, c.inputs, c.out());
}

PreparedKernel ElementwiseChain::prepare(const KernelCall& c) {
  return [call = chain_call(c), inputs = c.inputs, out = c.outputs]() mutable { run(call, inputs, *out); };
}

}  // namespace deft
