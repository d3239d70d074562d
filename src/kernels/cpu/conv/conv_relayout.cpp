// Convolutions on copies of x and y, some samples at a time while they are in cache, where that gains more than the
// copies cost: NCHW becomes NHWC for kernels of several taps and groups of few channels; 16-bit floats become f32 for
// such groups, unless tiles take them as they are.
#include "kernels/cpu/conv/conv_internal.h"
#include "kernels/cpu/copy/copy.h"
#include "runtime/parallel.h"

namespace deft::cpu::detail {
namespace {

constexpr int64_t kBytes = 2 << 20;        // of the copies of x and y at a time
constexpr int64_t kFewChannels = 8;        // pack better from NCHW, as 16-bit values
constexpr int64_t kChannelsOfPoints = 32;  // of a group: with more channels, 1 x 1 kernels run well in NCHW
constexpr int64_t kChannelsOfTiles = 16;   // of a group, at least, for AMX

// Images in the caller's layout and, in NHWC, in that of the run.
struct Images {
  DType dtype, run;
  bool channels_last;
  int64_t channels, spatial;
  int64_t bytes(int64_t n) const { return n * channels * spatial * static_cast<int64_t>(size_of(dtype)); }
  int64_t run_bytes(int64_t n) const { return n * channels * spatial * static_cast<int64_t>(size_of(run)); }
  // n samples, beginning with the given one.
  void enter(int64_t first, int64_t n, const void* from, void* to) const {
    copy(n, given(const_cast<char*>(static_cast<const char*>(from)) + bytes(first)), ran(to));
  }
  void leave(int64_t first, int64_t n, const void* from, void* to) const {
    copy(n, ran(const_cast<void*>(from)), given(static_cast<char*>(to) + bytes(first)));
  }

 private:
  Operand given(void* data) const {
    return {data, dtype, {channels * spatial, channels_last ? 1 : spatial, channels_last ? channels : 1}};
  }
  Operand ran(void* data) const { return {data, run, {channels * spatial, 1, channels}}; }
  void copy(int64_t n, const Operand& from, const Operand& to) const {
    const int64_t sizes[3] = {n, channels, spatial};
    if (channels * spatial > 0) copy_strided(from, to, 3, sizes);
  }
};
Images images_in(const ConvCall& c, const ConvCall& run) {
  return {c.dtype, run.dtype, c.channels_last, c.c_in, volume(c.in)};
}
Images images_out(const ConvCall& c, const ConvCall& run) {
  return {c.dtype, run.dtype, c.channels_last, c.c_out, volume(c.out)};
}

int64_t weight_count(const ConvCall& c) { return c.c_out * (c.c_in / c.groups) * volume(c.kernel); }

int64_t samples_of_a_part(int64_t n, const Images& in, const Images& out) {
  return std::clamp<int64_t>(kBytes / std::max<int64_t>(1, in.run_bytes(1) + out.run_bytes(1)), 1, n);
}

}  // namespace

void for_each_part(int64_t n, int64_t part, FunctionRef<void(int64_t, int64_t)> run) {
  const int64_t parts = (n + part - 1) / part;
  const auto some = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) run(i * part, std::min(part, n - i * part));
  };
  if (parts < num_threads()) return some(0, parts);  // parallel inside
  parallel_balanced(0, parts, 1, some);
}

RunValues::RunValues(const void* given, DType dtype, DType run, int64_t n)
    : own_(given && dtype != run ? n * static_cast<int64_t>(size_of(run)) : 0), data_(given) {
  if (!own_.data()) return;
  convert(given, dtype, own_.data(), run, static_cast<size_t>(n));
  data_ = own_.data();
}

