#include "nn/norm.h"

#include <limits>

#include "base/check.h"
#include "core/describe.h"
#include "core/grad_mode.h"
#include "ops/binary.h"
#include "ops/creation.h"
#include "ops/norm.h"

namespace deft::nn {

namespace {

Tensor ones_if(bool there, IntList sizes) { return there ? ones(sizes) : Tensor(); }
Tensor zeros_if(bool there, IntList sizes, DType dtype = DType::f32) { return there ? zeros(sizes, dtype) : Tensor(); }

double smallest_step(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return std::numeric_limits<double>::epsilon();
    case DType::f16:
      return 0x1p-10;
    case DType::bf16:
      return 0x1p-7;
    default:
      return std::numeric_limits<float>::epsilon();
  }
}

}  // namespace

// --- BatchNorm -------------------------------------------------------------------------------------------------

BatchNorm::BatchNorm(int spatial, int64_t channels, const BatchNormOptions& options)
    : weight(parameter("weight", ones_if(options.affine, {channels}))),
      bias(parameter("bias", zeros_if(options.affine, {channels}))),
      running_mean(buffer("running_mean", zeros_if(options.track_running_stats, {channels}))),
      running_var(buffer("running_var", ones_if(options.track_running_stats, {channels}))),
      num_batches_tracked(buffer("num_batches_tracked", zeros_if(options.track_running_stats, {}, DType::i64))),
      spatial_(spatial),
      channels_(channels),
      options_(options) {}

namespace {

// Running statistics that weigh all batches alike. The host never reads the count: compiled functions go on counting,
// and the host does not wait for a device.
Tensor norm_with_average(BatchNorm& n, const Tensor& x, double eps) {
  const auto set = [&](const Tensor& mean, const Tensor& var) {
    NoGradGuard no_grad;
    n.running_mean.copy_(mean);
    n.running_var.copy_(var);
  };
  Tensor mean = n.running_mean.clone(), var = n.running_var.clone(), y;
  set(zeros_like(mean), zeros_like(var));
  try {
    y = batch_norm(x, n.running_mean, n.running_var, n.weight, n.bias, true, 1, eps);
  } catch (...) {
    set(mean, var);  // a batch that was refused does not count
    throw;
  }
  n.num_batches_tracked.add_(1);
  NoGradGuard no_grad;
  Tensor share = 1.0 / n.num_batches_tracked.to(mean.dtype());
  set(mean * (1.0 - share) + n.running_mean * share, var * (1.0 - share) + n.running_var * share);
  return y;
}

}  // namespace

Tensor BatchNorm::forward(const Tensor& x) {
  DEFT_CHECK((x.dim() == spatial_ + 2 || (spatial_ == 1 && x.dim() == 2)) && x.size(1) == channels_, ShapeError,
             "{}: takes N,C{} with {} channels, found {}", describe(), spatial_ == 1 ? " or N,C,L" : ",spatial",
             channels_, deft::describe(x.meta()));
  bool tracks = running_mean.defined();
  if (!is_training()) return batch_norm(x, running_mean, running_var, weight, bias, !tracks, 0, options_.eps);
  if (!tracks || options_.momentum) {
    Tensor y =
        batch_norm(x, running_mean, running_var, weight, bias, true, options_.momentum.value_or(0), options_.eps);
    if (tracks) num_batches_tracked.add_(1);  // only now: a batch that was refused does not count
    return y;
  }
  return norm_with_average(*this, x, options_.eps);
}

std::string BatchNorm::describe() const {
  std::string text = fmt::format("BatchNorm{}d({}", spatial_, channels_);
  if (options_.eps != 1e-5) text += fmt::format(", eps={}", options_.eps);
  if (!options_.momentum) text += ", momentum=none";
  if (options_.momentum && *options_.momentum != 0.1) text += fmt::format(", momentum={}", *options_.momentum);
  if (!options_.affine) text += ", affine=false";
  if (!options_.track_running_stats) text += ", track_running_stats=false";
  return text + ")";
}

// --- InstanceNorm ----------------------------------------------------------------------------------------------

