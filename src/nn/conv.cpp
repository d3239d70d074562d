#include "nn/conv.h"

#include <cmath>

#include "base/check.h"
#include "nn/init.h"
#include "nn/watched_call.h"
#include "ops/conv.h"
#include "ops/creation.h"

namespace deft::nn {

namespace {

void check_settings(const char* name, int spatial,
                    std::initializer_list<std::pair<const char*, const Sizes*>> settings) {
  for (auto [what, sizes] : settings)
    DEFT_CHECK(sizes->size() == 1 || sizes->size() == spatial, ValueError,
               "{}{}d: the {} {} has {} numbers; give one, or one for each of the {} dimensions", name, spatial, what,
               sizes->to_string(), sizes->size(), spatial);
}

void check_channels(const char* name, int spatial, int64_t in, int64_t out, int64_t groups) {
  DEFT_CHECK(in > 0 && out > 0 && groups > 0 && in % groups == 0 && out % groups == 0, ValueError,
             "{}{}d: {} input and {} output channels cannot be cut into {} groups; choose a number that divides both",
             name, spatial, in, out, groups);
}

Shape weight_sizes(int64_t first, int64_t second, const Sizes& kernel, int spatial) {
  Shape sizes{first, second};
  for (int i = 0; i < spatial; ++i) sizes.push_back(kernel[i]);
  return sizes;
}

void initialize(Tensor& weight, Tensor& bias) {
  init::kaiming_uniform_(weight, {.slope = std::sqrt(5.0)});
  if (!bias.defined() || weight.numel() == 0) return;
  double bound = 1 / std::sqrt(static_cast<double>(init::fans(weight).in));
  init::uniform_(bias, -bound, bound);
}

// The part of the description that both kinds share, after the channels.
std::string describe_common(const Tensor& weight, const Tensor& bias, const Sizes& stride, const Sizes& padding,
                            const Sizes& dilation, int64_t groups) {
  std::string kernel;
  for (int i = 2; i < weight.dim(); ++i) kernel += (i > 2 ? ", " : "") + std::to_string(weight.size(i));
  std::string text = ", kernel=[" + kernel + "], stride=" + stride.to_string();
  auto add_unless = [&](const char* name, const Sizes& sizes, int64_t usual) {
    if (sizes.size() != 1 || sizes[0] != usual) text += std::string(", ") + name + "=" + sizes.to_string();
  };
  add_unless("padding", padding, 0);
  add_unless("dilation", dilation, 1);
  if (groups != 1) text += ", groups=" + std::to_string(groups);
  return text + (bias.defined() ? "" : ", bias=false");
}

const char* name_of(PadMode mode) {
  constexpr const char* kNames[] = {"zeros", "reflect", "replicate", "circular"};
  return kNames[static_cast<int>(mode)];
}

}  // namespace

// --- Conv ------------------------------------------------------------------------------------------------------

Conv::Conv(int spatial, int64_t in_channels, int64_t out_channels, const Sizes& kernel, const ConvOptions& options)
    : weight(parameter("weight", Tensor())),
      bias(parameter("bias", options.bias ? empty({out_channels}) : Tensor())),
      spatial_(spatial),
      options_(options) {
  check_settings("Conv", spatial,
                 {{"kernel", &kernel},
                  {"stride", &options.stride},
                  {"padding", &options.padding},
                  {"dilation", &options.dilation}});
  check_channels("Conv", spatial, in_channels, out_channels, options.groups);
  weight = empty(weight_sizes(out_channels, in_channels / options.groups, kernel, spatial), with_grad());
  initialize(weight, bias);
  if (options.padding_mode == PadMode::constant) return;  // the convolution does it
  for (int i = spatial - 1; i >= 0; --i) {
    int64_t both = options.same ? options.dilation[i] * (kernel[i] - 1) : 2 * options.padding[i];
    amounts_.push_back(both / 2);
    amounts_.push_back(both - both / 2);
  }
}

Tensor Conv::forward(const Tensor& x) {
  const ConvOptions& o = options_;
  bool own_padding = !amounts_.empty();
  Tensor in = own_padding ? pad(x, amounts_, o.padding_mode) : x;
  if (o.same && !own_padding) {
    if (spatial_ == 1) return conv1d(in, weight, bias, o.stride, ConvPadding::same, o.dilation, o.groups);
    if (spatial_ == 2) return conv2d(in, weight, bias, o.stride, ConvPadding::same, o.dilation, o.groups);
    return conv3d(in, weight, bias, o.stride, ConvPadding::same, o.dilation, o.groups);
  }
  Sizes padding = own_padding ? Sizes(0) : o.padding;
  if (spatial_ == 1) return conv1d(in, weight, bias, o.stride, padding, o.dilation, o.groups);
  if (spatial_ == 2) return conv2d(in, weight, bias, o.stride, padding, o.dilation, o.groups);
  return conv3d(in, weight, bias, o.stride, padding, o.dilation, o.groups);
}

std::string Conv::describe() const {
  const ConvOptions& o = options_;
  std::string text = fmt::format("Conv{}d(in={}, out={}", spatial_, weight.size(1) * o.groups, weight.size(0));
  text += describe_common(weight, bias, o.stride, o.padding, o.dilation, o.groups);
  if (o.same) text += ", padding=same";
  if (o.padding_mode != PadMode::constant) text += std::string(", padding_mode=") + name_of(o.padding_mode);
  return text + ")";
}

// --- ConvTranspose ---------------------------------------------------------------------------------------------

ConvTranspose::ConvTranspose(int spatial, int64_t in_channels, int64_t out_channels, const Sizes& kernel,
                             const ConvTransposeOptions& options)
    : weight(parameter("weight", Tensor())),
      bias(parameter("bias", options.bias ? empty({out_channels}) : Tensor())),
      spatial_(spatial),
      options_(options) {
  check_settings("ConvTranspose", spatial,
                 {{"kernel", &kernel},
                  {"stride", &options.stride},
                  {"padding", &options.padding},
                  {"output_padding", &options.output_padding},
                  {"dilation", &options.dilation}});
  check_channels("ConvTranspose", spatial, in_channels, out_channels, options.groups);
  weight = empty(weight_sizes(in_channels, out_channels / options.groups, kernel, spatial), with_grad());
  initialize(weight, bias);
}

Tensor ConvTranspose::run(const Tensor& x, IntList output_padding) const {
  const ConvTransposeOptions& o = options_;
  if (spatial_ == 1)
    return conv_transpose1d(x, weight, bias, o.stride, o.padding, output_padding, o.groups, o.dilation);
  if (spatial_ == 2)
    return conv_transpose2d(x, weight, bias, o.stride, o.padding, output_padding, o.groups, o.dilation);
  return conv_transpose3d(x, weight, bias, o.stride, o.padding, output_padding, o.groups, o.dilation);
}

Tensor ConvTranspose::forward(const Tensor& x) { return run(x, options_.output_padding); }

Tensor ConvTranspose::forward(const Tensor& x, IntList output_size, Site site) {
  detail::WatchedCall watched(*this, site);
  SiteScope scope(site);
  const ConvTransposeOptions& o = options_;
  DEFT_CHECK(static_cast<int>(output_size.size()) == spatial_ && x.dim() > spatial_, ShapeError,
             "ConvTranspose{}d: give the {} spatial sizes of the result, found {} for an input of shape {}", spatial_,
             spatial_, deft::to_string(Shape(output_size)), deft::to_string(x.sizes()));
  Shape extra;
  for (int i = 0; i < spatial_; ++i) {
    int64_t smallest =
        (x.size(i - spatial_) - 1) * o.stride[i] - 2 * o.padding[i] + o.dilation[i] * (weight.size(i + 2) - 1) + 1;
    int64_t most = smallest + o.stride[i] - 1, wanted = output_size[static_cast<size_t>(i)];
    DEFT_CHECK(smallest <= wanted && wanted <= most, ShapeError,
               "ConvTranspose{}d: the result of this input has a size of {} to {} in dimension {}, not {}", spatial_,
               smallest, most, i, wanted);
    extra.push_back(wanted - smallest);
  }
  return run(x, extra);
}

std::string ConvTranspose::describe() const {
  const ConvTransposeOptions& o = options_;
  std::string text = fmt::format("ConvTranspose{}d(in={}, out={}", spatial_, weight.size(0), weight.size(1) * o.groups);
  text += describe_common(weight, bias, o.stride, o.padding, o.dilation, o.groups);
  if (o.output_padding.size() != 1 || o.output_padding[0] != 0)
    text += ", output_padding=" + o.output_padding.to_string();
  return text + ")";
}

}  // namespace deft::nn
