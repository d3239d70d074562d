// deft bench conv: the convolutions of ResNet-50, channels_last: forward in f32, bf16 and int8, and both
// gradients in f32.
#include <fmt/format.h>

#include <cmath>

#include "bench/engine.h"
#include "bench/resnet50.h"
#include "deft/deft.h"
#include "kernels/cpu/conv/conv.h"

namespace deft::bench {

namespace {

constexpr const char *kForward = "forward", *kBackwardData = "backward data", *kBackwardWeights = "backward weights";
constexpr const char *kPrepacked = "prepacked", *kInTheCall = "packed in the call", *kWinograd = "winograd";

std::vector<ResNetConv> shapes(bool quick) {
  if (quick) return {{3, 12, 8, 7, 2, 1}, {8, 6, 8, 3, 1, 2}, {8, 6, 16, 1, 1, 1}};
  return {std::begin(kResNet50), std::end(kResNet50)};
}

class WinogradScope {
 public:
  explicit WinogradScope(bool on) : outer_(conv_winograd()) { set_conv_winograd(on); }
  ~WinogradScope() { set_conv_winograd(outer_); }
  WinogradScope(const WinogradScope&) = delete;
  WinogradScope& operator=(const WinogradScope&) = delete;

 private:
  bool outer_;
};

Tensor random_values(IntList sizes, DType dtype) {
  if (dtype == i8) return randint(-127, 128, sizes, {i8});
  if (dtype == u8) return randint(0, 256, sizes, {u8});
  return randn(sizes).to(dtype);
}

// One convolution with all its arrays. x and y are batch, height, width, channels; w is out, channels, height, width.
// Scales of bytes are powers of two, so that stores are exact.
struct Conv {
  Conv(const ResNetConv& shape, int64_t images, DType type)
      : s(shape),
        batch(images),
        dtype(type),
        side((s.size + 2 * (s.kernel / 2) - s.kernel) / s.stride + 1),
        x(random_values({batch, s.size, s.size, s.channels}, type == i8 ? u8 : type)),
        w(random_values({s.out, s.channels, s.kernel, s.kernel}, type)),
        y(random_values({batch, side, side, s.out}, type)) {
    call = {};
    call.dtype = x.dtype();
    call.spatial = 2;
    call.n = batch;
    call.groups = 1;
    call.c_in = s.channels;
    call.c_out = s.out;
    for (int d = 0; d < 3; ++d) {
      bool used = d < 2;
      call.in[d] = used ? s.size : 1;
      call.kernel[d] = used ? s.kernel : 1;
      call.out[d] = used ? side : 1;
      call.stride[d] = used ? s.stride : 1;
      call.pad[d] = used ? s.kernel / 2 : 0;
      call.dilation[d] = 1;
    }
    call.channels_last = true;
    call.x = x.data_ptr();
    call.w = w.data_ptr();
    call.y = y.data_ptr();
    quant.y_dtype = i8;
    quant.y_scale = std::exp2(std::round(std::log2(160 * std::sqrt(static_cast<float>(depth())))));
  }
  int64_t depth() const { return s.channels * s.kernel * s.kernel; }
  double flops() const { return 2.0 * static_cast<double>(batch * side * side * s.out) * static_cast<double>(depth()); }

  ResNetConv s;
  int64_t batch;
  DType dtype;
  int64_t side;  // height and width of y
  Tensor x, w, y;
  cpu::ConvCall call;
  cpu::ConvQuant quant;
};

// The position in x that position i of y meets under tap t of the kernel; -1 in the padding.
int64_t met_by(const Conv& c, int64_t i, int64_t t) {
  int64_t row = i / c.side * c.s.stride - c.s.kernel / 2 + t / c.s.kernel;
  int64_t column = i % c.side * c.s.stride - c.s.kernel / 2 + t % c.s.kernel;
  bool inside = row >= 0 && row < c.s.size && column >= 0 && column < c.s.size;
  return inside ? row * c.s.size + column : -1;
}

enum class Pass : uint8_t { forward, data, weights };

// Exact results, one element at a time, with the sum of the absolute products.
class Reference {
 public:
  struct Sum {
    double value = 0, size = 0;
    void add(double term) {
      value += term;
      size += std::abs(term);
    }
  };
  explicit Reference(const Conv& c) : c_(c), x_(c.x.to(f64)), w_(c.w.to(f64)), y_(c.y.to(f64)) {}

