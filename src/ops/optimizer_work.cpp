#include "ops/optimizer_work.h"

#include "core/observer.h"

namespace deft {

namespace {

double bytes_of(const Tensor& t) { return static_cast<double>(t.numel()) * static_cast<double>(size_of(t.dtype())); }

// Scaling of the gradient, and weight decay where it is added to it.
double gradient_flops(const OptimizerUpdate& o, bool decay) {
  return (o.grad_scale != 1 || o.maximize ? 1 : 0) + (decay && o.weight_decay != 0 ? 2 : 0);
}

constexpr double kAverage = 3;        // x += weight (g - x)
constexpr double kSquareAverage = 4;  // x = beta x + (1 - beta) g g
constexpr double kStep = 2;           // p -= lr x

}  // namespace

double flops_per_element(const SgdUpdate& o) {
  double flops = gradient_flops(o, true) + kStep;
  if (o.momentum != 0) flops += (o.first ? 0 : 2 + (o.dampening != 0)) + (o.nesterov ? 2 : 0);
  return flops;
}

double flops_per_element(const AdamUpdate& o) {
  const double decay = o.decoupled && o.weight_decay != 0 ? 1 : 0, root = 3;  // sqrt(v) c + eps
  return gradient_flops(o, !o.decoupled) + decay + kAverage + kSquareAverage + (o.amsgrad ? 1 : 0) + root + 1 + kStep;
}

double flops_per_element(const RmspropUpdate& o) {
  const double centre = o.centered ? kAverage + 2 : 0, root = 2;
  return gradient_flops(o, true) + kSquareAverage + centre + root + 1 + (o.momentum != 0 ? 2 : 0) + kStep;
}

double flops_per_element(const AdagradUpdate& o) {
  const double sum = 2, root = 2;
  return gradient_flops(o, true) + sum + root + 1 + kStep;
}

double flops_per_element(const LambUpdate& o) {
  const double root = 3, update = 2, decay = o.weight_decay != 0 ? 2 : 0, norms = 4;
  return gradient_flops(o, false) + kAverage + kSquareAverage + root + update + decay + norms + kStep;
}

double bytes_of_update(const UpdateTensor& t, unsigned states, bool states_begin) {
  double bytes =
      bytes_of(t.grad) + (t.master.defined() ? 2 * bytes_of(t.master) + bytes_of(t.param) : 2 * bytes_of(t.param));
  for (int k = 0; k < 3; ++k)
    if (states >> k & 1) bytes += (states_begin ? 1 : 2) * bytes_of(t.state[k]);
  return bytes;
}

void notify_pass(const Tensor& one, const TensorPass::Params& work, const Site& site) {
  const Tensor* inputs[] = {&one};
  if (Observer* o = observer()) o->kernel_ran(KernelCall{op_def<TensorPass>, inputs, 1, nullptr, &work}, site);
}

void notify_pass(std::span<const Tensor> tensors, double flops, double times_bytes, const Site& site) {
  TensorPass::Params work;
  for (const Tensor& t : tensors) {
    work.flops += flops * static_cast<double>(t.numel());
    work.bytes += times_bytes * bytes_of(t);
  }
  if (!tensors.empty()) notify_pass(tensors[0], work, site);
}

}  // namespace deft
