#include "ops/elementwise_gradient.h"

#include "ops/elementwise.h"
#include "ops/op_table.h"

namespace deft {

Meta ElementwiseGradient::infer(const Meta& g, const Meta& x, const Meta& y, const Params& p) {
  const Meta* metas[] = {&g, &x, &y};
  Meta m = elementwise::infer("gradient", ResultType::same, metas, 3);
  m.dtype = p.dtype;
  return m;
}

void ElementwiseGradient::cpu(KernelCall& c) {
  const Params& p = c.params<ElementwiseGradient>();
  const ElementwiseDef& def = *op_at(p.op)->elementwise;
  DType compute = elementwise::compute_type(p.dtype);
  cpu::ChunkFn fn = def.grad_table()[def.row * kDTypeCount + static_cast<int>(compute)];
  elementwise::run(fn, c.inputs, 3, c.out(), compute, compute, p.params.data());
}

}  // namespace deft
