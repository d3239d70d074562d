#include "ops/tensor_lists.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"
#include "core/describe.h"
#include "core/node.h"
#include "kernels/cpu/workspace.h"
#include "ops/binary.h"
#include "ops/copy.h"
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
using detail::is_kernel_data;
using detail::ListCall;
using detail::order_read;
using detail::order_write;
using detail::same_layout;

// Sums of |x|^p, or the largest |x|, in f64 on each device.
class NormParts {
 public:
  explicit NormParts(double p) : p_(p) {}
  void add(const Tensor& x) {
    Tensor n = x.to(optimizer_state_dtype(x.dtype())).norm(p_).to(DType::f64);
    Tensor& sum = parts_[x.device().is_cpu() ? 0 : 1 + static_cast<size_t>(x.device().index)];
    if (std::isinf(p_))
      sum = sum.defined() ? maximum(sum, n) : n;
    else
      sum = sum.defined() ? sum + n.pow(p_) : n.pow(p_);
  }
  void add_value(double part) {
    if (std::isinf(p_))
      total_ = std::isnan(part) || part > total_ ? part : total_;
    else
      total_ += part;
  }
  double norm() {
    for (const Tensor& part : parts_)
      if (part.defined()) add_value(part.item());
    return std::isinf(p_) ? total_ : std::pow(total_, 1 / p_);
  }

 private:
  double p_, total_ = 0;
  std::array<Tensor, 1 + kMaxDevices> parts_;
};

// The device whose kernels take it; kCPU: none.
Device gpu_of(const Tensor& t) { return detail::is_cuda_data(t) ? t.device() : kCPU; }

// Calls `fused` with those that are dense f32 or bf16 on the CPU, `on_gpu` with each device that has tensors for its
// kernels, and `other` with each of the rest.
template <class Fused, class OnGpu, class Other>
void split_by_kernel(std::span<const Tensor> tensors, Fused fused, OnGpu on_gpu, Other other) {
  cpu::Workspace<cpu::TensorData> list(static_cast<int64_t>(tensors.size()));
  int64_t count = 0;
  for (const Tensor& t : tensors) {
    if (is_kernel_data(t))
      list[count++] = {t.numel(), t.data_ptr(), t.dtype()};
    else if (!detail::is_cuda_data(t))
      other(t);
  }
  for_each_gpu(tensors, gpu_of, on_gpu);
  if (count) fused(list.data(), count);
}
// Of those that split_by_kernel() does not give to `other`.
void notify_kernels(std::span<const Tensor> tensors, double flops, double times_bytes, const Site& site) {
  if (!(context().bits & kProfile)) [[likely]]
    return;
  std::vector<Tensor> passed;
  for (const Tensor& t : tensors)
    if (is_kernel_data(t) || detail::is_cuda_data(t)) passed.push_back(t);
  notify_pass(passed, flops, times_bytes, effective_site(site));
}

}  // namespace

double total_norm(std::span<const Tensor> tensors, double p, Site site) {
  DEFT_CHECK(p > 0, ValueError, "total_norm: the order of the norm must be positive, found {}", p);
  const ListCall call("total_norm", site);
  for (const Tensor& t : tensors) detail::check_defined(t, "total_norm");
  NormParts parts(p);
  auto add = [&](const Tensor& t) {
    if (t.numel() > 0) parts.add(t);
  };
  if (p != 2) {
    for (const Tensor& t : tensors) add(t);
    return parts.norm();
  }
  split_by_kernel(
      tensors,
      [&](const cpu::TensorData* list, int64_t count) {
        const double norm = cpu::l2_norm(list, count);
        parts.add_value(norm * norm);
      },
      [&](Device device) {
        const double norm = cuda_ops.l2_norm(device, tensors, site);
        parts.add_value(norm * norm);
      },
      add);
  notify_kernels(tensors, 2, 1, site);
  return parts.norm();
}

namespace {

void check_writable(std::span<const Tensor> tensors, const char* name, const Site& user) {
  for (const Tensor& t : tensors) {
    detail::check_defined(t, name);
    check_inplace(*t.impl(), false, name, user);
  }
}
void bump_versions(std::span<const Tensor> tensors, const char* name, const Site& user) {
  for (const Tensor& t : tensors) t.impl()->storage->bump_version(name, user);
}

}  // namespace

void scale_tensors_(std::span<const Tensor> tensors, double factor, Site site) {
  const ListCall call("scale_tensors_", site);
  const Site& user = call.user();
  check_writable(tensors, "scale_tensors_", user);
  split_by_kernel(
      tensors, [&](const cpu::TensorData* list, int64_t count) { cpu::scale_tensors(list, count, factor); },
      [&](Device device) { cuda_ops.scale(device, tensors, factor); }, [&](Tensor t) { t.mul_(factor); });
  bump_versions(tensors, "scale_tensors_", user);
  notify_kernels(tensors, 1, 2, site);
}

double clip_factor(double norm, double max_norm) {
  DEFT_CHECK(max_norm >= 0, ValueError, "clip_factor: max_norm must not be negative, found {}", max_norm);
  const double factor = max_norm / (norm + 1e-6);
  return factor >= 1 ? 1 : factor;
}