  // Element `index` of the result of the pass, counted as it lies in memory.
  Sum at(Pass pass, int64_t index) const {
    const int64_t of_image = (pass == Pass::forward ? c_.y : c_.x).numel() / c_.batch;
    Sum sum;
    if (pass == Pass::weights) {
      for (int64_t n = 0; n < c_.batch; ++n) add(pass, n, index, sum);
    } else {
      add(pass, index / of_image, index % of_image, sum);
    }
    return sum;
  }

 private:
  void add(Pass pass, int64_t image, int64_t index, Sum& sum) const {
    const int64_t in = c_.s.channels, out = c_.s.out, taps = c_.s.kernel * c_.s.kernel, positions = c_.side * c_.side;
    const double* w = w_.data<double>();
    const double* x = x_.data<double>() + image * c_.s.size * c_.s.size * in;
    const double* y = y_.data<double>() + image * positions * out;
    for (int64_t i = 0; i < positions; ++i) {
      if (pass == Pass::forward && i != index / out) continue;
      for (int64_t t = 0; t < taps; ++t) {
        int64_t j = met_by(c_, i, t);
        if (j < 0) continue;
        if (pass == Pass::forward)
          for (int64_t k = 0; k < in; ++k) sum.add(x[j * in + k] * w[(index % out * in + k) * taps + t]);
        else if (pass == Pass::data && j == index / in)
          for (int64_t o = 0; o < out; ++o) sum.add(y[i * out + o] * w[(o * in + index % in) * taps + t]);
        else if (pass == Pass::weights && t == index % taps)
          sum.add(y[i * out + index / taps / in] * x[j * in + index / taps % in]);
      }
    }
  }

