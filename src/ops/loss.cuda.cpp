#include "ops/loss.h"

#include "kernels/cuda/copy/copy.h"
#include "kernels/cuda/index/index.h"
#include "kernels/cuda/norm/cross_entropy.h"
#include "ops/dense.h"

namespace deft {

namespace {

constexpr const char* kBadClass = "{0}: target {1} at element {2} is not one of the {3} classes nor the ignored {4}";

// What both directions give the kernels.
struct CrossEntropyInputs {
  Tensor x, target, weight;
  CrossEntropyInputs(const Tensor& logits, const Tensor& classes, const Tensor& weights)
      : x(as_dense(logits)), target(as_dense(classes)), weight(weights.defined() ? as_dense(weights) : weights) {}
  cuda::CrossEntropyCall call(const CrossEntropyClasses::Params& p) const {
    const int64_t n = x.sizes().back();
    return {x.dtype(),
            target.numel(),
            n,
            x.data_ptr(),
            static_cast<const int64_t*>(target.data_ptr()),
            weight.defined() ? weight.data_ptr() : nullptr,
            p.ignore_index,
            p.label_smoothing};
  }
};

}  // namespace

void CrossEntropyClasses::cuda(KernelCall& c) {
  const Params& p = c.params<CrossEntropyClasses>();
  cuda::Encoder e(c.out().device(), c.def.info.name);
  const CrossEntropyInputs in(c.in(0), c.in(1), c.has(2) ? c.in(2) : Tensor());
  const cuda::CrossEntropyCall call = in.call(p);
  const cuda::Workspace rows(e, static_cast<size_t>(2 * call.rows) * sizeof(double));
  double *losses = rows.as<double>(), *weights = losses + call.rows;
  cuda::cross_entropy(e, call, losses, weights, c.out(1).data_ptr(), e.fault_site(cuda::FaultKind::index, kBadClass));
  const bool each = p.reduction == Reduction::none;
  cuda::cross_entropy_sum(e, losses, weights, call.rows, p.reduction == Reduction::mean,
                          static_cast<double*>(c.out(2).data_ptr()), each ? nullptr : c.out(0).data_ptr(),
                          c.out(0).dtype());
  if (each && call.rows > 0) {
    cuda::copy_strided(e, {losses, DType::f64, {1}}, {c.out(0).data_ptr(), c.out(0).dtype(), {1}}, 1, &call.rows);
  }
}

void CrossEntropyBackward::cuda(KernelCall& c) {
  const Params& p = c.params<CrossEntropyBackward>();
  cuda::Encoder e(c.out().device(), c.def.info.name);
  const CrossEntropyInputs in(c.in(1), c.in(2), c.has(3) ? c.in(3) : Tensor());
  const Tensor g = as_dense(c.in(0));
  const auto* weight_sum = static_cast<const double*>(c.in(5).data_ptr());
  cuda::cross_entropy_backward(
      e, in.call(p), c.in(4).data_ptr(),
      {g.data_ptr(), g.dtype(), p.reduction != Reduction::none, p.reduction == Reduction::mean ? weight_sum : nullptr},
      c.out().data_ptr());
}

void ClassTargets::cuda(KernelCall& c) {
  const Params& p = c.params<ClassTargets>();
  cuda::Encoder e(c.out().device(), p.cross_entropy ? "cross_entropy" : "nll_loss");
  Tensor target = as_dense(c.in());
  cuda::class_targets(e, target.data<const int64_t>(), target.numel(), p.classes, p.ignore_index,
                      c.out(0).data<int64_t>(), c.out(1).data<bool>(), e.fault_site(cuda::FaultKind::index, kBadClass));
}

void ProbabilityEdges::cuda(KernelCall& c) {
  cuda::Encoder e(c.out().device(), c.def.info.name);
  Tensor x = as_dense(c.in());
  cuda::probability_edges(e, x.dtype(), x.data_ptr(), x.numel(), kEdge, c.out().data<bool>(),
                          e.fault_site(cuda::FaultKind::value, kText));
}

}  // namespace deft
