#include "kernels/cpu/conv/conv.h"

#include "base/check.h"
#include "kernels/cpu/conv/conv_internal.h"
#include "kernels/cpu/gemm/gemm.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace detail {

// With few of them, each is parallel inside instead.
void run_each(int64_t count, FunctionRef<void(int64_t)> run) {
  const auto some = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) run(i);
  };
  if (count < 2 * num_threads()) return some(0, count);
  parallel_balanced(0, count, 1, some);
}

namespace {

void run_nhwc(const ConvPass& s) {
  const Window& window = s.phase.window;
  BlockedGemm p{.tile = s.tile, .m = s.n * window.positions(), .n = s.out_channels};
  p.k = s.source.channels * window.tap_count();
  const StridedSource weight(s.w);
  p.b = s.packed ? nullptr : s.weight ? s.weight : &weight;
  p.packed_b = s.packed;
  p.c = s.y, p.c_dtype = s.y_dtype, p.c_row = s.all_out_channels;
  p.epilogue = s.epilogue;
  const auto offsets = [&](int64_t i0, int64_t count, int64_t* out) {
    place_positions(s.phase, s.y_size, i0, count, out);
    for (int64_t i = 0; i < count; ++i) out[i] *= s.all_out_channels;
  };
  FunctionRef<void(int64_t, int64_t, int64_t*)> placed(offsets);
  if (!s.phase.dense()) p.row_offsets = &placed;
  if (window.pointwise()) {
    const StridedSource x({s.x_dtype, s.x, s.source.all_channels, 1});
    p.a = &x;
    return run_blocked_gemm(p);
  }
  if (padded_rows_pay(s)) return run_padded_rows(s, p);
  if (amx_pays(s)) return run_amx(s, p);
  const NhwcOperand x(window, s.source, s.x_dtype, s.x, Lines::positions, s.x_zero, s.chunk);
  p.a = &x;
  run_blocked_gemm(p);
}

// GEMM rows are positions, columns output channels: c's columns are far apart. For what run_nchw() cannot do.
void run_nchw_by_position(const ConvPass& s) {
  const Window& window = s.phase.window;
  const int64_t spatial = s.y_size[0] * s.y_size[1] * s.y_size[2];
  BlockedGemm p{.tile = s.tile, .m = s.n * window.positions(), .n = s.out_channels};
  p.k = s.source.channels * window.tap_count();
  const StridedSource weight(s.w);
  p.b = s.packed ? nullptr : &weight;
  p.packed_b = s.packed;
  const NchwOperand x(window, s.source, s.x_dtype, s.x, Lines::positions, s.x_zero);
  p.a = &x;
  p.c = s.y, p.c_dtype = s.y_dtype, p.c_row = 1, p.c_col = spatial;
  p.epilogue = s.epilogue;
  const auto offsets = [&](int64_t i0, int64_t count, int64_t* out) {
    place_positions(s.phase, s.y_size, i0, count, out);
    for (int64_t i = 0; i < count; ++i) out[i] += out[i] / spatial * spatial * (s.all_out_channels - 1);
  };
  FunctionRef<void(int64_t, int64_t, int64_t*)> placed(offsets);
  p.row_offsets = &placed;
  run_blocked_gemm(p);
}

// GEMM rows are output channels, columns positions, one sample at a time.
void run_nchw(const ConvPass& s) {
  const Window& window = s.phase.window;
  const int64_t positions = window.positions();
  BlockedGemm p{.tile = s.tile, .m = s.out_channels, .n = positions};
  p.k = s.source.channels * window.tap_count();
  const StridedSource weight(s.w);
  std::unique_ptr<PackedMatrix> own;
  if (!s.packed && s.n > 1 && p.k > 0) own = std::make_unique<PackedMatrix>(*s.tile, Side::a, weight, p.m, p.k);
  p.packed_a = s.packed ? s.packed : own.get();
  p.a = p.packed_a ? nullptr : &weight;
  p.c_dtype = s.y_dtype, p.c_row = positions;
  p.epilogue = s.epilogue;
  p.epilogue.on_rows = true;
  run_each(s.n, [&](int64_t n) {
    BlockedGemm one = p;
    const void* xn = at(s.x, n * s.source.all_channels * window.source(), s.x_dtype);
    const int64_t y_offset = n * s.all_out_channels * positions;
    one.c = at(s.y, y_offset, s.y_dtype);
    if (s.epilogue.residual) one.epilogue.residual = at(s.epilogue.residual, y_offset, s.y_dtype);
    const StridedSource points({s.x_dtype, xn, 1, positions});
    const NchwOperand planes(window, s.source, s.x_dtype, xn, Lines::positions);
    one.b = window.pointwise() ? static_cast<const PanelSource*>(&points) : &planes;
    run_blocked_gemm(one);
  });
}

const GemmTile& pass_tile(DType dtype, bool by_position, int64_t n, int64_t positions, int64_t out_channels,
                          int64_t channels, int64_t taps) {
  const int64_t m = by_position ? n * positions : out_channels, columns = by_position ? out_channels : positions;
  return best_tile(pass_panel(dtype, m, columns, channels, taps), m, columns);
}

}  // namespace