InstanceNorm::InstanceNorm(int spatial, int64_t channels, const InstanceNormOptions& options)
    : weight(parameter("weight", ones_if(options.affine, {channels}))),
      bias(parameter("bias", zeros_if(options.affine, {channels}))),
      running_mean(buffer("running_mean", zeros_if(options.track_running_stats, {channels}))),
      running_var(buffer("running_var", ones_if(options.track_running_stats, {channels}))),
      num_batches_tracked(buffer("num_batches_tracked", zeros_if(options.track_running_stats, {}, DType::i64))),
      spatial_(spatial),
      channels_(channels),
      options_(options) {}

Tensor InstanceNorm::forward(const Tensor& x) {
  bool batched = x.dim() == spatial_ + 2;
  DEFT_CHECK((batched || x.dim() == spatial_ + 1) && x.size(batched ? 1 : 0) == channels_, ShapeError,
             "{}: takes N,C,spatial or C,spatial with {} channels, found {}", describe(), channels_,
             deft::describe(x.meta()));
  bool from_input = is_training() || !running_mean.defined();
  Tensor y = instance_norm(batched ? x : x.unsqueeze(0), running_mean, running_var, weight, bias, from_input,
                           options_.momentum, options_.eps);
  return batched ? y : y.squeeze(0);
}

std::string InstanceNorm::describe() const {
  std::string text = fmt::format("InstanceNorm{}d({}", spatial_, channels_);
  if (options_.eps != 1e-5) text += fmt::format(", eps={}", options_.eps);
  if (options_.affine) text += ", affine=true";
  if (options_.track_running_stats) text += fmt::format(", track_running_stats=true, momentum={}", options_.momentum);
  return text + ")";
}

// --- LayerNorm, RMSNorm, GroupNorm -----------------------------------------------------------------------------

LayerNorm::LayerNorm(Sizes normalized_shape, double eps, bool affine, bool with_bias)
    : weight(parameter("weight", ones_if(affine, normalized_shape))),
      bias(parameter("bias", zeros_if(affine && with_bias, normalized_shape))),
      sizes_(normalized_shape),
      eps_(eps) {}
LayerNorm::LayerNorm(std::initializer_list<int64_t> normalized_shape, double eps, bool affine, bool with_bias)
    : LayerNorm(Sizes(normalized_shape), eps, affine, with_bias) {}
Tensor LayerNorm::forward(const Tensor& x) { return layer_norm(x, sizes_, weight, bias, eps_); }
std::string LayerNorm::describe() const {
  return fmt::format("LayerNorm({}, eps={}{})", sizes_.to_string(), eps_, weight.defined() ? "" : ", affine=false");
}

RMSNorm::RMSNorm(Sizes normalized_shape, std::optional<double> eps, bool affine)
    : weight(parameter("weight", ones_if(affine, normalized_shape))), sizes_(normalized_shape), eps_(eps) {}
RMSNorm::RMSNorm(std::initializer_list<int64_t> normalized_shape, std::optional<double> eps, bool affine)
    : RMSNorm(Sizes(normalized_shape), eps, affine) {}
Tensor RMSNorm::forward(const Tensor& x) {
  return rms_norm(x, sizes_, weight, eps_ ? *eps_ : smallest_step(x.dtype()));
}
std::string RMSNorm::describe() const {
  return fmt::format("RMSNorm({}{}{})", sizes_.to_string(), eps_ ? fmt::format(", eps={}", *eps_) : "",
                     weight.defined() ? "" : ", affine=false");
}

GroupNorm::GroupNorm(int64_t groups, int64_t channels, double eps, bool affine)
    : weight(parameter("weight", ones_if(affine, {channels}))),
      bias(parameter("bias", zeros_if(affine, {channels}))),
      groups_(groups),
      channels_(channels),
      eps_(eps) {
  DEFT_CHECK(groups > 0 && channels % groups == 0, ValueError,
             "GroupNorm: {} channels cannot be cut into {} groups; choose a number that divides them", channels,
             groups);
}
Tensor GroupNorm::forward(const Tensor& x) { return group_norm(x, groups_, weight, bias, eps_); }
std::string GroupNorm::describe() const {
  return fmt::format("GroupNorm(groups={}, channels={}, eps={}{})", groups_, channels_, eps_,
                     weight.defined() ? "" : ", affine=false");
}

}  // namespace deft::nn
