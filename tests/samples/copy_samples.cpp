#include "ops/copy.h"
#include "ops/creation.h"
#include "ops/sample.h"
#include "runtime/backend.h"

namespace deft {

namespace {

Tensor each(const Tensor& x, const std::function<double(double)>& f) {
  Tensor out = empty(x.sizes(), DType::f64);
  for (int64_t i = 0; i < x.numel(); ++i) out.data<double>()[i] = f(x.data<double>()[i]);
  return out;
}
double same(double v) { return v; }

}  // namespace

OpSamples Clone::samples() {
  auto sample = [](std::string note, Shape sizes, MemoryFormat format, std::string torch) {
    return Sample{std::move(note),
                  {real(sizes)},
                  [format](const Tensors& a) { return Tensors{a[0].clone(format)}; },
                  [](const Tensors& a) { return Tensors{each(a[0], same)}; },
                  std::move(torch)};
  };
  using enum MemoryFormat;
  OpSamples s{.op = "clone", .dtypes = kAllTypes};
  s.good = {
      sample("0-d", {}, preserve, "a.clone()"),
      sample("empty", {0, 3}, preserve, "a.clone()"),
      sample("one", {1, 1}, preserve, "a.clone()"),
      sample("rank 2", {3, 5}, preserve, "a.clone()"),
      sample("contiguous", {7, 3}, contiguous, "a.clone(memory_format=torch.contiguous_format)"),
      sample("rank 3", {2, 3, 17}, preserve, "a.clone()"),
      sample("rank 4", {2, 3, 4, 5}, preserve, "a.clone()"),
      sample("channels_last", {2, 3, 4, 5}, channels_last, "a.clone(memory_format=torch.channels_last)"),
      sample("channels_last rank 5", {1, 2, 3, 2, 3}, channels_last, "a.clone(memory_format=torch.channels_last_3d)"),
  };
  auto bad = [](std::string note, SampleFn call, std::string error, std::string text) {
    return BadSample{std::move(note), {real({2, 3})}, std::move(call), std::move(error), std::move(text)};
  };
  s.bad = {
      bad(
          "undefined", [](const Tensors&) { return Tensors{Tensor().clone()}; }, "ValueError", "undefined tensor"),
      bad(
          "channels_last of rank 2", [](const Tensors& a) { return Tensors{a[0].clone(channels_last)}; }, "ShapeError",
          ""),
  };
  return s;
}

OpSamples Cast::samples() {
  auto sample = [](std::string note, Arg arg, DType to, std::function<double(double)> f, std::string torch) {
    return Sample{std::move(note),
                  {arg},
                  [to](const Tensors& a) { return Tensors{a[0].to(to)}; },
                  [f](const Tensors& a) { return Tensors{each(a[0], f)}; },
                  "a.to(torch." + torch + ")"};
  };
  auto whole = [](double v) { return std::trunc(v); };
  auto truth = [](double v) { return v != 0 ? 1.0 : 0.0; };
  OpSamples s{.op = "to", .dtypes = kAllTypes};
  s.grad = s.gradgrad = false;  // differences do not survive rounding; see copy_test
  s.may_alias = true;           // to the type it has
  s.growth = 1;
  s.good = {
      sample("f32", real({3, 17}), DType::f32, same, "float32"),
      sample("f32 0-d", real({}), DType::f32, same, "float32"),
      sample("bf16", real({5, 7}), DType::bf16, same, "bfloat16"),
      sample("f16", real({2, 3, 4}), DType::f16, same, "float16"),
      sample("i8", real({3, 11}, -100, 100), DType::i8, whole, "int8"),
      sample("u8", real({3, 11}, 0, 100), DType::u8, whole, "uint8"),
      sample("i32", real({4, 9}, -100, 100), DType::i32, whole, "int32"),
      sample("i64", real({2, 2, 2, 3}, -100, 100), DType::i64, whole, "int64"),
      sample("bool", real({19}), DType::boolean, truth, "bool"),
      sample("empty", real({0, 2}), DType::i32, whole, "int32"),
  };
  s.bad = {{"undefined",
            {real({2})},
            [](const Tensors&) { return Tensors{Tensor().to(DType::f64)}; },
            "ValueError",
            "undefined"}};
  return s;
}

OpSamples CopyInto::samples() {
  auto sample = [](std::string note, Shape into, Shape from) {
    auto call = [](const Tensors& a) {
      Tensor x = a[0].clone();
      x.copy_(a[1]);
      return Tensors{x};
    };
    auto expect = [](const Tensors& a) {
      Tensor out = empty(a[0].sizes(), DType::f64);
      const Shape& to = a[0].sizes();
      const Shape& have = a[1].sizes();
      for (int64_t n = 0; n < out.numel(); ++n) {
        int64_t rest = n, at = 0, step = 1;
        for (int d = to.size() - 1, s = have.size() - 1; d >= 0; --d, --s) {
          int64_t i = rest % to[d];
          rest /= to[d];
          if (s < 0) continue;
          if (have[s] != 1) at += i * step;
          step *= have[s];
        }
        out.data<double>()[n] = a[1].data<double>()[at];
      }
      return Tensors{out};
    };
    return Sample{std::move(note), {real(into), real(from)}, call, expect, "a.clone().copy_(b)"};
  };
  auto bad = [](std::string note, Shape into, Shape from, std::string error, std::string text) {
    auto call = [](const Tensors& a) {
      Tensor x = a[0];
      x.copy_(a[1]);
      return Tensors{x};
    };
    return BadSample{std::move(note), {real(into), real(from)}, call, std::move(error), std::move(text)};
  };
  OpSamples s{.op = "copy_", .dtypes = kAllTypes};
  s.good = {
      sample("0-d", {}, {}),
      sample("same", {3, 5}, {3, 5}),
      sample("row", {3, 5}, {5}),
      sample("column", {3, 5}, {3, 1}),
      sample("number", {2, 3}, {}),
      sample("empty", {0, 3}, {3}),
      sample("rank 4", {2, 3, 4, 5}, {3, 1, 5}),
      sample("one", {1}, {1}),
  };
  s.bad = {
      bad("does not broadcast", {2, 3}, {2}, "ShapeError", "copy_"),
      bad("too large", {2, 3}, {4, 2, 3}, "ShapeError", "does not fit into [2, 3]"),
      {"undefined source", {real({2}), missing_arg()}, s.good[0].call, "ValueError", "undefined tensor"},
  };
  return s;
}

OpSamples Transfer::samples() {
  // To another device and back; where there is none, the tensor stays what it is.
  auto call = [](const Tensors& a) {
    Device home = a[0].device();
    bool away = home.is_cpu() && device_count(DeviceType::cuda) > 0;
    return Tensors{a[0].to(away ? kCUDA : kCPU).to(home)};
  };
  OpSamples s{.op = "to_device", .dtypes = kAllTypes};
  s.may_alias = true;
  s.growth = 1;
  for (Shape sizes : {Shape{}, Shape{1}, Shape{17}, Shape{3, 5}, Shape{0, 3}, Shape{2, 3, 4}, Shape{2, 3, 4, 5}})
    s.good.push_back(
        {to_string(sizes), {real(sizes)}, call, [](const Tensors& a) { return Tensors{each(a[0], same)}; }});
  s.bad = {
      {"undefined", {real({2})}, [](const Tensors&) { return Tensors{Tensor().to(kCPU)}; }, "ValueError", "undefined"},
      {"no such device",
       {real({2})},
       [](const Tensors& a) {
         return Tensors{a[0].to(Device{DeviceType::cuda, kMaxDevices - 1})};
       },
       "DeviceError",
       "devices present: cpu"}};
  return s;
}

OpSamples Fill::samples() {
  auto sample = [](std::string note, Shape sizes, Scalar value, std::string torch) {
    auto call = [value](const Tensors& a) {
      Tensor x = a[0].clone();
      x.fill_(value);
      return Tensors{x};
    };
    auto expect = [value](const Tensors& a) { return Tensors{each(a[0], [&](double) { return value.to_double(); })}; };
    return Sample{std::move(note), {real(sizes)}, call, expect, std::move(torch)};
  };
  OpSamples s{.op = "fill_", .dtypes = kAllTypes};
  s.growth = 1;
  s.good = {
      sample("3", {3, 5}, 3, "a.clone().fill_(3)"),
      sample("as double", {17}, 2.0, "a.clone().fill_(2.0)"),
      sample("0-d", {}, 7, "a.clone().fill_(7)"),
      sample("empty", {0, 2}, 1, "a.clone().fill_(1)"),
      sample("true", {2, 2}, true, "a.clone().fill_(True)"),
      sample("zero", {2, 3, 4}, 0, "a.clone().fill_(0)"),
      sample("rank 4", {2, 3, 4, 5}, 2, "a.clone().fill_(2)"),
      {"zero_",
       {real({3, 7})},
       [](const Tensors& a) {
         Tensor x = a[0].clone();
         x.zero_();
         return Tensors{x};
       },
       [](const Tensors& a) { return Tensors{each(a[0], [](double) { return 0.0; })}; },
       "a.clone().zero_()"},
  };
  auto bad = [](std::string note, SampleFn call, std::string error, std::string text) {
    return BadSample{std::move(note), {real({1, 3})}, std::move(call), std::move(error), std::move(text)};
  };
  s.bad = {
      bad(
          "undefined",
          [](const Tensors&) {
            Tensor x;
            x.fill_(1);
            return Tensors{x};
          },
          "ValueError", "undefined tensor"),
      bad(
          "repeated elements",
          [](const Tensors& a) {
            Tensor x = a[0].expand({4, 3});
            x.fill_(1);
            return Tensors{x};
          },
          "InplaceError", "fill_"),
  };
  return s;
}

}  // namespace deft
