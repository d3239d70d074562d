#include "ops/resize.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "core/describe.h"
#include "kernels/cpu/conv/unfold.h"
#include "kernels/cpu/image/interpolate.h"
#include "kernels/cpu/image/pad.h"
#include "ops/dense.h"
#include "ops/view.h"
#include "runtime/context.h"

namespace deft {

// --- interpolate -----------------------------------------------------------------------------------------------

bool Interpolate::keeps_channels_last(const Meta& x) { return !x.contiguous && x.is_channels_last(); }

namespace {

// In the order of x.
Meta dense_like(const Meta& x, const Shape& sizes) {
  Meta m = Meta::dense(sizes, x.dtype, x.device);
  if (Interpolate::keeps_channels_last(x)) m.set_strides(channels_last_strides(sizes));
  return m;
}
Meta resized(const Meta& x, const std::array<int64_t, 3>& spatial) {
  Shape sizes = x.sizes;
  for (int i = 2; i < x.rank(); ++i) sizes[i] = spatial[static_cast<size_t>(i - 2)];
  return dense_like(x, sizes);
}

cpu::InterpolateCall interpolate_call(const Interpolate::Params& p, const Meta& x, bool channels_last) {
  constexpr cpu::Interpolate modes[] = {cpu::Interpolate::nearest, cpu::Interpolate::nearest_exact,
                                        cpu::Interpolate::linear, cpu::Interpolate::cubic};
  cpu::InterpolateCall c{};
  c.dtype = x.dtype;
  c.mode = modes[static_cast<int>(p.mode)];
  c.spatial = x.rank() - 2;
  c.outer = channels_last ? x.sizes[0] : x.sizes[0] * x.sizes[1];
  c.inner = channels_last ? x.sizes[1] : 1;
  c.align_corners = p.align_corners;
  for (size_t i = 0; i < 3; ++i) {
    bool used = i < static_cast<size_t>(c.spatial);
    c.in[i] = used ? p.in[i] : 1;
    c.out[i] = used ? p.out[i] : 1;
    c.scale[i] = used ? p.scale[i] : 0;
  }
  return c;
}

}  // namespace

Meta Interpolate::infer(const Meta& x, Params& p) {
  DEFT_CHECK(x.rank() >= 3 && x.rank() <= 5, ShapeError,
             "interpolate: needs N, C and 1 to 3 spatial dimensions, found shape {}", to_string(x.sizes));
  DEFT_CHECK(p.mode != InterpolateMode::bicubic || x.rank() == 4, ShapeError,
             "interpolate: bicubic needs 4 dimensions, found shape {}", to_string(x.sizes));
  DEFT_CHECK(!p.align_corners || p.mode == InterpolateMode::linear || p.mode == InterpolateMode::bicubic, ValueError,
             "interpolate: align_corners has no meaning for nearest; leave it false");
  for (int i = 2; i < x.rank(); ++i) {
    auto d = static_cast<size_t>(i - 2);
    p.in[d] = x.sizes[i];
    DEFT_CHECK(p.in[d] > 0 && p.out[d] > 0, ShapeError, "interpolate: sizes must be positive, found {} to become {}",
               to_string(x.sizes), p.out[d]);
  }
  return resized(x, p.out);
}
void Interpolate::cpu(KernelCall& c) {
  bool last = keeps_channels_last(c.in().meta());
  Tensor x = as_dense(c.in(), last);
  if (x.numel() == 0) return;
  cpu::interpolate_forward(interpolate_call(c.params<Interpolate>(), x.meta(), last), x.data_ptr(), c.out().data_ptr());
}
void Interpolate::vjp(VjpContext& c) {
  c.grad_in(0) = call<InterpolateBackward>(c.node.site, c.params<Interpolate>(), c.grad());
}

Meta InterpolateBackward::infer(const Meta& g, const Params& p) { return resized(g, p.in); }
void InterpolateBackward::cpu(KernelCall& c) {
  bool last = Interpolate::keeps_channels_last(c.in().meta());
  Tensor g = as_dense(c.in(), last);
  if (g.numel() == 0) return;
  cpu::interpolate_backward(interpolate_call(c.params<InterpolateBackward>(), g.meta(), last), g.data_ptr(),
                            c.out().data_ptr());
}
void InterpolateBackward::vjp(VjpContext& c) {
  c.grad_in(0) = call<Interpolate>(c.node.site, c.params<InterpolateBackward>(), c.grad());
}

Tensor interpolate(const Tensor& x, IntList size, InterpolateMode mode, bool align_corners, Site site) {
  detail::check_defined(x, "interpolate");
  int n = x.dim() - 2;
  DEFT_CHECK(size.size() == 1 || static_cast<int>(size.size()) == n, ValueError,
             "interpolate: {} sizes given for shape {}", size.size(), to_string(x.sizes()));
  Interpolate::Params p{.mode = mode, .align_corners = align_corners};
  for (size_t i = 0; i < 3 && static_cast<int>(i) < n; ++i) p.out[i] = size[size.size() == 1 ? 0 : i];
  return call<Interpolate>(site, p, x);
}

Tensor interpolate_scale(const Tensor& x, const std::vector<double>& scale, InterpolateMode mode, bool align_corners,
                         Site site) {
  detail::check_defined(x, "interpolate");
  int n = x.dim() - 2;
  DEFT_CHECK(scale.size() == 1 || static_cast<int>(scale.size()) == n, ValueError,
             "interpolate: {} factors given for shape {}", scale.size(), to_string(x.sizes()));
  Interpolate::Params p{.mode = mode, .align_corners = align_corners};
  for (size_t i = 0; i < 3 && static_cast<int>(i) < n; ++i) {
    double s = scale[scale.size() == 1 ? 0 : i];
    DEFT_CHECK(s > 0 && std::isfinite(s), ValueError, "interpolate: a factor must be positive, found {}", s);
    double size = std::floor(static_cast<double>(x.sizes()[static_cast<int>(i) + 2]) * s);
    DEFT_CHECK(size < 0x1p62, ShapeError, "interpolate: a factor of {} makes shape {} too large", s,
               to_string(x.sizes()));
    p.scale[i] = s;
    p.out[i] = static_cast<int64_t>(size);
  }
  return call<Interpolate>(site, p, x);
}

// --- pad -------------------------------------------------------------------------------------------------------

namespace {

cpu::PadCall pad_call(const Pad::Params& p, const Shape& sizes, bool channels_last, DType dtype, const void* value) {
  constexpr cpu::PadMode modes[] = {cpu::PadMode::constant, cpu::PadMode::reflect, cpu::PadMode::replicate,
                                    cpu::PadMode::circular};
  cpu::PadCall c{};
  c.dtype = dtype;
  c.mode = modes[static_cast<int>(p.mode)];
  c.ndim = sizes.size();
  for (int i = 0; i < sizes.size(); ++i) {
    const int d = Pad::dim_in_memory(i, sizes.size(), channels_last);
    c.sizes[i] = sizes[d];
    c.before[i] = p.before[d];
    c.after[i] = p.after[d];
  }
  c.value = value;
  return c;
}

Shape unpadded(const Shape& sizes, const Pad::Params& p) {
  Shape s = sizes;
  for (int i = 0; i < s.size(); ++i) s[i] -= p.before[i] + p.after[i];
  return s;
}

Pad::Params reversed(const Pad::Params& p) {
  Pad::Params r = p;
  for (int i = 0; i < r.before.size(); ++i) {
    r.before[i] = -p.before[i];
    r.after[i] = -p.after[i];
  }
  r.value = 0;
  return r;
}

}  // namespace

Meta Pad::infer(const Meta& x, const Params& p) {
  Shape sizes = x.sizes;
  for (int i = 0; i < x.rank(); ++i) {
    int64_t n = x.sizes[i], a = p.before[i], b = p.after[i];
    constexpr int64_t kMost = int64_t{1} << 47;  // more elements than memory holds
    DEFT_CHECK(a >= -kMost && a <= kMost && b >= -kMost && b <= kMost, ShapeError,
               "pad: amounts {} and {} at dimension {} are too large", a, b, i);
    sizes[i] = n + a + b;
    DEFT_CHECK(sizes[i] >= 0, ShapeError, "pad: amounts {} and {} leave a negative size at dimension {} of shape {}", a,
               b, i, to_string(x.sizes));
    if (p.mode == PadMode::constant || (a == 0 && b == 0)) continue;
    int64_t most = p.mode == PadMode::reflect ? n - 1 : p.mode == PadMode::circular ? n : INT64_MAX;
    DEFT_CHECK(a >= 0 && b >= 0 && n > 0 && a <= most && b <= most, ShapeError,
               "pad: amounts {} and {} do not work for size {} at dimension {} in this mode (0 to {})", a, b, n, i,
               p.mode == PadMode::replicate ? "any" : std::to_string(most));
  }
  return dense_like(x, sizes);
}
uint64_t Pad::value_bits(const Params& p, DType dtype) {
  uint64_t bits = 0;
  dispatch_all(dtype, [&]<class T>() {
    T value;
    if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>)
      value = T(static_cast<float>(p.value));
    else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
      value = static_cast<T>(Scalar(p.value).to_int64());
    else
      value = static_cast<T>(p.value);
    __builtin_memcpy(&bits, &value, sizeof(T));
  });
  return bits;
}
void Pad::cpu(KernelCall& c) {
  const Params& p = c.params<Pad>();
  bool last = Interpolate::keeps_channels_last(c.in().meta());
  Tensor x = as_dense(c.in(), last);
  uint64_t value = value_bits(p, x.dtype());
  cpu::pad_forward(pad_call(p, x.sizes(), last, x.dtype(), &value), x.data_ptr(), c.out().data_ptr());
}
void Pad::vjp(VjpContext& c) {
  const Params& p = c.params<Pad>();
  if (p.mode == PadMode::constant)
    c.grad_in(0) = call<Pad>(c.node.site, reversed(p), c.grad());
  else
    c.grad_in(0) = call<PadBackward>(c.node.site, p, c.grad());
}