  const Conv& c_;
  Tensor x_, w_, y_;
};

// On a sample of the result: error over the sum of the absolute products, which one rounding per term bounds. Bytes
// must be the exact ones.
Accuracy accuracy_of(const Conv& c, Pass pass, const Tensor& result, bool winograd) {
  constexpr int64_t kSamples = 41;
  Reference reference(c);
  Tensor wide = result.to(f64);
  double worst = 0, worst_of_size = 0, largest = 0;
  for (int64_t s = 0; s < kSamples; ++s) {
    int64_t index = s * (result.numel() - 1) / (kSamples - 1);
    Reference::Sum exact = reference.at(pass, index);
    if (c.dtype == i8) exact.value = std::clamp(std::nearbyint(exact.value / c.quant.y_scale), -128.0, 127.0);
    double error = std::abs(wide.data<double>()[index] - exact.value);
    worst = std::max(worst, error);
    largest = std::max(largest, exact.size);
    if (error > 0) worst_of_size = std::max(worst_of_size, error / exact.size);
  }
  if (c.dtype == i8) return {worst, 0};
  // The transforms in absolute values make up to 260 times the sum of the absolute products (the last output of a
  // tile; 30 the first), and each of its terms is rounded once per channel and a few times in the transforms.
  if (winograd) return {worst / largest, 260 * static_cast<double>(c.s.channels + 16) * 0x1p-24};
  const int64_t terms = pass == Pass::forward ? c.depth()
                        : pass == Pass::data  ? c.s.out * c.s.kernel * c.s.kernel
                                              : c.batch * c.side * c.side;
  return {worst_of_size,
          static_cast<double>(terms) * (c.dtype == bf16 ? 0x1p-23 : 0x1p-24) + (c.dtype == bf16 ? 0x1p-8 : 0)};
}

EngineRow row_of(const Conv& c, const char* op, const char* family, const char* variant) {
  const char* type = c.dtype == i8 ? "int8" : c.dtype == bf16 ? "bf16" : "f32";
  return {.name = fmt::format("{} {} {}x{}x{}x{} w {}x{}x{} s {} p {}", op, type, c.batch, c.s.channels, c.s.size,
                              c.s.size, c.s.out, c.s.kernel, c.s.kernel, c.s.stride, c.s.kernel / 2),
          .family = family,
          .dtype = type,
          .variant = variant,
          .flops = c.flops(),
          .arithmetic = c.dtype == i8     ? Arithmetic::int8
                        : c.dtype == bf16 ? Arithmetic::bf16
                                          : Arithmetic::f32,
          .count = c.s.count};
}

void measure_forward(EngineRun& run, const Conv& c, const char* variant) {
  EngineRow row = row_of(c, "conv", kForward, variant);
  if (!run.go_on(fmt::format("{} {}", row.name, variant))) return;
  const bool winograd = variant == kWinograd;
  WinogradScope scope(winograd);
  std::unique_ptr<cpu::ConvWeight> packed;
  if (variant != kInTheCall) packed = cpu::pack_conv_weight(c.call);
  Tensor y = empty(c.y.sizes(), {c.dtype});
  cpu::ConvCall call = c.call;
  call.packed = packed.get();
  call.y = y.data_ptr();
  auto once = [&] { c.dtype == i8 ? cpu::conv_forward_int8(call, c.quant) : cpu::conv_forward(call); };
  once();
  row.accuracy = accuracy_of(c, Pass::forward, y, winograd && packed && packed->winograd);
  run.add(row, once);
}

void measure_backward(EngineRun& run, const Conv& c, bool data) {
  EngineRow row = row_of(c, data ? "conv_dx" : "conv_dw", data ? kBackwardData : kBackwardWeights, "");
  if (!run.go_on(row.name)) return;
  Tensor result = empty(data ? c.x.sizes() : c.w.sizes());
  auto once = [&] {
    if (data) return cpu::conv_backward_input(c.call, c.y.data_ptr(), result.data_ptr());
    cpu::conv_backward_weight(c.call, c.y.data_ptr(), result.data_ptr());
  };
  once();
  row.accuracy = accuracy_of(c, data ? Pass::data : Pass::weights, result, false);
  run.add(row, once);
}

void add_conv_bars(EngineRun& run) {
  auto total = [](const char* dtype, const char* name) {
    return [=](const Json& row) {
      return row["family"] == "total" && row["dtype"] == dtype && row["case"].get<std::string>().starts_with(name);
    };
  };
  run.add_bar({"f32 convolutions", "% of FMA peak", 80, 92}, total("f32", "forward, prepacked"));
  run.add_bar({"f32 convolutions with Winograd", "% of FMA peak", 100, 125}, total("f32", "forward, winograd"));
  run.add_bar({"bf16 convolutions", "% of bf16 peak", 65, 85}, total("bf16", "forward, prepacked"));
  run.add_bar({"int8 convolutions", "% of int8 peak", 60, 85}, total("int8", "forward, prepacked"));
  run.add_bar({"f32 backward data", "% of FMA peak", 75, 88}, total("f32", kBackwardData));
  run.add_bar({"f32 backward weights", "% of FMA peak", 75, 88}, total("f32", kBackwardWeights));
}

Report measure_conv(const EngineOptions& options) {
  EngineRun run(options);
  const std::pair<const char*, DType> types[] = {{"f32", f32}, {"bf16", bf16}, {"int8", i8}};
  for (auto [name, dtype] : types) {
    for (const ResNetConv& s : shapes(options.quick)) {
      bool any = false;
      for (const char* family : {kForward, kBackwardData, kBackwardWeights}) any = any || run.wanted(family, name);
      if (!any) break;
      Conv conv(s, options.batch, dtype);
      if (run.wanted(kForward, name)) {
        measure_forward(run, conv, kPrepacked);
        if (dtype != i8) measure_forward(run, conv, kInTheCall);
        if (dtype == f32) measure_forward(run, conv, kWinograd);
      }
      if (dtype == f32 && run.wanted(kBackwardData, name)) measure_backward(run, conv, true);
      if (dtype == f32 && run.wanted(kBackwardWeights, name)) measure_backward(run, conv, false);
    }
    for (const char* variant : {kPrepacked, kInTheCall, kWinograd})
      run.add_total(fmt::format("forward, {}", variant), kForward, name, variant);
    run.add_total(kBackwardData, kBackwardData, name);
    run.add_total(kBackwardWeights, kBackwardWeights, name);
  }
  add_conv_bars(run);
  return run.finish();
}

}  // namespace

EngineBench conv_bench() {
  return {"conv",
          "Convolutions of ResNet-50",
          {kForward, kBackwardData, kBackwardWeights},
          {"f32", "bf16", "int8"},
          measure_conv,
          false,
          true};
}

}  // namespace deft::bench
