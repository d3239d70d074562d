#include "ops/conv.h"

#include <fmt/format.h>

#include "base/checked.h"
#include "core/derived_cache.h"
#include "core/describe.h"
#include "kernels/cpu/conv/conv.h"
#include "ops/conv_common.h"
#include "ops/dense.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "runtime/context.h"

namespace deft {

namespace {

constexpr const char* kConvNames[] = {"", "conv1d", "conv2d", "conv3d"};
constexpr const char* kTransposeNames[] = {"", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"};

using Sizes3 = std::array<int64_t, 3>;

void check_spatial(const ConvGeometry& p) {
  DEFT_CHECK(p.spatial >= 1 && p.spatial <= 3, ValueError,
             "convolution: found {} spatial dimensions, expected 1, 2 or 3", p.spatial);
}

void check_geometry(const char* op, const ConvGeometry& p) {
  for (int d = 0; d < p.spatial; ++d) {
    auto i = static_cast<size_t>(d);
    DEFT_CHECK(p.stride[i] >= 1, ValueError, "{}: the stride must be at least 1, found {}", op, p.stride[i]);
    DEFT_CHECK(p.dilation[i] >= 1, ValueError, "{}: the dilation must be at least 1, found {}", op, p.dilation[i]);
    DEFT_CHECK(p.padding[i] >= 0, ValueError, "{}: the padding must not be negative, found {}", op, p.padding[i]);
  }
  DEFT_CHECK(p.groups >= 1, ValueError, "{}: groups must be at least 1, found {}", op, p.groups);
}

// What to do about an input with another number of channels than the weight takes.
std::string channel_advice(const ConvGeometry& p, const Meta& x, int64_t c_in) {
  constexpr const char* kToFront[] = {"0, 2, 1", "0, 3, 1, 2", "0, 4, 1, 2, 3"};
  const int last = p.spatial + 1;
  const bool square = p.spatial > 1 && x.sizes[last] == x.sizes[last - 1];  // rather height and width
  if (x.sizes[last] == c_in && !square)
    return fmt::format("channels come before pixels: pass x.permute({{{}}})", kToFront[p.spatial - 1]);
  return fmt::format("pass an input of {} channels, or make the layer for {}", c_in, x.sizes[1]);
}

// What convolution and transposed convolution ask of their inputs alike.
void check_operands(const char* op, const ConvGeometry& p, const Meta& x, const Meta& w, const Meta& bias, int64_t c_in,
                    int64_t c_out) {
  DEFT_CHECK(w.dtype == x.dtype && (!bias.defined || bias.dtype == x.dtype), DTypeError,
             "{}: the input is {}, the weight {}{}{}; convert them to one type with to()", op, name_of(x.dtype),
             name_of(w.dtype), bias.defined ? ", the bias " : "", bias.defined ? name_of(bias.dtype) : "");
  DEFT_CHECK(x.sizes[1] == c_in, ShapeError,
             "{}: an input of shape {} has {} channels, but a weight of shape {} with {} groups takes {}; {}", op,
             to_string(x.sizes), x.sizes[1], to_string(w.sizes), p.groups, c_in, channel_advice(p, x, c_in));
  DEFT_CHECK(w.sizes[0] % p.groups == 0 && w.sizes[0] > 0, ShapeError,
             "{}: the first size of a weight of shape {} must be a positive multiple of the {} groups", op,
             to_string(w.sizes), p.groups);
  for (int d = 1; d < w.rank(); ++d) {
    DEFT_CHECK(w.sizes[d] >= 1, ShapeError, "{}: a weight of shape {} has an empty kernel", op, to_string(w.sizes));
    DEFT_CHECK(x.sizes[d] >= 1, ShapeError, "{}: an input of shape {} is empty; only its batch size may be 0", op,
               to_string(x.sizes));
  }
  if (bias.defined)
    DEFT_CHECK(bias.rank() == 1 && bias.sizes[0] == c_out, ShapeError,
               "{}: a bias of shape {} does not fit; expected [{}]", op, to_string(bias.sizes), c_out);
}

void check_ranks(const char* op, const ConvGeometry& p, const Meta& x, const Meta& w) {
  DEFT_CHECK(w.defined, ValueError, "{}: the weight is an undefined tensor; give it a value first", op);
  DEFT_CHECK(x.rank() == p.spatial + 2 && w.rank() == p.spatial + 2, ShapeError,
             "{}: an input of shape {} and a weight of shape {} must have {} dimensions (the input also one less)", op,
             to_string(x.sizes), to_string(w.sizes), p.spatial + 2);
}

// How far a kernel reaches along one dimension.
Wide reach_of(const ConvGeometry& p, int d, int64_t taps) {
  return Wide(p.dilation[static_cast<size_t>(d)]) * (taps - 1) + 1;
}

// Kernels lay out a plane with the padding around it: that may not dwarf what the call reads and writes.
// large: the sizes on the padded side; small: those on the other.
void check_padded_plane(const char* op, const ConvGeometry& p, const Shape& large, const Shape& small) {
  constexpr double kAlwaysFine = 1 << 24, kGrowth = 4;
  double padded = 1, own = 1, other = 1;
  for (int d = 0; d < p.spatial; ++d) {
    const auto size = static_cast<double>(large[d + 2]);
    padded *= size + 2 * static_cast<double>(p.padding[static_cast<size_t>(d)]);
    own *= size, other *= static_cast<double>(small[d + 2]);
  }
  DEFT_CHECK(padded <= std::max(kAlwaysFine, kGrowth * (own + other)), ShapeError,
             "{}: padding makes planes of {:.3g} elements between {} and {}; pad less", op, padded, to_string(large),
             to_string(small));
}

// The result's meta: channels_last if x is. Where both orders are the same, that is row-major.
Meta result_meta(const Shape& sizes, const Meta& x, ConvGeometry& p) {
  Meta m = Meta::dense(sizes, x.dtype, x.device);
  p.channels_last |= !x.contiguous && x.is_channels_last();
  if (p.channels_last) m.set_strides(channels_last_strides(sizes));
  return m;
}

Tensor bias_gradient(const Tensor& g) {
  int64_t all_but_channels[] = {0, 2, 3, 4};
  return g.sum(IntList(all_but_channels, static_cast<size_t>(g.dim() - 1)));
}

}  // namespace

// --- convolution -----------------------------------------------------------------------------------------------

Meta Convolution::infer(const Meta& x, const Meta& w, const Meta& bias, Params& p) {
  check_spatial(p);
  const char* op = kConvNames[p.spatial];
  check_ranks(op, p, x, w);
  check_geometry(op, p);
  check_operands(op, p, x, w, bias, checked_int64(Wide(w.sizes[1]) * p.groups, op, "groups"), w.sizes[0]);
  Shape sizes{x.sizes[0], w.sizes[0]};
  for (int d = 0; d < p.spatial; ++d) {
    auto i = static_cast<size_t>(d);
    const Wide room = x.sizes[d + 2] + 2 * Wide(p.padding[i]), reach = reach_of(p, d, w.sizes[d + 2]);
    DEFT_CHECK(
        room >= reach, ShapeError,
        "{}: a kernel that reaches over {} elements does not fit into {} (input {} with padding, weight {}); pad more",
        op, reach, room, to_string(x.sizes), to_string(w.sizes));
    sizes.push_back(checked_int64((room - reach) / p.stride[i] + 1, op, "padding"));
  }
  check_padded_plane(op, p, x.sizes, sizes);
  return result_meta(sizes, x, p);
}

namespace {

// Values of a weight worth keeping: 1 x 1 over an image of 8 x 8 gains 9 % there.
constexpr int64_t kLeastKept = 1024;

}  // namespace

std::shared_ptr<const cpu::ConvWeight> kept_conv_weight(const Tensor& weight, const cpu::ConvCall& call) {
  if (weight.numel() < kLeastKept) return nullptr;
  const cpu::ConvWeightForm form = cpu::conv_weight_form(call);
  if (!form.packs) return nullptr;
  const DerivedForm key{DerivedKind::conv_weight,
                        {reinterpret_cast<intptr_t>(form.tile), call.channels_last + 2 * form.winograd, call.groups}};
  return std::static_pointer_cast<const cpu::ConvWeight>(find_derived(weight, key, [&] {
    const Tensor dense = as_dense(weight);
    cpu::ConvCall with_weight = call;
    with_weight.w = dense.data_ptr();
    std::shared_ptr<const cpu::ConvWeight> packed = cpu::pack_conv_weight(with_weight, form.tile);
    return Derived{packed, packed->bytes()};
  }));
}

namespace {

void run_convolution(KernelCall& c, const ConvGeometry& p, const void* residual, cpu::Activation activation) {
  const Meta& y = c.out().meta();
  if (y.numel == 0) return;
  Tensor x = as_dense(c.in(0), p.channels_last), w, bias = c.has(2) ? as_dense(c.in(2)) : Tensor();
  auto k = conv_call<cpu::ConvCall>(p, x.meta(), y, c.in(1).sizes().data() + 2);
  const auto packed = kept_conv_weight(c.in(1), k);
  if (packed) {
    k.packed = packed.get();
  } else {
    w = as_dense(c.in(1));
    k.w = w.data_ptr();
  }
  k.x = x.data_ptr();
  k.bias = bias.defined() ? bias.data_ptr() : nullptr;
  k.y = c.out().data_ptr();
  k.residual = residual;
  k.activation = activation;
  cpu::conv_forward(k);
}

}  // namespace

void Convolution::cpu(KernelCall& c) { run_convolution(c, c.params<Convolution>(), nullptr, cpu::Activation::none); }

Meta FusedConvolution::infer(const Meta& x, const Meta& weight, const Meta& bias, const Meta& residual, Params& p) {
  Meta out = Convolution::infer(x, weight, bias, p.geometry);
  DEFT_CHECK(!residual.defined || (residual.sizes == out.sizes && residual.dtype == out.dtype), ShapeError,
             "fused_convolution: the residual is {}, expected the result's {}", describe(residual), describe(out));
  return out;
}
void FusedConvolution::cpu(KernelCall& c) {
  const Params& p = c.params<FusedConvolution>();
  Tensor residual = c.has(3) ? as_dense(c.in(3), p.geometry.channels_last) : Tensor();
  run_convolution(c, p.geometry, residual.defined() ? residual.data_ptr() : nullptr,
                  static_cast<cpu::Activation>(p.activation));
}

void Convolution::vjp(VjpContext& c) {
  const Params& p = c.params<Convolution>();
  const Tensor& g = c.grad();
  const Shape &x = c.input_sizes(0), &w = c.input_sizes(1);
  if (c.needs(0)) {
    ConvTranspose::Params q{p, {}};
    for (int d = 0; d < p.spatial; ++d) {  // what the last step of the kernel left over
      auto i = static_cast<size_t>(d);
      q.output_padding[i] = (x[d + 2] + 2 * p.padding[i] - p.dilation[i] * (w[d + 2] - 1) - 1) % p.stride[i];
    }
    c.grad_in(0) = call<ConvTranspose>(c.node.site, q, g, c.saved_input(1), Tensor());
  }
  if (c.needs(1)) {
    ConvBackwardWeight::Params q{p, {}};
    for (int d = 0; d < p.spatial; ++d) q.kernel[static_cast<size_t>(d)] = w[d + 2];
    c.grad_in(1) = call<ConvBackwardWeight>(c.node.site, q, c.saved_input(0), g);
  }
  if (c.needs(2)) c.grad_in(2) = bias_gradient(g);
}

// --- transposed convolution ------------------------------------------------------------------------------------

Meta ConvTranspose::infer(const Meta& x, const Meta& w, const Meta& bias, Params& q) {
  ConvGeometry& p = q.geometry;
  check_spatial(p);
  const char* op = kTransposeNames[p.spatial];
  check_ranks(op, p, x, w);
  check_geometry(op, p);
  const int64_t c_out = checked_int64(Wide(w.sizes[1]) * p.groups, op, "groups");
  check_operands(op, p, x, w, bias, w.sizes[0], c_out);
  Shape sizes{x.sizes[0], c_out};
  for (int d = 0; d < p.spatial; ++d) {
    auto i = static_cast<size_t>(d);
    int64_t extra = q.output_padding[i];
    DEFT_CHECK(extra >= 0 && (extra < p.stride[i] || extra < p.dilation[i]), ValueError,
               "{}: output_padding {} must be at least 0 and smaller than the stride {} or the dilation {}", op, extra,
               p.stride[i], p.dilation[i]);
    const Wide n =
        Wide(x.sizes[d + 2] - 1) * p.stride[i] - 2 * Wide(p.padding[i]) + reach_of(p, d, w.sizes[d + 2]) + extra;
    DEFT_CHECK(n >= 1, ShapeError,
               "{}: an input of shape {} with padding {} gives a result of size {}; it must be at least 1", op,
               to_string(x.sizes), p.padding[i], n);
    sizes.push_back(checked_int64(n, op, "the result's size"));
  }
  check_padded_plane(op, p, sizes, x.sizes);
  return result_meta(sizes, x, p);
}

void ConvTranspose::cpu(KernelCall& c) {
  const Meta& out = c.out().meta();
  if (out.numel == 0) return;
  const ConvGeometry& p = c.params<ConvTranspose>().geometry;
  Tensor x = as_dense(c.in(0), p.channels_last), w = as_dense(c.in(1)), bias = c.has(2) ? as_dense(c.in(2)) : Tensor();
  auto k = conv_call<cpu::ConvCall>(p, out, x.meta(), w.sizes().data() + 2);
  k.w = w.data_ptr();
  k.bias = bias.defined() ? bias.data_ptr() : nullptr;
  cpu::conv_backward_input(k, x.data_ptr(), c.out().data_ptr());
}

void ConvTranspose::vjp(VjpContext& c) {
  const ConvGeometry& p = c.params<ConvTranspose>().geometry;
  const Tensor& g = c.grad();
  const Shape &x = c.input_sizes(0), &w = c.input_sizes(1);
  if (c.needs(0)) {
    Tensor d = call<Convolution>(c.node.site, p, g, c.saved_input(1), Tensor());
    // An output_padding that is not below the stride leaves room for steps that have no counterpart in x.
    for (int i = 2; i < x.size(); ++i)
      if (d.sizes()[i] > x[i]) d = d.narrow(i, 0, x[i]);
    c.grad_in(0) = d;
  }
  if (c.needs(1)) {
    ConvBackwardWeight::Params q{p, {}};
    for (int d = 0; d < p.spatial; ++d) q.kernel[static_cast<size_t>(d)] = w[d + 2];
    c.grad_in(1) = call<ConvBackwardWeight>(c.node.site, q, g, c.saved_input(0));
  }
  if (c.needs(2)) c.grad_in(2) = bias_gradient(g);
}

// --- weight gradient -------------------------------------------------------------------------------------------

Meta ConvBackwardWeight::infer(const Meta& x, const Meta& g, const Params& q) {
  const ConvGeometry& p = q.geometry;
  const char* op = "conv_backward_weight";
  check_spatial(p);
  check_geometry(op, p);
  DEFT_CHECK(g.defined && x.dtype == g.dtype && x.rank() == p.spatial + 2 && g.rank() == p.spatial + 2 &&
                 x.sizes[0] == g.sizes[0] && x.sizes[1] % p.groups == 0 && g.sizes[1] % p.groups == 0,
             ShapeError, "conv_backward_weight: an input {} and a gradient {} do not belong to one convolution",
             describe(x), describe(g));
  DEFT_CHECK(!q.wide_result || (x.device.is_cpu() && size_of(x.dtype) == 2 && p.groups == 1), DTypeError,
             "conv_backward_weight: found an input {} and {} groups, expected a 16-bit input on the CPU and one group "
             "for a wider result",
             describe(x), p.groups);
  Shape sizes{g.sizes[1], x.sizes[1] / p.groups};
  for (int d = 0; d < p.spatial; ++d) {
    auto i = static_cast<size_t>(d);
    const Wide room = x.sizes[d + 2] + 2 * Wide(p.padding[i]);
    const Wide most = Wide(g.sizes[d + 2] - 1) * p.stride[i] + reach_of(p, d, q.kernel[i]);
    DEFT_CHECK(q.kernel[i] >= 1 && most <= room, ShapeError,
               "{}: an input {}, a gradient {} and a kernel of {} do not belong to one convolution", op, describe(x),
               describe(g), q.kernel[i]);
    sizes.push_back(q.kernel[i]);
  }
  check_padded_plane(op, p, x.sizes, g.sizes);
  return Meta::dense(sizes, q.wide_result ? DType::f32 : x.dtype, x.device);
}

void ConvBackwardWeight::cpu(KernelCall& c) {
  const Params& q = c.params<ConvBackwardWeight>();
  const Meta& out = c.out().meta();
  if (out.numel == 0) return;
  if (c.in(0).numel() == 0 || c.in(1).numel() == 0) {
    __builtin_memset(c.out().data_ptr(), 0, static_cast<size_t>(out.numel) * size_of(out.dtype));
    return;
  }
  ConvGeometry p = weight_geometry(q.geometry, c.in(0).meta());
  Tensor x = as_dense(c.in(0), p.channels_last), g = as_dense(c.in(1), p.channels_last);
  auto k = conv_call<cpu::ConvCall>(p, x.meta(), g.meta(), q.kernel.data());
  k.x = x.data_ptr();
  k.wide_gradient = q.wide_result;
  cpu::conv_backward_weight(k, g.data_ptr(), c.out().data_ptr());
}

void ConvBackwardWeight::vjp(VjpContext& c) {
  const Params& q = c.params<ConvBackwardWeight>();
  const ConvGeometry& p = q.geometry;
  const Tensor& h = c.grad();  // of the weight's gradient, so shaped like the weight
  const Shape &x = c.input_sizes(0), &g = c.input_sizes(1);
  if (c.needs(0)) {
    ConvTranspose::Params t{p, {}};
    for (int d = 0; d < p.spatial; ++d) {
      auto i = static_cast<size_t>(d);
      t.output_padding[i] =
          x[d + 2] + 2 * p.padding[i] - p.dilation[i] * (q.kernel[i] - 1) - 1 - (g[d + 2] - 1) * p.stride[i];
    }
    c.grad_in(0) = call<ConvTranspose>(c.node.site, t, c.saved_input(1), h, Tensor());
  }
  if (c.needs(1)) {
    Tensor d = call<Convolution>(c.node.site, p, c.saved_input(0), h, Tensor());
    for (int i = 2; i < g.size(); ++i)
      if (d.sizes()[i] > g[i]) d = d.narrow(i, 0, g[i]);
    c.grad_in(1) = d;
  }
}

// --- functions -------------------------------------------------------------------------------------------------

namespace {

Sizes3 expand_list(const char* op, const char* what, IntList list, int spatial) {
  DEFT_CHECK(list.size() == 1 || list.size() == static_cast<size_t>(spatial), ValueError,
             "{}: {} has {} numbers; give 1 or {}", op, what, list.size(), spatial);
  Sizes3 r{};
  for (size_t i = 0; i < static_cast<size_t>(spatial); ++i) r[i] = list[list.size() == 1 ? 0 : i];
  return r;
}

ConvGeometry geometry(const char* op, int spatial, IntList stride, IntList padding, IntList dilation, int64_t groups) {
  return {spatial,
          expand_list(op, "stride", stride, spatial),
          expand_list(op, "padding", padding, spatial),
          expand_list(op, "dilation", dilation, spatial),
          groups,
          false};
}

template <class Op>
Tensor run(const Site& site, const char* op, int spatial, const typename Op::Params& p, const Tensor& x,
           const Tensor& weight, const Tensor& bias) {
  detail::check_defined(x, op);
  if (x.dim() != spatial + 1) return call<Op>(site, p, x, weight, bias);
  SiteScope scope(site);
  return call<Op>(site, p, x.unsqueeze(0), weight, bias).squeeze(0);
}

Tensor conv(int spatial, const Tensor& x, const Tensor& weight, const Tensor& bias, IntList stride, IntList padding,
            IntList dilation, int64_t groups, const Site& site) {
  const char* op = kConvNames[spatial];
  return run<Convolution>(site, op, spatial, geometry(op, spatial, stride, padding, dilation, groups), x, weight, bias);
}

Tensor conv(int spatial, const Tensor& x, const Tensor& weight, const Tensor& bias, IntList stride, ConvPadding padding,
            IntList dilation, int64_t groups, const Site& site) {
  SiteScope scope(site);
  const char* op = kConvNames[spatial];
  ConvGeometry p = geometry(op, spatial, stride, {0}, dilation, groups);
  if (padding == ConvPadding::valid) return run<Convolution>(site, op, spatial, p, x, weight, bias);
  detail::check_defined(weight, op);
  DEFT_CHECK(weight.dim() == spatial + 2, ShapeError, "{}: a weight of shape {} must have {} dimensions", op,
             to_string(weight.sizes()), spatial + 2);
  Sizes3 total{};
  for (int d = 0; d < spatial; ++d) {
    auto i = static_cast<size_t>(d);
    DEFT_CHECK(p.stride[i] == 1, ValueError, "{}: padding `same` needs stride 1, found {}; give the padding in numbers",
               op, p.stride[i]);
    total[i] = checked_int64(Wide(p.dilation[i]) * (weight.sizes()[d + 2] - 1), op, "the dilation");
    p.padding[i] = total[i] / 2 + total[i] % 2;
  }
  Tensor y = run<Convolution>(site, op, spatial, p, x, weight, bias);
  // An odd total is padded too much by one at the front: drop the position that saw it.
  for (int d = 0; d < spatial; ++d)
    if (total[static_cast<size_t>(d)] % 2) {
      int dim = y.dim() - spatial + d;
      y = y.narrow(dim, 1, y.sizes()[dim] - 1);
    }
  return y;
}

Tensor conv_transpose(int spatial, const Tensor& x, const Tensor& weight, const Tensor& bias, IntList stride,
                      IntList padding, IntList output_padding, int64_t groups, IntList dilation, const Site& site) {
  const char* op = kTransposeNames[spatial];
  ConvTranspose::Params p{geometry(op, spatial, stride, padding, dilation, groups),
                          expand_list(op, "output_padding", output_padding, spatial)};
  return run<ConvTranspose>(site, op, spatial, p, x, weight, bias);
}

}  // namespace

#define DEFT_DEFINE(function, spatial)                                                                            \
  Tensor function(const Tensor& x, const Tensor& weight, const Tensor& bias, IntList stride, IntList padding,     \
                  IntList dilation, int64_t groups, Site site) {                                                  \
    return conv(spatial, x, weight, bias, stride, padding, dilation, groups, site);                               \
  }                                                                                                               \
  Tensor function(const Tensor& x, const Tensor& weight, const Tensor& bias, IntList stride, ConvPadding padding, \
                  IntList dilation, int64_t groups, Site site) {                                                  \
    return conv(spatial, x, weight, bias, stride, padding, dilation, groups, site);                               \
  }
DEFT_DEFINE(conv1d, 1)
DEFT_DEFINE(conv2d, 2)
DEFT_DEFINE(conv3d, 3)
#undef DEFT_DEFINE
#define DEFT_DEFINE(function, spatial)                                                                        \
  Tensor function(const Tensor& x, const Tensor& weight, const Tensor& bias, IntList stride, IntList padding, \
                  IntList output_padding, int64_t groups, IntList dilation, Site site) {                      \
    return conv_transpose(spatial, x, weight, bias, stride, padding, output_padding, groups, dilation, site); \
  }
DEFT_DEFINE(conv_transpose1d, 1)
DEFT_DEFINE(conv_transpose2d, 2)
DEFT_DEFINE(conv_transpose3d, 3)
#undef DEFT_DEFINE

}  // namespace deft