Meta PadBackward::infer(const Meta& g, const Params& p) { return dense_like(g, unpadded(g.sizes, p)); }
void PadBackward::cpu(KernelCall& c) {
  bool last = Interpolate::keeps_channels_last(c.in().meta());
  Tensor g = as_dense(c.in(), last);
  cpu::pad_backward(pad_call(c.params<PadBackward>(), c.out().sizes(), last, g.dtype(), nullptr), g.data_ptr(),
                    c.out().data_ptr());
}
void PadBackward::vjp(VjpContext& c) { c.grad_in(0) = call<Pad>(c.node.site, c.params<PadBackward>(), c.grad()); }

namespace {

// Modes that repeat values: circular wraps what cropping leaves, the others mirror and repeat the whole and crop then.
Tensor pad_and_crop(const Tensor& x, IntList amounts, PadMode mode, const Site& site) {
  std::vector<int64_t> more(amounts.begin(), amounts.end()), less = more;
  for (int64_t& n : more) n = std::max<int64_t>(n, 0);
  for (int64_t& n : less) n = std::min<int64_t>(n, 0);
  if (mode == PadMode::circular) return pad(pad(x, less, PadMode::constant, 0, site), more, mode, 0, site);
  Tensor y = pad(pad(x, more, mode, 0, site), less, PadMode::constant, 0, site);
  DEFT_CHECK(y.numel() > 0 || x.numel() == 0, ShapeError,
             "pad: the amounts leave nothing of shape {}; crop less in this mode", to_string(x.sizes()));
  return y;
}

}  // namespace