// With few channels, steps of split values would be mostly zeros.
Panel pass_panel(DType dtype, int64_t m, int64_t n, int64_t channels, int64_t taps) {
  constexpr int64_t kFewChannels = 32;
  const bool whole = channels < kFewChannels || (taps > 1 && !splits_fast());
  return whole ? panel_for(dtype) : panel_for(dtype, m, n, channels * taps);
}

void run_pass(const ConvPass& pass) {
  ConvPass s = pass;
  const bool by_position = s.source.channels_last || !s.phase.dense() || is_integral(s.x_dtype);
  const int64_t positions = s.phase.window.positions();
  if (!s.tile) {
    s.tile = &pass_tile(s.x_dtype, by_position, s.n, positions, s.out_channels, s.source.channels,
                        s.phase.window.tap_count());
  }
  if (s.source.channels_last) return run_nhwc(s);
  by_position ? run_nchw_by_position(s) : run_nchw(s);
}

namespace {

// ---- Forward.

void check_packed(const ConvCall& c) {
  const ConvWeight& w = *c.packed;
  bool same = w.dtype == c.dtype && w.channels_last == c.channels_last && w.c_in == c.c_in && w.c_out == c.c_out &&
              w.groups == c.groups;
  for (int d = 0; d < 3; ++d) same = same && w.kernel[d] == c.kernel[d];
  DEFT_CHECK(
      same, ValueError,
      "conv: found weights packed for {} {}x{}/{} channels, expected {} {}x{}/{} and the same kernel and layout; "
      "pack them again with pack_conv_weight()",
      name_of(w.dtype), w.c_in, w.c_out, w.groups, name_of(c.dtype), c.c_in, c.c_out, c.groups);
}

// The weight as lines of output channels, in the order of the source: (tap, channel) for NHWC.
struct ForwardWeight {
  ForwardWeight(const ConvCall& c, DType w_dtype)
      : dtype(w_dtype),
        cg(c.c_in / c.groups),
        taps(c.kernel[0] * c.kernel[1] * c.kernel[2]),
        w(c.w),
        ordered(c.channels_last && taps > 1 && cg > 1 && c.w
                    ? c.c_out * cg * taps * static_cast<int64_t>(size_of(w_dtype))
                    : 0) {
    if (!ordered.data()) return;
    const int64_t og = c.c_out / c.groups;
    order_weight(c, dtype, w, ordered.data(), [&](int64_t g, int64_t o, int64_t t) { return (g * og + o) * taps + t; });
    w = ordered.data();
  }
  StridedMatrix group(int64_t first_channel) const {
    const int64_t depth = cg * taps;
    return {dtype, w ? at(w, first_channel * depth, dtype) : nullptr, depth, 1};
  }
  DType dtype;
  int64_t cg, taps;
  const void* w;
  Workspace<char> ordered;
};

const GemmTile& forward_tile(const ConvCall& c) {
  const int64_t positions = c.out[0] * c.out[1] * c.out[2], og = c.c_out / c.groups;
  const bool by_position = c.channels_last || is_integral(c.dtype);  // as run_pass() chooses
  return pass_tile(c.dtype, by_position, c.n, positions, og, c.c_in / c.groups, volume(c.kernel));
}

// The tile to pack the weight for, also for calls of other sizes.
const GemmTile& weight_tile(const ConvCall& c, const GemmTile& best) {
  return c.channels_last || is_integral(c.dtype) ? first_alike(best) : best;
}

void run_forward(const ConvCall& c, const ConvQuant* quant) {
  const int64_t cg = c.c_in / c.groups, og = c.c_out / c.groups;
  const Window window = forward_window(c);
  const int64_t spatial_in = window.source(), spatial_out = window.positions();
  ConvCall unpacked = c;
  if (c.packed) check_packed(c), unpacked.w = nullptr;
  const DType w_dtype = quant ? DType::i8 : c.dtype, y_dtype = quant ? quant->y_dtype : c.dtype;
  const ForwardWeight weight(unpacked, w_dtype);
  const GemmTile& best = forward_tile(c);
  const GemmTile* packed_for = c.packed ? &c.packed->parts[0]->tile() : nullptr;
  const GemmTile& tile = !packed_for || packed_for == &weight_tile(c, best) ? best : *packed_for;
  Epilogue epilogue;
  epilogue.activation = c.activation;
  epilogue.bias_dtype = quant ? DType::f32 : c.dtype;
  if (quant) {
    epilogue.a_zero = packed_zero(tile, c.dtype, quant->x_zero);
    epilogue.out_scale = quant->y_scale, epilogue.out_zero = quant->y_zero;
  }
  run_each(c.groups, [&](int64_t g) {
    const int64_t x_at = g * cg * (c.channels_last ? 1 : spatial_in),
                  y_at = g * og * (c.channels_last ? 1 : spatial_out);
    ConvPass s{.phase = whole_phase(window), .source = {cg, c.c_in, c.channels_last}, .n = c.n};
    s.x_dtype = c.dtype, s.y_dtype = y_dtype, s.x_zero = quant ? quant->x_zero : 0;
    s.out_channels = og, s.all_out_channels = c.c_out;
    s.x = at(c.x, x_at, c.dtype), s.y = at(c.y, y_at, y_dtype);
    s.w = weight.group(g * og), s.packed = c.packed ? c.packed->parts[static_cast<size_t>(g)].get() : nullptr;
    s.tile = &tile, s.epilogue = epilogue;
    std::copy_n(c.out, 3, s.y_size);
    if (c.bias) s.epilogue.bias = at(c.bias, g * og, epilogue.bias_dtype);
    if (c.residual) s.epilogue.residual = at(c.residual, y_at, y_dtype);
    if (quant && quant->scale) s.epilogue.scale = quant->scale + g * og;
    run_pass(s);
  });
}

void forward(const ConvCall& c) {
  const Window window = forward_window(c);
  if (c.n * c.c_out * window.positions() == 0) return;
  if (runs_copied(c)) return forward_copied(c);
  if (merged_groups(c) > 1) return forward_merged(c);
  if (is_depthwise(c)) {
    if (c.packed) check_packed(c);
    return depthwise(whole_phase(window), c, c.c_out, c.x, c.w, c.y, c.out);
  }
  if (groups_pay(c)) {
    if (c.packed) check_packed(c);
    return run_groups(c);
  }
  if (c.packed ? c.packed->winograd : winograd_applies(c)) {
    if (c.packed) return check_packed(c), winograd_forward(c, *c.packed);
    ConvWeight own;
    pack_winograd(c, own, winograd_tile(c));
    return winograd_forward(c, own);
  }
  run_forward(c, nullptr);
}

}  // namespace
}  // namespace detail