namespace {

ConvCall with_nhwc(const ConvCall& c) {
  ConvCall run = c;
  if (size_of(c.dtype) > 4 || !is_floating(c.dtype) || is_depthwise(c)) return run;
  const int64_t most = std::max(c.c_in, c.c_out) / c.groups;
  run.channels_last = c.channels_last || volume(c.kernel) > 1 || (c.groups > 1 && most <= kChannelsOfPoints);
  return run;
}
ConvCall widened(const ConvCall& c) {
  ConvCall wide = c;
  if (size_of(c.dtype) == 2) wide.dtype = DType::f32;
  return groups_pay(wide) ? wide : c;
}
bool differs(const ConvCall& run, const ConvCall& c) {
  return run.dtype != c.dtype || run.channels_last != c.channels_last;
}
// Groups that AMX tiles sum faster without conversion, see conv_amx.cpp.
bool tiles_pay(const ConvCall& c) {
  const int64_t groups = c.groups / merged_groups(c);
  return size_of(c.dtype) == 2 && volume(c.kernel) > 1 && std::min(c.c_in, c.c_out) >= kChannelsOfTiles * groups &&
         has_amx(panel_for(c.dtype));
}
}  // namespace

ConvCall as_run(const ConvCall& c) {
  const ConvCall run = with_nhwc(c);
  return tiles_pay(run) ? run : widened(run);
}
bool runs_copied(const ConvCall& c) { return differs(as_run(c), c); }
bool runs_copied_weight(const ConvCall& c) {
  const bool few = size_of(c.dtype) == 2 && c.groups == 1 && c.c_in < kFewChannels;
  return differs(as_run(c), c) && !few;
}

void forward_copied(const ConvCall& c) {
  ConvCall run = as_run(c);
  const Images in = images_in(c, run), out = images_out(c, run);
  const int64_t part = samples_of_a_part(c.n, in, out);
  const RunValues w(c.packed ? nullptr : c.w, c.dtype, run.dtype, weight_count(c)),
      bias(c.bias, c.dtype, run.dtype, c.c_out);
  run.w = w.data(), run.bias = bias.data();
  std::unique_ptr<ConvWeight> own;
  if (!c.packed && part < c.n) own = pack_conv_weight(run), run.packed = own.get();
  for_each_part(c.n, part, [&](int64_t first, int64_t n) {
    const Workspace<char> x(in.run_bytes(n)), y(out.run_bytes(n)), residual(c.residual ? out.run_bytes(n) : 0);
    ConvCall some = run;
    some.n = n, some.x = x.data(), some.y = y.data(), some.residual = residual.data();
    in.enter(first, n, c.x, x.data());
    if (c.residual) out.enter(first, n, c.residual, residual.data());
    conv_forward(some);
    out.leave(first, n, y.data(), c.y);
  });
}

void input_copied(const ConvCall& c, const void* dy, void* dx) {
  ConvCall run = as_run(c);
  const Images in = images_in(c, run), out = images_out(c, run);
  const RunValues w(c.w, c.dtype, run.dtype, weight_count(c)), bias(c.bias, c.dtype, run.dtype, c.c_in);
  run.w = w.data(), run.bias = bias.data();
  for_each_part(c.n, samples_of_a_part(c.n, in, out), [&](int64_t first, int64_t n) {
    const Workspace<char> from(out.run_bytes(n)), to(in.run_bytes(n));
    ConvCall some = run;
    some.n = n;
    out.enter(first, n, dy, from.data());
    conv_backward_input(some, from.data(), to.data());
    in.leave(first, n, to.data(), dx);
  });
}

void weight_copied(const ConvCall& c, const void* dy, void* dw) {
  ConvCall run = as_run(c);
  const Images in = images_in(c, run), out = images_out(c, run);
  const Workspace<char> x(in.run_bytes(c.n)), from(out.run_bytes(c.n));
  in.enter(0, c.n, c.x, x.data());
  out.enter(0, c.n, dy, from.data());
  run.x = x.data();
  const int64_t count = weight_count(c);
  const bool narrows = run.dtype != c.dtype;
  const Workspace<char> wide(narrows ? count * static_cast<int64_t>(size_of(run.dtype)) : 0);
  conv_backward_weight(run, from.data(), narrows ? wide.data() : dw);
  if (narrows) convert(wide.data(), run.dtype, dw, c.dtype, static_cast<size_t>(count));
}

}  // namespace deft::cpu::detail