Tensor pad(const Tensor& x, IntList amounts, PadMode mode, double value, Site site) {
  detail::check_defined(x, "pad");
  DEFT_CHECK(amounts.size() % 2 == 0 && static_cast<int>(amounts.size() / 2) <= x.dim(), ShapeError,
             "pad: {} amounts do not fit a tensor of shape {}; give two per dimension, last dimension first",
             amounts.size(), to_string(x.sizes()));
  DEFT_CHECK(mode == PadMode::constant || amounts.size() <= 6, ShapeError,
             "pad: reflect, replicate and circular take at most 3 dimensions, found {}", amounts.size() / 2);
  bool crops = std::any_of(amounts.begin(), amounts.end(), [](int64_t n) { return n < 0; });
  if (mode != PadMode::constant && crops) return pad_and_crop(x, amounts, mode, site);
  if (mode == PadMode::constant) check_fits(value, x.dtype(), "pad");
  Pad::Params p{.mode = mode, .before = {}, .after = {}, .value = value};
  p.before.resize(x.dim());
  p.after.resize(x.dim());
  for (size_t i = 0; i < amounts.size() / 2; ++i) {
    int d = x.dim() - 1 - static_cast<int>(i);
    p.before[d] = amounts[2 * i];
    p.after[d] = amounts[2 * i + 1];
  }
  return call<Pad>(site, p, x);
}

// --- unfold, fold ----------------------------------------------------------------------------------------------

namespace {

cpu::UnfoldCall unfold_call(const Unfold::Params& p, DType dtype, int64_t n, int64_t channels) {
  cpu::UnfoldCall c{};
  c.dtype = dtype;
  c.spatial = 2;
  c.n = n;
  c.channels = channels;
  for (size_t i = 0; i < 2; ++i) {
    c.in[i] = p.in[i];
    c.kernel[i] = p.kernel[i];
    c.out[i] = p.out[i];
    c.stride[i] = p.stride[i];
    c.pad[i] = p.pad[i];
    c.dilation[i] = p.dilation[i];
  }
  return c;
}

void complete(const char* op, Unfold::Params& p) {
  for (size_t i = 0; i < 2; ++i) {
    auto sane = [](int64_t v, int64_t least) { return v >= least && v <= INT32_MAX; };  // products of two still fit
    DEFT_CHECK(sane(p.kernel[i], 1) && sane(p.stride[i], 1) && sane(p.dilation[i], 1) && sane(p.pad[i], 0), ValueError,
               "{}: kernel {}, stride {} and dilation {} must be positive and padding {} not negative (all below 2^31)",
               op, p.kernel[i], p.stride[i], p.dilation[i], p.pad[i]);
    DEFT_CHECK(p.in[i] >= 0, ShapeError, "{}: a size must not be negative, found {}", op, p.in[i]);
    const Wide room = p.in[i] + 2 * Wide(p.pad[i]) - Wide(p.dilation[i]) * (p.kernel[i] - 1) - 1;
    DEFT_CHECK(room >= 0, ShapeError, "{}: kernel {} with dilation {} does not fit into size {} with padding {}", op,
               p.kernel[i], p.dilation[i], p.in[i], p.pad[i]);
    p.out[i] = checked_int64(room / p.stride[i] + 1, op, "the number of positions");
  }
}
int64_t taps_of(const char* op, const Unfold::Params& p) {
  return checked_int64(Wide(p.kernel[0]) * p.kernel[1], op, "the size of the kernel");
}
int64_t positions_of(const char* op, const Unfold::Params& p) {
  return checked_int64(Wide(p.out[0]) * p.out[1], op, "the number of positions");
}

std::array<int64_t, 2> pair_of(IntList l, const char* op) {
  DEFT_CHECK(l.size() == 1 || l.size() == 2, ValueError, "{}: lists take 1 or 2 numbers, found {}", op, l.size());
  return {l[0], l[l.size() - 1]};
}

}  // namespace