void conv_forward(const ConvCall& call) {
  DEFT_CHECK(is_floating(call.dtype), DTypeError, "conv: found {}, expected a floating type; cast first",
             name_of(call.dtype));
  detail::forward(detail::normalized(call, "conv"));
}

void conv_forward_int8(const ConvCall& call, const ConvQuant& quant) {
  DEFT_CHECK(call.dtype == DType::i8 || call.dtype == DType::u8, DTypeError,
             "conv_forward_int8: found {}, expected i8 or u8; quantise first", name_of(call.dtype));
  const ConvCall c = detail::normalized(call, "conv_forward_int8");
  const bool exact = quant.y_dtype == DType::i32;
  DEFT_CHECK(exact ? !quant.scale && !c.bias && !c.residual && c.activation == Activation::none
                   : quant.y_dtype != DType::f64 && size_of(quant.y_dtype) <= 4 && quant.y_dtype != DType::boolean,
             DTypeError,
             "conv_forward_int8: found a result of {}, expected f32, bf16, f16, i8, u8, or i32 without a "
             "scale, bias, residual or activation",
             name_of(quant.y_dtype));
  const int32_t least = c.dtype == DType::i8 ? -128 : 0;
  DEFT_CHECK(quant.x_zero >= least && quant.x_zero <= least + 255, ValueError,
             "conv_forward_int8: found the zero point {}, expected one of {}'s values", quant.x_zero, name_of(c.dtype));
  if (c.n * c.c_out * c.out[0] * c.out[1] * c.out[2] == 0) return;
  const detail::MergedWeight weight(c, DType::i8);
  detail::run_forward(weight.call(c), &quant);
}

