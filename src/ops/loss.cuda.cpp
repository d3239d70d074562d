#include "ops/loss.h"

#include "kernels/cuda/index.h"
#include "ops/dense.h"

namespace deft {

void ClassTargets::cuda(KernelCall& c) {
  const Params& p = c.params<ClassTargets>();
  cuda::Encoder e(c.out().device(), p.cross_entropy ? "cross_entropy" : "nll_loss");
  Tensor target = as_dense(c.in());
  cuda::class_targets(e, target.data<int64_t>(), target.numel(), p.classes, p.ignore_index, c.out(0).data<int64_t>(),
                      c.out(1).data<bool>(),
                      e.fault_site(cuda::FaultKind::index,
                                   "{0}: target {1} at element {2} is not one of the {3} classes nor the ignored {4}"));
}

void ProbabilityEdges::cuda(KernelCall& c) {
  cuda::Encoder e(c.out().device(), c.def.info.name);
  Tensor x = as_dense(c.in());
  cuda::probability_edges(e, x.dtype(), x.data_ptr(), x.numel(), kEdge, c.out().data<bool>(),
                          e.fault_site(cuda::FaultKind::value, kText));
}

}  // namespace deft