Meta Unfold::infer(const Meta& x, Params& p) {
  DEFT_CHECK(x.rank() == 4, ShapeError, "unfold: needs N, C, H, W or C, H, W, found shape {}", to_string(x.sizes));
  p.in = {x.sizes[2], x.sizes[3]};
  complete("unfold", p);
  const int64_t rows = checked_int64(Wide(x.sizes[1]) * taps_of("unfold", p), "unfold", "the number of rows");
  return Meta::dense(Shape{x.sizes[0], rows, positions_of("unfold", p)}, x.dtype, x.device);
}
void Unfold::cpu(KernelCall& c) {
  Tensor x = as_dense(c.in());
  cpu::unfold(unfold_call(c.params<Unfold>(), x.dtype(), x.sizes()[0], x.sizes()[1]), x.data_ptr(), c.out().data_ptr());
}
void Unfold::vjp(VjpContext& c) { c.grad_in(0) = call<Fold>(c.node.site, c.params<Unfold>(), c.grad()); }

Meta Fold::infer(const Meta& columns, Params& p) {
  DEFT_CHECK(columns.rank() == 3, ShapeError, "fold: needs N, C kh kw, positions (N may be left out), found shape {}",
             to_string(columns.sizes));
  complete("fold", p);
  const int64_t taps = taps_of("fold", p);
  DEFT_CHECK(columns.sizes[1] % taps == 0, ShapeError, "fold: {} rows are not a multiple of the {} kernel positions",
             columns.sizes[1], taps);
  DEFT_CHECK(columns.sizes[2] == positions_of("fold", p), ShapeError, "fold: found {} positions, expected {} x {}",
             columns.sizes[2], p.out[0], p.out[1]);
  return Meta::dense(Shape{columns.sizes[0], columns.sizes[1] / taps, p.in[0], p.in[1]}, columns.dtype, columns.device);
}
void Fold::cpu(KernelCall& c) {
  Tensor columns = as_dense(c.in());
  const Shape& out = c.out().sizes();
  cpu::fold(unfold_call(c.params<Fold>(), columns.dtype(), out[0], out[1]), columns.data_ptr(), c.out().data_ptr());
}
void Fold::vjp(VjpContext& c) { c.grad_in(0) = call<Unfold>(c.node.site, c.params<Fold>(), c.grad()); }

Tensor unfold(const Tensor& x, IntList kernel, IntList dilation, IntList padding, IntList stride, Site site) {
  detail::check_defined(x, "unfold");
  Unfold::Params p;
  p.kernel = pair_of(kernel, "unfold");
  p.dilation = pair_of(dilation, "unfold");
  p.pad = pair_of(padding, "unfold");
  p.stride = pair_of(stride, "unfold");
  if (x.dim() != 3) return call<Unfold>(site, p, x);
  SiteScope scope(site);
  return squeeze(call<Unfold>(site, p, unsqueeze(x, 0)), 0);
}
Tensor fold(const Tensor& columns, IntList output, IntList kernel, IntList dilation, IntList padding, IntList stride,
            Site site) {
  detail::check_defined(columns, "fold");
  Fold::Params p;
  p.in = pair_of(output, "fold");
  p.kernel = pair_of(kernel, "fold");
  p.dilation = pair_of(dilation, "fold");
  p.pad = pair_of(padding, "fold");
  p.stride = pair_of(stride, "fold");
  if (columns.dim() != 2) return call<Fold>(site, p, columns);
  SiteScope scope(site);
  return squeeze(call<Fold>(site, p, unsqueeze(columns, 0)), 0);
}

}  // namespace deft
