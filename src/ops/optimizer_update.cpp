#include "ops/optimizer_update.h"

#include <cmath>
#include <vector>

#include "base/check.h"
#include "core/describe.h"
#include "core/node.h"
#include "core/rounded_copy.h"
#include "kernels/cpu/workspace.h"
#include "ops/binary.h"
#include "ops/copy.h"
#include "ops/creation.h"
#include "ops/cuda_ops.h"
#include "ops/operand.h"
#include "ops/optimizer_work.h"
#include "ops/reduce.h"
#include "ops/tensor_list_passes.h"
#include "ops/ternary.h"
#include "ops/unary.h"

namespace deft {

namespace {

using detail::for_each_gpu;
using detail::ListCall;
using detail::order_read;
using detail::order_write;
using detail::plain_context;
using detail::same_layout;

// What the step is computed on.
const Tensor& target(const UpdateTensor& t) { return t.master.defined() ? t.master : t.param; }

void check_state(const char* name, const Tensor& state, const Tensor& param, const char* what) {
  DEFT_CHECK(state.defined() && state.sizes() == param.sizes() && state.device() == param.device() &&
                 state.dtype() == optimizer_state_dtype(param.dtype()),
             ValueError, "{}: {} of a parameter {} is {}; make it with optimizer_state()", name, what,
             describe(param.meta()), state.defined() ? describe(state.meta()) : "undefined");
}

void check(const char* name, const UpdateTensor& t, unsigned needed, const Site& site) {
  DEFT_CHECK(t.param.defined() && t.grad.defined(), ValueError,
             "{}: a parameter or its gradient is undefined; leave out parameters without gradients", name);
  DEFT_CHECK(is_floating(t.param.dtype()) && is_floating(t.grad.dtype()), DTypeError,
             "{}: found a parameter {} and its gradient {}, expected floating types", name, describe(t.param.meta()),
             describe(t.grad.meta()));
  DEFT_CHECK(t.grad.sizes() == t.param.sizes() && t.grad.device() == t.param.device(), ShapeError,
             "{}: the gradient is {}, the parameter {}; shape and device must match", name, describe(t.grad.meta()),
             describe(t.param.meta()));
  check_inplace(*t.param.impl(), false, name, site);
  if (t.master.defined()) {
    check_state(name, t.master, t.param, "the master copy");
    check_inplace(*t.master.impl(), false, name, site);
  }
  for (int k = 0; k < 3; ++k) {
    if (!(needed >> k & 1)) continue;
    check_state(name, t.state[k], t.param, "a state");
    check_inplace(*t.state[k].impl(), false, name, site);
  }
}

void written(const char* name, const UpdateTensor& t, unsigned needed, const Site& site) {
  t.param.impl()->storage->bump_version(name, site);
  if (t.master.defined()) t.master.impl()->storage->bump_version(name, site);
  for (int k = 0; k < 3; ++k)
    if (needed >> k & 1) t.state[k].impl()->storage->bump_version(name, site);
}

// One pass of the kernel serves it: everything lies in memory as the parameter does, which is f32, or on a GPU also of
// 16 bits. The gradient may be moved.
bool is_fusable(const UpdateTensor& t, unsigned needed) {
  const Tensor& p = target(t);
  const bool on_cpu = p.device().is_cpu();
  auto is_half = [&](DType d) { return d == DType::bf16 || (d == DType::f16 && !on_cpu); };
  const bool fits = p.dtype() == DType::f32 || (!on_cpu && is_half(p.dtype()));
  if (!fits || !p.meta().is_dense()) return false;
  if (t.grad.dtype() != DType::f32 && !is_half(t.grad.dtype())) return false;
  if (t.master.defined() && (!is_half(t.param.dtype()) || !same_layout(t.param.meta(), p.meta()))) return false;
  for (int k = 0; k < 3; ++k)
    if ((needed >> k & 1) && !same_layout(t.state[k].meta(), p.meta())) return false;
  return true;
}

Tensor in_layout_of(const Tensor& x, const Tensor& like) {
  Meta m = Meta::dense(x.sizes(), x.dtype(), x.device());
  m.set_strides(like.strides());
  Tensor copy(make_tensor(m));
  copy_values(x, copy);
  return copy;
}

// Copies that plans keep of f32 parameters in bf16, by index of the parameter.
using Copies = std::vector<std::pair<size_t, std::shared_ptr<const Tensor>>>;

cpu::OptimizerTensor kernel_tensor(const UpdateTensor& t, const Tensor& grad, unsigned needed) {
  const Tensor& p = target(t);
  cpu::OptimizerTensor k{p.numel(), static_cast<float*>(p.data_ptr()), grad.data_ptr(), grad.dtype(), {}, nullptr};
  for (int s = 0; s < 3; ++s)
    if (needed >> s & 1) k.state[s] = static_cast<float*>(t.state[s].data_ptr());
  if (t.master.defined()) k.copy = static_cast<BFloat16*>(t.param.data_ptr());
  return k;
}

// --- On GPUs.
detail::CudaOptimizerTensor cuda_tensor(const UpdateTensor& t, const Tensor& grad, unsigned needed) {
  const Tensor& p = target(t);
  const bool wide = p.dtype() == DType::f32, copied = !wide || t.master.defined();
  detail::CudaOptimizerTensor k{.size = p.numel(),
                                .param = wide ? static_cast<float*>(p.data_ptr()) : nullptr,
                                .grad = grad.data_ptr(),
                                .copy = copied ? t.param.data_ptr() : nullptr,
                                .state = {},
                                .grad_dtype = grad.dtype(),
                                .copy_dtype = t.param.dtype()};
  order_write(p);
  for (int s = 0; s < 3; ++s) {
    if (!(needed >> s & 1)) continue;
    order_write(t.state[s]);
    k.state[s] = static_cast<float*>(t.state[s].data_ptr());
  }
  if (t.master.defined()) order_write(t.param);
  return k;
}

template <class Update>
void run_on_gpus(const char* name, std::span<const UpdateTensor> tensors, unsigned needed, const Update& o,
                 Copies& copies) {
  cpu::Workspace<detail::CudaOptimizerTensor> list(static_cast<int64_t>(tensors.size()));
  std::vector<Tensor> moved;
  for_each_gpu(
      tensors, [](const UpdateTensor& t) { return t.param.device(); },
      [&](Device device) {
        int64_t count = 0;
        for (const UpdateTensor& t : tensors) {
          if (t.param.device() != device || !is_fusable(t, needed)) continue;
          order_read(t.grad);
          const bool fits = same_layout(t.grad.meta(), t.param.meta());
          if (!fits) moved.push_back(in_layout_of(t.grad, target(t)));
          detail::CudaOptimizerTensor& k = list[count++] = cuda_tensor(t, fits ? t.grad : moved.back(), needed);
          if (k.copy) continue;
          if (auto copy = find_rounded_copy(t.param)) {
            order_write(*copy);
            k.copy = copy->data_ptr(), k.copy_dtype = DType::bf16;
            copies.emplace_back(static_cast<size_t>(&t - tensors.data()), std::move(copy));
          }
        }
        if (count) std::get<CudaUpdate<Update>>(cuda_ops.update)(device, name, list.data(), count, o);
      });
}

// --- The same in tensor ops. `p` is of the states' type and written in place.
struct Operands {
  Tensor p, g, state[3];
};

Tensor gradient(const Operands& x, const OptimizerUpdate& o, double weight_decay) {
  const double scale = o.maximize ? -o.grad_scale : o.grad_scale;
  Tensor g = scale == 1 ? x.g : x.g * scale;
  return weight_decay == 0 ? g : g + x.p * weight_decay;
}

void composed_sgd(Operands& x, const SgdUpdate& o) {
  Tensor g = gradient(x, o, o.weight_decay);
  if (o.momentum != 0) {
    Tensor& buffer = x.state[0];
    if (o.first)
      buffer.copy_(g);
    else
      buffer.mul_(o.momentum).add_(g * (1 - o.dampening));
    g = o.nesterov ? g + buffer * o.momentum : buffer;
  }
  x.p.sub_(g * o.lr);
}

// Corrections of the moments, which begin at zero.
double correction(double beta, int64_t step) { return 1 - std::pow(beta, static_cast<double>(step)); }

void update_moments(Operands& x, const Tensor& g, double beta1, double beta2) {
  x.state[0].lerp_(g, 1 - beta1);
  x.state[1].mul_(beta2).addcmul_(g, g, 1 - beta2);
}

void composed_adam(Operands& x, const AdamUpdate& o) {
  Tensor g = gradient(x, o, o.decoupled ? 0 : o.weight_decay);
  if (o.decoupled) x.p.mul_(1 - o.lr * o.weight_decay);
  update_moments(x, g, o.beta1, o.beta2);
  if (o.amsgrad) x.state[2].maximum_(x.state[1]);
  Tensor root = (o.amsgrad ? x.state[2] : x.state[1]).sqrt();
  root.mul_(1 / std::sqrt(correction(o.beta2, o.step))).add_(o.eps);
  addcdiv_(x.p, x.state[0], root, -o.lr / correction(o.beta1, o.step));
}

void composed_rmsprop(Operands& x, const RmspropUpdate& o) {
  Tensor g = gradient(x, o, o.weight_decay);
  x.state[0].mul_(o.alpha).addcmul_(g, g, 1 - o.alpha);
  Tensor square = x.state[0];
  if (o.centered) {
    x.state[2].lerp_(g, 1 - o.alpha);
    square = addcmul(square, x.state[2], x.state[2], -1);
  }
  Tensor step = g / (square.sqrt() + o.eps);
  if (o.momentum != 0) step = x.state[1].mul_(o.momentum).add_(step);
  x.p.sub_(step * o.lr);
}

void composed_adagrad(Operands& x, const AdagradUpdate& o) {
  Tensor g = gradient(x, o, o.weight_decay);
  x.state[0].addcmul_(g, g);
  addcdiv_(x.p, g, x.state[0].sqrt() + o.eps, -o.lr / (1 + static_cast<double>(o.step - 1) * o.lr_decay));
}

void composed_lamb(Operands& x, const LambUpdate& o) {
  update_moments(x, gradient(x, o, 0), o.beta1, o.beta2);
  Tensor root = (x.state[1] * (1 / correction(o.beta2, o.step))).sqrt().add_(o.eps);
  Tensor update = (x.state[0] * (1 / correction(o.beta1, o.step))).div_(root);
  if (o.weight_decay != 0) update.add_(x.p * o.weight_decay);
  Tensor params = x.p.norm(), updates = update.norm();
  Tensor ratio = where((params != 0) & (updates != 0), params / updates, 1);
  x.p.sub_(update.mul_(ratio * o.lr));
}

template <class Update>
void run_composed(const UpdateTensor& t, const Update& o, void (*formula)(Operands&, const Update&)) {
  const DType compute = optimizer_state_dtype(t.param.dtype());
  Operands x{target(t).to(compute), t.grad.to(compute), {t.state[0], t.state[1], t.state[2]}};
  formula(x, o);
  Tensor param = t.param;
  if (!x.p.is_same(param)) param.copy_(x.p);
}

bool states_begin(const OptimizerUpdate&) { return false; }
bool states_begin(const SgdUpdate& o) { return o.first; }

// What the passes did; ops that the rest was composed of speak for themselves.
template <class Update>
void notify_update(std::span<const UpdateTensor> tensors, const Copies& copies, unsigned needed, const Update& o,
                   const Site& user) {
  TensorPass::Params work;
  const Tensor* one = nullptr;
  for (const UpdateTensor& t : tensors) {
    if (!is_fusable(t, needed)) continue;
    work.flops += flops_per_element(o) * static_cast<double>(t.param.numel());
    work.bytes += bytes_of_update(t, needed, states_begin(o));
    one = &target(t);
  }
  for (const auto& [i, copy] : copies) work.bytes += static_cast<double>(copy->numel()) * sizeof(BFloat16);
  if (one) notify_pass(*one, work, user);
}

template <class Update>
void run(const char* name, std::span<const UpdateTensor> tensors, unsigned needed, const Update& o,
         void (*kernel)(const cpu::OptimizerTensor*, int64_t, const Update&), void (*formula)(Operands&, const Update&),
         const Site& site) {
  const ListCall call(name, site);
  const Site& user = call.user();
  for (const UpdateTensor& t : tensors) check(name, t, needed, user);
  cpu::Workspace<cpu::OptimizerTensor> list(static_cast<int64_t>(tensors.size()));
  std::vector<Tensor> moved;  // gradients that lay in another order
  Copies copies;
  int64_t count = 0;
  bool composed = false;
  for (const UpdateTensor& t : tensors) {
    const bool fusable = is_fusable(t, needed);
    composed |= !fusable;
    if (!fusable || !t.param.device().is_cpu()) continue;
    const bool fits = same_layout(t.grad.meta(), t.param.meta());
    if (!fits) moved.push_back(in_layout_of(t.grad, target(t)));
    cpu::OptimizerTensor& k = list[count++] = kernel_tensor(t, fits ? t.grad : moved.back(), needed);
    if (k.copy) continue;
    if (auto copy = find_rounded_copy(t.param)) {
      copies.reserve(tensors.size());
      k.copy = static_cast<BFloat16*>(copy->data_ptr());
      copies.emplace_back(static_cast<size_t>(&t - tensors.data()), std::move(copy));
    }
  }
  if (count) kernel(list.data(), count, o);
  run_on_gpus(name, tensors, needed, o, copies);
  if (composed) {
    for (const UpdateTensor& t : tensors)
      if (!is_fusable(t, needed)) run_composed(t, o, formula);
  }
  for (const UpdateTensor& t : tensors) written(name, t, needed, user);
  for (const auto& [i, copy] : copies) keep_rounded_copy(tensors[i].param, copy);
  if (context().bits & kProfile) [[unlikely]]
    notify_update(tensors, copies, needed, o, user);
}

constexpr unsigned states(bool first, bool second = false, bool third = false) {
  return (first ? 1u : 0u) | (second ? 2u : 0u) | (third ? 4u : 0u);
}

}  // namespace

DType optimizer_state_dtype(DType param) { return param == DType::f64 ? DType::f64 : DType::f32; }

Tensor optimizer_state(const Tensor& param, Site site) {
  SiteScope scope(site);
  ContextGuard guard(plain_context());
  Meta m = Meta::dense(param.sizes(), optimizer_state_dtype(param.dtype()), param.device());
  if (!param.meta().contiguous && param.meta().is_dense()) m.set_strides(param.strides());
  Tensor state(make_tensor(m));
  fill_values(state, 0);
  state.set_memory_category(MemoryCategory::optimizer);
  return state;
}

void sgd_update(std::span<const UpdateTensor> tensors, const SgdUpdate& o, Site site) {
  run("sgd", tensors, states(o.momentum != 0), o, &cpu::sgd_update, &composed_sgd, site);
}
void adam_update(std::span<const UpdateTensor> tensors, const AdamUpdate& o, Site site) {
  run(o.decoupled ? "adamw" : "adam", tensors, states(true, true, o.amsgrad), o, &cpu::adam_update, &composed_adam,
      site);
}
void rmsprop_update(std::span<const UpdateTensor> tensors, const RmspropUpdate& o, Site site) {
  run("rmsprop", tensors, states(true, o.momentum != 0, o.centered), o, &cpu::rmsprop_update, &composed_rmsprop, site);
}
void adagrad_update(std::span<const UpdateTensor> tensors, const AdagradUpdate& o, Site site) {
  run("adagrad", tensors, states(true), o, &cpu::adagrad_update, &composed_adagrad, site);
}
void lamb_update(std::span<const UpdateTensor> tensors, const LambUpdate& o, Site site) {
  run("lamb", tensors, states(true, true), o, &cpu::lamb_update, &composed_lamb, site);
}

}  // namespace deft
