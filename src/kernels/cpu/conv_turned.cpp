// Convolutions of planes, with channels innermost in between: kernels of several taps are faster so by more than it
// takes to turn x and y, some samples at a time while they are in the cache.
#include "kernels/cpu/conv_internal.h"
#include "kernels/cpu/copy.h"

namespace deft::cpu::detail {
namespace {

constexpr int64_t kBytes = 2 << 20;  // of x and y at a time
constexpr int64_t kFewChannels = 8;  // pack better from planes, as 16-bit values

int64_t volume(const int64_t size[3]) { return size[0] * size[1] * size[2]; }

// Images of one layout, and from one to the other.
struct Images {
  DType dtype;
  int64_t channels, spatial;
  int64_t bytes(int64_t n) const { return n * channels * spatial * static_cast<int64_t>(size_of(dtype)); }
  void to_last(int64_t n, const void* from, void* to) const { copy(n, from, spatial, 1, to, 1, channels); }
  void to_planes(int64_t n, const void* from, void* to) const { copy(n, from, 1, channels, to, spatial, 1); }

 private:
  void copy(int64_t n, const void* from, int64_t from_channel, int64_t from_pixel, void* to, int64_t to_channel,
            int64_t to_pixel) const {
    const int64_t sizes[3] = {n, channels, spatial}, each = channels * spatial;
    if (each == 0) return;
    copy_strided({const_cast<void*>(from), dtype, {each, from_channel, from_pixel}},
                 {to, dtype, {each, to_channel, to_pixel}}, 3, sizes);
  }
};
Images images_in(const ConvCall& c) { return {c.dtype, c.c_in, volume(c.in)}; }
Images images_out(const ConvCall& c) { return {c.dtype, c.c_out, volume(c.out)}; }

ConvCall with_channels_last(const ConvCall& c) {
  ConvCall last = c;
  last.channels_last = true;
  return last;
}

// Calls run(first sample, samples) for parts of the batch, which depend on sizes only.
template <class F>
void for_each_part(const ConvCall& c, int64_t part, F run) {
  run_each((c.n + part - 1) / part, [&](int64_t i) { run(i * part, std::min(part, c.n - i * part)); });
}
int64_t samples_of_a_part(const ConvCall& c) {
  return std::clamp<int64_t>(kBytes / std::max<int64_t>(1, images_in(c).bytes(1) + images_out(c).bytes(1)), 1, c.n);
}

}  // namespace

bool turning_pays(const ConvCall& c) {
  return !c.channels_last && size_of(c.dtype) <= 4 && is_floating(c.dtype) && !is_depthwise(c) &&
         (volume(c.kernel) > 1 || c.groups > 1);
}
bool turning_pays_weight(const ConvCall& c) {
  return turning_pays(c) && (c.dtype == DType::f32 || c.c_in / c.groups >= kFewChannels);
}

void forward_turned(const ConvCall& c) {
  const Images in = images_in(c), out = images_out(c);
  const int64_t part = samples_of_a_part(c);
  ConvCall last = with_channels_last(c);
  std::unique_ptr<ConvWeight> own;
  if (!c.packed && part < c.n) own = pack_conv_weight(last), last.packed = own.get();
  for_each_part(c, part, [&](int64_t first, int64_t n) {
    const Workspace<char> x(in.bytes(n)), y(out.bytes(n)), residual(c.residual ? out.bytes(n) : 0);
    ConvCall some = last;
    some.n = n, some.x = x.data(), some.y = y.data(), some.residual = residual.data();
    in.to_last(n, static_cast<const char*>(c.x) + in.bytes(first), x.data());
    if (c.residual) out.to_last(n, static_cast<const char*>(c.residual) + out.bytes(first), residual.data());
    conv_forward(some);
    out.to_planes(n, y.data(), static_cast<char*>(c.y) + out.bytes(first));
  });
}

void input_turned(const ConvCall& c, const void* dy, void* dx) {
  const Images in = images_in(c), out = images_out(c);
  for_each_part(c, samples_of_a_part(c), [&](int64_t first, int64_t n) {
    const Workspace<char> from(out.bytes(n)), to(in.bytes(n));
    ConvCall some = with_channels_last(c);
    some.n = n;
    out.to_last(n, static_cast<const char*>(dy) + out.bytes(first), from.data());
    conv_backward_input(some, from.data(), to.data());
    in.to_planes(n, to.data(), static_cast<char*>(dx) + in.bytes(first));
  });
}

void weight_turned(const ConvCall& c, const void* dy, void* dw) {
  const Images in = images_in(c), out = images_out(c);
  const Workspace<char> x(in.bytes(c.n)), from(out.bytes(c.n));
  in.to_last(c.n, c.x, x.data());
  out.to_last(c.n, dy, from.data());
  ConvCall last = with_channels_last(c);
  last.x = x.data();
  conv_backward_weight(last, from.data(), dw);
}

}  // namespace deft::cpu::detail