double clip_norm_(std::span<const Tensor> tensors, double max_norm, Site site) {
  clip_factor(0, max_norm);  // checks it
  const ListCall call("clip_norm_", site);
  const Site& user = call.user();
  check_writable(tensors, "clip_norm_", user);
  const Device device = tensors.empty() ? kCPU : gpu_of(tensors[0]);
  auto is_there = [&](const Tensor& t) { return gpu_of(t) == device; };
  if (!device.is_cpu() && std::all_of(tensors.begin(), tensors.end(), is_there)) {
    const double norm = cuda_ops.clip_norm(device, tensors, max_norm, site);
    if (clip_factor(norm, max_norm) != 1) bump_versions(tensors, "clip_norm_", user);
    return norm;
  }
  const double norm = total_norm(tensors, 2, site), factor = clip_factor(norm, max_norm);
  if (factor != 1) scale_tensors_(tensors, factor, site);
  return norm;
}

namespace {

// The lowest index of a tensor with inf or NaN, or -1. Those on GPUs are multiplied by `factor` on the way; the others
// are left in `rest`.
int64_t find_not_finite(std::span<const Tensor> tensors, double factor, std::vector<Tensor>& rest, const Site& site) {
  int64_t first = -1;
  auto take = [&](int64_t i) {
    if (i >= 0 && (first < 0 || i < first)) first = i;
  };
  for_each_gpu(tensors, gpu_of, [&](Device device) { take(cuda_ops.first_not_finite(device, tensors, factor, site)); });
  for (const Tensor& t : tensors)
    if (gpu_of(t).is_cpu()) rest.push_back(t);
  auto is_finite = [&](std::span<const Tensor> list) {
    return std::isfinite(total_norm(list, std::numeric_limits<double>::infinity(), site));
  };
  if (rest.empty() || is_finite(rest)) return first;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!gpu_of(tensors[i]).is_cpu() || is_finite(tensors.subspan(i, 1))) continue;
    take(static_cast<int64_t>(i));
    break;
  }
  return first;
}

}  // namespace

int64_t first_not_finite(std::span<const Tensor> tensors, Site site) {
  const ListCall call("first_not_finite", site);
  for (const Tensor& t : tensors) detail::check_defined(t, "first_not_finite");
  std::vector<Tensor> rest;
  return find_not_finite(tensors, 1, rest, site);
}

int64_t unscale_tensors_(std::span<const Tensor> tensors, double factor, Site site) {
  const ListCall call("unscale_tensors_", site);
  const Site& user = call.user();
  check_writable(tensors, "unscale_tensors_", user);
  std::vector<Tensor> rest;
  const int64_t first = find_not_finite(tensors, factor, rest, site);
  scale_tensors_(rest, factor, site);
  for (const Tensor& t : tensors)
    if (!gpu_of(t).is_cpu()) t.impl()->storage->bump_version("unscale_tensors_", user);
  return first;
}

namespace {

bool is_lerp_fusable(const Tensor& to, const Tensor& from) {
  return to.dtype() == DType::f32 && !gpu_of(to).is_cpu() && gpu_of(from) == to.device() &&
         same_layout(to.meta(), from.meta());
}

void lerp_on_gpus(std::span<const Tensor> to, std::span<const Tensor> from, double weight, const Site& user) {
  cpu::Workspace<detail::CudaLerp> list(static_cast<int64_t>(to.size()));
  for_each_gpu(to, gpu_of, [&](Device device) {
    int64_t count = 0;
    for (size_t i = 0; i < to.size(); ++i) {
      if (to[i].device() != device || !is_lerp_fusable(to[i], from[i])) continue;
      order_read(from[i]);
      order_write(to[i]);
      list[count++] = {to[i].numel(), static_cast<float*>(to[i].data_ptr()), from[i].data_ptr(), from[i].dtype()};
      to[i].impl()->storage->bump_version("lerp_tensors_", user);
    }
    if (count) cuda_ops.lerp(device, "lerp_tensors_", list.data(), count, weight);
  });
}

}  // namespace

void lerp_tensors_(std::span<const Tensor> to, std::span<const Tensor> from, double weight, Site site) {
  const ListCall call("lerp_tensors_", site);
  const Site& user = call.user();
  DEFT_CHECK(to.size() == from.size(), ValueError, "lerp_tensors_: found {} tensors and {} to go towards", to.size(),
             from.size());
  check_writable(to, "lerp_tensors_", user);
  for (size_t i = 0; i < to.size(); ++i) {
    detail::check_defined(from[i], "lerp_tensors_");
    DEFT_CHECK(to[i].sizes() == from[i].sizes(), ShapeError, "lerp_tensors_: tensor {} is {}, what it goes towards {}",
               i, describe(to[i].meta()), describe(from[i].meta()));
  }
  lerp_on_gpus(to, from, weight, user);
  for (size_t i = 0; i < to.size(); ++i) {
    if (is_lerp_fusable(to[i], from[i])) continue;
    Tensor t = to[i];
    t.lerp_(from[i].to(t.dtype()), weight);
  }
}

}  // namespace deft
