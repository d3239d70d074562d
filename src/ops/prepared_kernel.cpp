#include "ops/prepared_kernel.h"

#include "kernels/cpu/copy/strided.h"
#include "ops/elementwise.h"
#include "ops/elementwise_chain.h"
#include "ops/packed_linear.h"

namespace deft {

namespace {

constexpr int kOperands = 4;

// All of one type and in the same order, and too few to split.
bool is_small_and_dense(const KernelCall& c) {
  const Meta& out = c.out().meta();
  if (c.input_count > kOperands || out.numel > cpu::kElementGrain || !out.is_dense()) return false;
  for (int i = 0; i < c.input_count; ++i) {
    if (!c.has(i)) return false;
    const Meta& in = c.in(i).meta();
    bool same_order = in.sizes == out.sizes && (in.strides == out.strides || (in.contiguous && out.contiguous));
    if (!same_order || in.dtype != out.dtype || in.device != out.device) return false;
  }
  return true;
}

PreparedKernel prepare_elementwise(const KernelCall& c) {
  const ElementwiseDef& e = *c.def.elementwise;
  const DType type = c.out().dtype();
  if (e.result == ResultType::boolean || e.condition || elementwise::compute_type(type) != type) return {};
  if (!is_small_and_dense(c)) return {};
  const cpu::ChunkFn fn = e.table()[e.row * kDTypeCount + static_cast<int>(type)];
  if (!fn) return {};
  return [=] {
    const void* in[kOperands];
    for (int i = 0; i < c.input_count; ++i) in[i] = c.in(i).data_ptr();
    fn(in, c.out().data_ptr(), static_cast<size_t>(c.out().numel()), c.params_data);
  };
}

}  // namespace

PreparedKernel prepare_kernel(const KernelCall& c) {
  if (!c.out().device().is_cpu()) return {};
  if (&c.def == &op_def<ElementwiseChain>) return ElementwiseChain::prepare(c);
  if (&c.def == &op_def<FusedLinear>) return FusedLinear::prepare(c);
  if (c.def.elementwise) return prepare_elementwise(c);
  return {};
}

}  // namespace deft
