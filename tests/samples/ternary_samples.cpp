#include <algorithm>

#include "ops/creation.h"
#include "ops/sample.h"
#include "ops/ternary.h"

namespace deft {

namespace {

double at(const Tensor& x, const Shape& out, int64_t n) {
  const Shape& in = x.sizes();
  int64_t offset = 0, step = 1;
  for (int d = out.size() - 1, s = in.size() - 1; s >= 0; --d, --s) {
    if (in[s] != 1) offset += n % out[d] * step;
    n /= out[d];
    step *= in[s];
  }
  return x.dtype() == boolean ? x.data<bool>()[offset] : x.data<double>()[offset];
}

using Function3 = std::function<double(double, double, double)>;

SampleFn expect_triples(const Function3& f) {
  return [f](const Tensors& a) {
    Shape sizes = broadcast_shapes(broadcast_shapes(a[0].sizes(), a[1].sizes(), "expect"), a[2].sizes(), "expect");
    Tensor out = empty(sizes, f64);
    for (int64_t i = 0; i < out.numel(); ++i)
      out.data<double>()[i] = f(at(a[0], sizes, i), at(a[1], sizes, i), at(a[2], sizes, i));
    return Tensors{out};
  };
}

struct Triple {
  Shape a, b, c;
};
const Triple kTriples[] = {{{3, 5}, {3, 5}, {3, 5}}, {{}, {}, {}},
                           {{1}, {1}, {1}},          {{17}, {17}, {17}},
                           {{3, 5}, {5}, {3, 1}},    {{5}, {3, 5}, {}},
                           {{}, {7}, {7}},           {{0, 3}, {3}, {1}},
                           {{2, 3, 4}, {4}, {3, 1}}, {{2, 3, 4, 5}, {2, 3, 4, 5}, {2, 3, 4, 5}}};

// Samples of `call` over all shapes; `make` gives the three arguments.
void add_all(OpSamples& s, const std::string& note, const std::function<std::vector<Arg>(const Triple&)>& make,
             const SampleFn& call, const Function3& f, const std::string& torch) {
  for (const Triple& t : kTriples) {
    std::string shapes = to_string(t.a) + " " + to_string(t.b) + " " + to_string(t.c);
    s.good.push_back({note.empty() ? shapes : note + " " + shapes, make(t), call, expect_triples(f), torch});
  }
}
std::vector<Arg> reals(const Triple& t) { return {real(t.a), real(t.b), real(t.c)}; }

void add_bad(OpSamples& s, const SampleFn& call, Arg first) {
  std::string name = s.op;
  first.sizes = {2, 3};
  s.bad = {{"shapes", {first, real({4}), real({2, 3})}, call, "ShapeError", "[2, 3]"},
           {"shapes third", {first, real({3}), real({4, 1, 2})}, call, "ShapeError", name + ":"},
           {"undefined", {missing_arg(), real({2}), real({2})}, call, "ValueError", "undefined"}};
}

}  // namespace

OpSamples Where::samples() {
  OpSamples s{.op = "where", .dtypes = kAllTypes};
  auto call = [](const Tensors& a) { return Tensors{where(a[0], a[1], a[2])}; };
  auto make = [](const Triple& t) { return std::vector<Arg>{boolean_arg(t.a), real(t.b), real(t.c)}; };
  add_all(
      s, "", make, call, [](double c, double a, double b) { return c != 0 ? a : b; }, "torch.where(a, b, c)");
  auto numbers = [&](std::string note, SampleFn f, std::function<double(double, double)> g, std::string torch) {
    auto expect = [g](const Tensors& a) {
      Tensor out = empty(a[1].sizes(), f64);
      for (int64_t i = 0; i < out.numel(); ++i) out.data<double>()[i] = g(a[0].data<bool>()[i], a[1].data<double>()[i]);
      return Tensors{out};
    };
    s.good.push_back({std::move(note), {boolean_arg({3, 4}), real({3, 4})}, std::move(f), expect, std::move(torch)});
  };
  numbers(
      "number right", [](const Tensors& a) { return Tensors{where(a[0], a[1], 3)}; },
      [](double c, double x) { return c != 0 ? x : 3; }, "torch.where(a, b, 3)");
  numbers(
      "number left", [](const Tensors& a) { return Tensors{where(a[0], -2, a[1])}; },
      [](double c, double x) { return c != 0 ? -2 : x; }, "torch.where(a, -2, b)");
  add_bad(s, call, boolean_arg({}));
  s.bad.push_back(
      {"condition is real", {real({3}), real({3}), real({3})}, call, "DTypeError", "where: does not take f32"});
  s.bad.push_back({"undefined third", {boolean_arg({3}), real({3}), missing_arg()}, call, "ValueError", "input 2"});
  return s;
}

OpSamples Lerp::samples() {
  OpSamples s{.op = "lerp"};
  auto call = [](const Tensors& a) { return Tensors{lerp(a[0], a[1], a[2])}; };
  auto f = [](double a, double b, double w) { return a + w * (b - a); };
  add_all(
      s, "",
      [](const Triple& t) {
        return std::vector<Arg>{real(t.a), real(t.b), real(t.c, -0.5, 1.5)};
      },
      call, f, "torch.lerp(a, b, c)");
  for (double w : {0.0, 0.25, 0.75, 1.0}) {
    auto expect = [w](const Tensors& a) {
      Tensor out = empty(a[0].sizes(), f64);
      for (int64_t i = 0; i < out.numel(); ++i)
        out.data<double>()[i] = (1 - w) * a[0].data<double>()[i] + w * a[1].data<double>()[i];
      return Tensors{out};
    };
    std::string weight = std::to_string(w);
    s.good.push_back({"weight=" + weight,
                      {real({3, 5}), real({3, 5})},
                      [w](const Tensors& a) { return Tensors{lerp(a[0], a[1], w)}; },
                      expect,
                      "torch.lerp(a, b, " + weight + ")"});
  }
  add_bad(s, call, real({}));
  s.bad.push_back({"integers",
                   {real({3}), real({3}), real({3})},
                   [](const Tensors& a) { return Tensors{lerp(a[0].to(i32), a[1].to(i32), a[2])}; },
                   "DTypeError",
                   "lerp:"});
  return s;
}

OpSamples Addcmul::samples() {
  OpSamples s{.op = "addcmul", .dtypes = kNumbers};
  for (double v : {1.0, -2.0, 3.0}) {
    std::string value = std::to_string(static_cast<int>(v));
    auto call = [v](const Tensors& a) { return Tensors{addcmul(a[0], a[1], a[2], v)}; };
    add_all(
        s, "value=" + value, reals, call, [v](double x, double a, double b) { return x + v * a * b; },
        "torch.addcmul(a, b, c, value=" + value + ")");
  }
  add_bad(s, s.good[0].call, real({}));
  return s;
}

OpSamples Addcdiv::samples() {
  OpSamples s{.op = "addcdiv"};
  for (double v : {1.0, -0.5}) {
    std::string value = std::to_string(v);
    auto call = [v](const Tensors& a) { return Tensors{addcdiv(a[0], a[1], a[2], v)}; };
    add_all(
        s, "value=" + value,
        [](const Triple& t) {
          return std::vector<Arg>{real(t.a), real(t.b), real(t.c, 0.5, 2)};
        },
        call, [v](double x, double a, double b) { return x + v * a / b; },
        "torch.addcdiv(a, b, c, value=" + value + ")");
  }
  add_bad(s, s.good[0].call, real({}));
  return s;
}

OpSamples ClampTensor::samples() {
  OpSamples s{.op = "clamp_tensor", .dtypes = kNumbers};
  auto call = [](const Tensors& a) { return Tensors{clamp(a[0], a[1], a[2])}; };
  auto f = [](double x, double low, double high) { return std::min(std::max(x, low), high); };
  add_all(s, "", reals, call, f, "torch.clamp(a, b, c)");
  add_all(
      s, "ordered",
      [](const Triple& t) {
        return std::vector<Arg>{real(t.a), real(t.b, -2, -0.1), real(t.c, 0.1, 2)};
      },
      call, f, "torch.clamp(a, b, c)");
  for (bool high : {false, true}) {
    auto one = [high](const Tensors& a) {
      return Tensors{high ? clamp(a[0], Tensor(), a[1]) : clamp(a[0], a[1], Tensor())};
    };
    auto expect = [high](const Tensors& a) {
      Tensor out = empty(a[0].sizes(), f64);
      for (int64_t i = 0; i < out.numel(); ++i) {
        double x = a[0].data<double>()[i], y = a[1].data<double>()[i];
        out.data<double>()[i] = high ? std::min(x, y) : std::max(x, y);
      }
      return Tensors{out};
    };
    s.good.push_back({high ? "max" : "min",
                      {real({3, 5}), real({3, 5})},
                      one,
                      expect,
                      high ? "torch.clamp(a, max=b)" : "torch.clamp(a, min=b)"});
  }
  add_bad(s, call, real({}));
  s.bad.push_back({"no bound",
                   {real({3})},
                   [](const Tensors& a) { return Tensors{clamp(a[0], Tensor(), Tensor())}; },
                   "ValueError",
                   "neither min nor max"});
  return s;
}

}  // namespace deft
