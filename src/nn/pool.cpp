#include "nn/pool.h"

#include "base/check.h"
#include "nn/watched_call.h"
#include "ops/pool.h"

namespace deft::nn {

namespace {

std::string describe_window(const char* name, int spatial, const Sizes& kernel, const std::optional<Sizes>& stride,
                            const Sizes& padding) {
  std::string text =
      fmt::format("{}{}d(kernel={}, stride={}", name, spatial, kernel.to_string(), stride.value_or(kernel).to_string());
  if (padding.size() != 1 || padding[0] != 0) text += ", padding=" + padding.to_string();
  return text;
}

}  // namespace

Tensor MaxPool::forward(const Tensor& x) {
  const MaxPoolOptions& o = options_;
  Sizes stride = o.stride.value_or(kernel_);
  auto run = [&](auto&& pool) { return pool(x, kernel_, stride, o.padding, o.dilation, o.ceil_mode, Site::current()); };
  return spatial_ == 1 ? run(max_pool1d) : spatial_ == 2 ? run(max_pool2d) : run(max_pool3d);
}
std::array<Tensor, 2> MaxPool::forward_with_indices(const Tensor& x, Site site) {
  detail::WatchedCall watched(*this, site);
  SiteScope scope(site);
  const MaxPoolOptions& o = options_;
  Sizes stride = o.stride.value_or(kernel_);
  if (spatial_ == 1) return max_pool1d_with_indices(x, kernel_, stride, o.padding, o.dilation, o.ceil_mode);
  if (spatial_ == 2) return max_pool2d_with_indices(x, kernel_, stride, o.padding, o.dilation, o.ceil_mode);
  return max_pool3d_with_indices(x, kernel_, stride, o.padding, o.dilation, o.ceil_mode);
}
std::string MaxPool::describe() const {
  std::string text = describe_window("MaxPool", spatial_, kernel_, options_.stride, options_.padding);
  if (options_.dilation.size() != 1 || options_.dilation[0] != 1) text += ", dilation=" + options_.dilation.to_string();
  return text + (options_.ceil_mode ? ", ceil_mode)" : ")");
}

Tensor AvgPool::forward(const Tensor& x) {
  const AvgPoolOptions& o = options_;
  Sizes stride = o.stride.value_or(kernel_);
  auto run = [&](auto&& pool) {
    return pool(x, kernel_, stride, o.padding, o.ceil_mode, o.count_include_pad, o.divisor_override, Site::current());
  };
  return spatial_ == 1 ? run(avg_pool1d) : spatial_ == 2 ? run(avg_pool2d) : run(avg_pool3d);
}
std::string AvgPool::describe() const {
  std::string text = describe_window("AvgPool", spatial_, kernel_, options_.stride, options_.padding);
  if (options_.ceil_mode) text += ", ceil_mode";
  if (!options_.count_include_pad) text += ", count_include_pad=false";
  if (options_.divisor_override) text += fmt::format(", divisor={}", options_.divisor_override);
  return text + ")";
}

Tensor AdaptiveAvgPool::forward(const Tensor& x) {
  return spatial_ == 1   ? adaptive_avg_pool1d(x, output_)
         : spatial_ == 2 ? adaptive_avg_pool2d(x, output_)
                         : adaptive_avg_pool3d(x, output_);
}
std::string AdaptiveAvgPool::describe() const {
  return fmt::format("AdaptiveAvgPool{}d(output={})", spatial_, output_.to_string());
}

std::array<Tensor, 2> AdaptiveMaxPool::forward_with_indices(const Tensor& x, Site site) {
  detail::WatchedCall watched(*this, site);
  SiteScope scope(site);
  return spatial_ == 1   ? adaptive_max_pool1d_with_indices(x, output_)
         : spatial_ == 2 ? adaptive_max_pool2d_with_indices(x, output_)
                         : adaptive_max_pool3d_with_indices(x, output_);
}
Tensor AdaptiveMaxPool::forward(const Tensor& x) {
  return spatial_ == 1   ? adaptive_max_pool1d(x, output_)
         : spatial_ == 2 ? adaptive_max_pool2d(x, output_)
                         : adaptive_max_pool3d(x, output_);
}
std::string AdaptiveMaxPool::describe() const {
  return fmt::format("AdaptiveMaxPool{}d(output={})", spatial_, output_.to_string());
}

}  // namespace deft::nn