int64_t ConvWeight::bytes() const {
  int64_t sum = filter_bytes;
  for (const auto& part : parts) sum += part->bytes();
  return sum;
}

ConvWeightForm conv_weight_form(const ConvCall& call) {
  ConvCall c = detail::as_run(detail::normalized(call, "conv_weight_form"));
  c.groups /= detail::merged_groups(c);
  if (!is_integral(c.dtype) && detail::is_depthwise(c)) {
    return {detail::filter_bytes(c, c.c_out, c.kernel[0] * c.kernel[1] * c.kernel[2]) > 0, false, nullptr};
  }
  if (detail::groups_pay(c)) return {true, false, nullptr};
  if (detail::winograd_applies(c)) return {true, true, &detail::winograd_tile(c)};
  return {true, false, &detail::weight_tile(c, detail::forward_tile(c))};
}

std::unique_ptr<ConvWeight> pack_conv_weight(const ConvCall& call, const GemmTile* tile) {
  ConvCall c = detail::as_run(detail::normalized(call, "pack_conv_weight"));
  const bool bytes = is_integral(c.dtype);
  const ConvWeightForm form = conv_weight_form(c);
  if (!form.packs) return nullptr;
  const detail::RunValues w(c.w, call.dtype, c.dtype, c.c_out * (c.c_in / c.groups) * detail::volume(c.kernel));
  c.w = w.data();
  const detail::MergedWeight merged(c, bytes ? DType::i8 : c.dtype);
  c = merged.call(c);
  auto out = std::make_unique<ConvWeight>();
  out->dtype = c.dtype, out->channels_last = c.channels_last, out->winograd = false;
  out->c_in = c.c_in, out->c_out = c.c_out, out->groups = c.groups;
  std::copy_n(c.kernel, 3, out->kernel);
  if (!form.tile) {
    const int64_t taps = c.kernel[0] * c.kernel[1] * c.kernel[2];
    const bool depthwise = detail::is_depthwise(c);
    out->filter_bytes = depthwise ? detail::filter_bytes(c, c.c_out, taps) : detail::group_filter_bytes(c);
    out->filters = std::make_unique<Workspace<char>>(out->filter_bytes);
    if (depthwise) {
      detail::arrange_filters(c, c.c_out, taps, c.w, out->filters->data());
    } else {
      detail::arrange_group_filters(c, c.w, out->filters->data());
    }
    return out;
  }
  if (!tile) tile = form.tile;
  if (form.winograd) {
    detail::pack_winograd(c, *out, *tile);
    return out;
  }
  const int64_t og = c.c_out / c.groups, depth = c.c_in / c.groups * c.kernel[0] * c.kernel[1] * c.kernel[2];
  const detail::ForwardWeight weight(c, bytes ? DType::i8 : c.dtype);
  const int64_t cg = c.c_in / c.groups;
  const int64_t joined = c.channels_last ? detail::JoinedWeight::taps_joined(*tile, c.dtype, cg, c.kernel) : 0;
  for (int64_t g = 0; g < c.groups; ++g) {
    const StridedSource lines(weight.group(g * og));
    const Side side = c.channels_last || bytes ? Side::b : Side::a;
    if (joined > 0) {
      const detail::JoinedWeight runs(lines, *tile, joined * cg);
      out->parts.push_back(std::make_unique<PackedMatrix>(*tile, side, runs, og, depth / (joined * cg) * runs.step()));
    } else {
      out->parts.push_back(std::make_unique<PackedMatrix>(*tile, side, lines, og, depth));
    }
  }
  return out;
}

}  // namespace deft::cpu
