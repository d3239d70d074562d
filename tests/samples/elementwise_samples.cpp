// Samples of unary and binary ops, made from their formulas. The formulas themselves are checked against <cmath> in
// tests/ops/elementwise_special_test.cpp.
#include <fmt/format.h>

#include "ops/binary.h"
#include "ops/creation.h"
#include "ops/sample.h"
#include "ops/unary.h"

namespace deft {

namespace {

using Function1 = std::function<double(double)>;
using Function2 = std::function<double(double, double)>;

Arg arg_in(const Domain& d, Shape sizes) {
  Arg a = real(sizes, d.low, d.high);
  a.away_from = d.away_from;
  a.period = d.period;
  return a;
}

// Undefined tensors, and a type the op does not take, as its first input.
template <class Call>
void add_bad_inputs(OpSamples& s, DTypeSet dtypes, Call call) {
  std::string name = s.op;
  s.bad.push_back(
      {"undefined", {real({2})}, [call](const Tensors&) { return Tensors{call(Tensor())}; }, "ValueError", name + ":"});
  for (DType t : {f32, boolean}) {
    if (dtypes.contains(t) || name == "clamp") continue;  // clamp() makes numbers of bools
    s.bad.push_back({std::string("input ") + std::string(name_of(t)),
                     {real({2, 3})},
                     [call, t](const Tensors& a) { return Tensors{call(a[0].to(t))}; },
                     "DTypeError",
                     fmt::format("{}: does not take {}", name, name_of(t))});
  }
}

// ---- Unary. One way to call the op: parameters, or none.
struct Variant {
  std::string note;
  std::function<Tensor(const Tensor&)> call;
  Function1 formula;
  std::string torch = {};
};

SampleFn expect_each(const Function1& f) {
  return [f](const Tensors& a) {
    Tensor out = empty(a[0].sizes(), f64);
    for (int64_t i = 0; i < out.numel(); ++i) out.data<double>()[i] = f(a[0].data<double>()[i]);
    return Tensors{out};
  };
}

OpSamples make_unary(const OpInfo& info, const Domain& domain, bool differentiable,
                     const std::vector<Variant>& variants) {
  OpSamples s{.op = info.name, .dtypes = info.dtypes};
  s.grad = s.gradgrad = differentiable;
  auto add = [&](const Variant& v, std::string note, const Arg& arg) {
    if (!v.note.empty()) note = v.note + " " + note;
    auto call = [f = v.call](const Tensors& a) { return Tensors{f(a[0])}; };
    s.good.push_back({note, {arg}, call, expect_each(v.formula), v.torch});
  };
  for (const Variant& v : variants) {
    for (Shape sizes : {Shape{}, Shape{3, 7}, Shape{0, 3}, Shape{19}}) add(v, to_string(sizes), arg_in(domain, sizes));
  }
  const Variant& first = variants[0];
  for (Shape sizes : {Shape{1}, Shape{1, 1, 1}, Shape{33}, Shape{2, 3, 5}, Shape{2, 3, 4, 5}, Shape{4, 1, 3}})
    add(first, to_string(sizes), arg_in(domain, sizes));
  Domain narrow = domain;
  double middle = (domain.low + domain.high) / 2, reach = (domain.high - domain.low) / 8;
  narrow.low = middle - reach;
  narrow.high = middle + reach;
  add(first, "narrow", arg_in(narrow, {7, 3}));
  add_bad_inputs(s, info.dtypes, first.call);
  return s;
}

template <class Op>
struct Variants;

// ---- The ops without parameters: one way to call them.
template <class Op>
double formula_of(double x) {
  if constexpr (std::is_same_v<Op, BitwiseNot>) {
    return -x - 1;
  } else {
    return static_cast<double>(Op::fwd(x));
  }
}
// Names that differ in PyTorch.
std::string torch_call(const std::string& name) {
  if (name == "log_sigmoid") return "torch.nn.functional.logsigmoid(a)";
  for (const char* f : {"relu6", "selu", "silu", "mish", "softsign", "tanhshrink", "hardsigmoid", "hardswish"})
    if (name == f) return "torch.nn.functional." + name + "(a)";
  return "torch." + name + "(a)";
}
#define DEFT_UNARY(Type, function)                                                                         \
  template <>                                                                                              \
  struct Variants<Type> {                                                                                  \
    static std::vector<Variant> all() {                                                                    \
      return {{"", [](const Tensor& x) { return function(x); }, formula_of<Type>, torch_call(#function)}}; \
    }                                                                                                      \
  };
#define DEFT_UNARY_P(Type, function)
#include "ops/unary.def"
#define DEFT_UNARY_P(Type, function)
#include "ops/activation.def"
#undef DEFT_UNARY

// ---- Parameters: `name` is the call in both languages up to a few spellings.
template <class Op>
Function1 with(typename Op::Params p) {
  return [p](double x) { return Op::fwd(x, p); };
}
std::string functional(const std::string& call) { return "torch.nn.functional." + call; }

template <>
struct Variants<LeakyRelu> {
  static std::vector<Variant> all() {
    return {{"default", [](const Tensor& x) { return leaky_relu(x); }, with<LeakyRelu>({0.01}),
             functional("leaky_relu(a)")},
            {"slope=0.3", [](const Tensor& x) { return leaky_relu(x, 0.3); }, with<LeakyRelu>({0.3}),
             functional("leaky_relu(a, 0.3)")},
            {"slope=-1", [](const Tensor& x) { return leaky_relu(x, -1); }, with<LeakyRelu>({-1}),
             functional("leaky_relu(a, -1.0)")}};
  }
};
template <>
struct Variants<Elu> {
  static std::vector<Variant> all() {
    return {{"default", [](const Tensor& x) { return elu(x); }, with<Elu>({1}), functional("elu(a)")},
            {"alpha=1.7", [](const Tensor& x) { return elu(x, 1.7); }, with<Elu>({1.7}), functional("elu(a, 1.7)")}};
  }
};
template <>
struct Variants<Celu> {
  static std::vector<Variant> all() {
    return {{"default", [](const Tensor& x) { return celu(x); }, with<Celu>({1}), functional("celu(a)")},
            {"alpha=0.6", [](const Tensor& x) { return celu(x, 0.6); }, with<Celu>({0.6}), functional("celu(a, 0.6)")},
            {"alpha=2", [](const Tensor& x) { return celu(x, 2); }, with<Celu>({2}), functional("celu(a, 2.0)")}};
  }
};
template <>
struct Variants<Gelu> {
  static std::vector<Variant> all() {
    auto approximate = GeluApproximation::tanh;
    return {{"exact", [](const Tensor& x) { return gelu(x); }, with<Gelu>({}), functional("gelu(a)")},
            {"tanh", [=](const Tensor& x) { return gelu(x, approximate); }, with<Gelu>({approximate}),
             functional("gelu(a, approximate='tanh')")}};
  }
};
template <>
struct Variants<Softplus> {
  static std::vector<Variant> all() {
    return {{"default", [](const Tensor& x) { return softplus(x); }, with<Softplus>({}), functional("softplus(a)")},
            {"beta=2", [](const Tensor& x) { return softplus(x, 2); }, with<Softplus>({2, 20}),
             functional("softplus(a, 2)")},
            {"beta=0.5 threshold=40", [](const Tensor& x) { return softplus(x, 0.5, 40); }, with<Softplus>({0.5, 40}),
             functional("softplus(a, 0.5, 40)")}};
  }
};
template <>
struct Variants<Hardtanh> {
  static std::vector<Variant> all() {
    return {{"default", [](const Tensor& x) { return hardtanh(x); }, with<Hardtanh>({}), functional("hardtanh(a)")},
            {"min=-1 max=3", [](const Tensor& x) { return hardtanh(x, -1, 3); }, with<Hardtanh>({-1, 3}),
             functional("hardtanh(a, -1.0, 3.0)")},
            {"min=-3 max=1", [](const Tensor& x) { return hardtanh(x, -3, 1); }, with<Hardtanh>({-3, 1}),
             functional("hardtanh(a, -3.0, 1.0)")}};
  }
};
template <>
struct Variants<Hardshrink> {
  static std::vector<Variant> all() {
    return {
        {"default", [](const Tensor& x) { return hardshrink(x); }, with<Hardshrink>({}), functional("hardshrink(a)")},
        {"lambda=1.5", [](const Tensor& x) { return hardshrink(x, 1.5); }, with<Hardshrink>({1.5}),
         functional("hardshrink(a, 1.5)")}};
  }
};
template <>
struct Variants<Softshrink> {
  static std::vector<Variant> all() {
    return {
        {"default", [](const Tensor& x) { return softshrink(x); }, with<Softshrink>({}), functional("softshrink(a)")},
        {"lambda=1.5", [](const Tensor& x) { return softshrink(x, 1.5); }, with<Softshrink>({1.5}),
         functional("softshrink(a, 1.5)")}};
  }
};
template <>
struct Variants<Threshold> {
  static std::vector<Variant> all() {
    return {{"0.5 2", [](const Tensor& x) { return threshold(x, 0.5, 2); }, with<Threshold>({0.5, 2}),
             functional("threshold(a, 0.5, 2.0)")},
            {"-0.5 -7", [](const Tensor& x) { return threshold(x, -0.5, -7); }, with<Threshold>({-0.5, -7}),
             functional("threshold(a, -0.5, -7.0)")}};
  }
};
template <>
struct Variants<Huber> {
  static std::vector<Variant> all() {
    const std::string zeros = "(a, torch.zeros_like(a), reduction='none', ";
    return {{"delta=0.5", [](const Tensor& x) { return huber(x, 0.5); }, with<Huber>({0.5, 1}),
             functional("huber_loss" + zeros + "delta=0.5)")},
            {"delta=1.5 scale=1/1.5", [](const Tensor& x) { return huber(x, 1.5, 1 / 1.5); },
             with<Huber>({1.5, 1 / 1.5}), functional("smooth_l1_loss" + zeros + "beta=1.5)")}};
  }
};
template <>
struct Variants<Clamp> {
  static std::vector<Variant> all() {
    double inf = std::numeric_limits<double>::infinity();
    auto bounds = [](double low, double high) { return with<Clamp>({.low = low, .high = high}); };
    return {
        {"both", [](const Tensor& x) { return clamp(x, -1.5, 0.5); }, bounds(-1.5, 0.5), "torch.clamp(a, -1.5, 0.5)"},
        {"min", [](const Tensor& x) { return x.clamp(-0.5); }, bounds(-0.5, inf), "torch.clamp(a, min=-0.5)"},
        {"max", [](const Tensor& x) { return clamp(x, {}, 0.5); }, bounds(-inf, 0.5), "torch.clamp(a, max=0.5)"},
        {"whole", [](const Tensor& x) { return clamp(x, 0, 1); }, bounds(0, 1), "torch.clamp(a, 0, 1)"},
        {"min above max", [](const Tensor& x) { return clamp(x, 1.5, -0.5); }, bounds(1.5, -0.5),
         "torch.clamp(a, 1.5, -0.5)"}};
  }
};

void add_bad_params(OpSamples& s) {
  auto add = [&](std::string note, Tensor (*call)(const Tensor&), std::string text) {
    s.bad.push_back({std::move(note),
                     {real({3})},
                     [call](const Tensors& a) { return Tensors{call(a[0])}; },
                     "ValueError",
                     std::move(text)});
  };
  std::string name = s.op;
  if (name == "celu")
    add(
        "alpha=0", [](const Tensor& x) { return celu(x, 0); }, "alpha is 0");
  if (name == "softplus")
    add(
        "beta=0", [](const Tensor& x) { return softplus(x, 0); }, "beta is 0");
  if (name == "hardtanh")
    add(
        "min above max", [](const Tensor& x) { return hardtanh(x, 2, 1); }, "min 2 is above max 1");
  if (name == "softshrink")
    add(
        "lambda=-1", [](const Tensor& x) { return softshrink(x, -1); }, "at least 0");
  if (name == "clamp")
    add(
        "no bound", [](const Tensor& x) { return clamp(x, std::nullopt); }, "neither min nor max");
}

}  // namespace

template <class Op>
OpSamples unary_samples() {
  Domain domain;
  if constexpr (requires { Op::domain; }) domain = Op::domain;
  OpSamples s = make_unary(
      Op::info, domain, requires(VjpContext & c) { Op::vjp(c); }, Variants<Op>::all());
  // ~x of a bool is !x, and expect() cannot see the type: results of zeros and ones stay unchecked.
  if constexpr (std::is_same_v<Op, BitwiseNot>) {
    for (Sample& sample : s.good)
      sample.expect = [whole = sample.expect](const Tensors& a) {
        bool maybe_bool = true;
        for (double v : a[0].to_vector<double>()) maybe_bool &= v == 0 || v == 1;
        return maybe_bool ? Tensors{} : whole(a);
      };
  }
  add_bad_params(s);
  return s;
}
#define DEFT_UNARY(Type, function) template OpSamples unary_samples<Type>();
#include "ops/activation.def"
#include "ops/unary.def"
#undef DEFT_UNARY

// ---- Binary
namespace {

int64_t broadcast_offset(const Shape& out, int64_t n, const Shape& in) {
  int64_t at = 0, step = 1;
  for (int d = out.size() - 1, s = in.size() - 1; s >= 0; --d, --s) {
    if (in[s] != 1) at += n % out[d] * step;
    n /= out[d];
    step *= in[s];
  }
  return at;
}

Tensors expect_pairs(const Function2& f, const Tensor& a, const Tensor& b) {
  Tensor out = empty(broadcast_shapes(a.sizes(), b.sizes(), "expect"), f64);
  for (int64_t i = 0; i < out.numel(); ++i)
    out.data<double>()[i] = f(a.data<double>()[broadcast_offset(out.sizes(), i, a.sizes())],
                              b.data<double>()[broadcast_offset(out.sizes(), i, b.sizes())]);
  return {out};
}

struct BinaryCalls {
  Tensor (*tensors)(const Tensor&, const Tensor&);
  Tensor (*number_right)(const Tensor&, Scalar);
  Tensor (*number_left)(Scalar, const Tensor&);
};

OpSamples make_binary(const OpInfo& info, const Domain& da, const Domain& db, bool differentiable,
                      const BinaryCalls& calls, const Function2& f) {
  OpSamples s{.op = info.name, .dtypes = info.dtypes};
  s.grad = s.gradgrad = differentiable;
  std::string torch = std::string("torch.") + info.name;
  auto call = [calls](const Tensors& a) { return Tensors{calls.tensors(a[0], a[1])}; };
  auto expect = [f](const Tensors& a) { return expect_pairs(f, a[0], a[1]); };
  constexpr int kPairs = 13;
  const Shape pairs[kPairs][2] = {{{3, 5}, {3, 5}},
                                  {{}, {}},
                                  {{1}, {1}},
                                  {{17}, {17}},
                                  {{3, 5}, {5}},
                                  {{5}, {3, 5}},
                                  {{3, 1}, {1, 4}},
                                  {{2, 3, 4}, {3, 1}},
                                  {{}, {7}},
                                  {{7}, {}},
                                  {{0, 3}, {3}},
                                  {{2, 3, 4, 5}, {2, 3, 4, 5}},
                                  {{2, 1, 4, 1}, {3, 1, 5}}};
  for (const auto& p : pairs)
    s.good.push_back({to_string(p[0]) + " " + to_string(p[1]),
                      {arg_in(da, p[0]), arg_in(db, p[1])},
                      call,
                      expect,
                      torch + "(a, b)"});
  s.good.push_back({"number right",
                    {arg_in(da, {4, 3})},
                    [calls](const Tensors& a) { return Tensors{calls.number_right(a[0], 2)}; },
                    expect_each([f](double x) { return f(x, 2); }),
                    torch + "(a, torch.tensor(2, dtype=a.dtype))"});
  s.good.push_back({"number left",
                    {arg_in(db, {4, 3})},
                    [calls](const Tensors& a) { return Tensors{calls.number_left(2, a[0])}; },
                    expect_each([f](double x) { return f(2, x); }),
                    torch + "(torch.tensor(2, dtype=a.dtype), a)"});
  DType right = info.dtypes.contains(f32) ? f32 : i64;
  auto converted = [calls, right](const Tensors& a) { return Tensors{calls.tensors(a[0].to(right), a[1].to(right))}; };
  s.bad = {{"shapes", {real({2, 3}), real({4})}, converted, "ShapeError", "[2, 3]"},
           {"shapes rank", {real({5, 2, 3}), real({5, 3})}, converted, "ShapeError", std::string(info.name) + ":"},
           {"undefined right",
            {real({2}), missing_arg()},
            [calls, right](const Tensors& a) { return Tensors{calls.tensors(a[0].to(right), a[1])}; },
            "ValueError",
            "undefined"}};
  add_bad_inputs(s, info.dtypes, [calls](const Tensor& x) { return calls.tensors(x, x); });
  return s;
}

template <class Op>
double pair_formula(double a, double b) {
  if constexpr (Op::info.dtypes.contains(f64)) {
    return static_cast<double>(Op::fwd(a, b));
  } else {
    return static_cast<double>(Op::fwd(static_cast<int64_t>(a), static_cast<int64_t>(b)));
  }
}

template <class Op>
struct Calls;
#define DEFT_BINARY(Type, function)                                            \
  template <>                                                                  \
  struct Calls<Type> {                                                         \
    static BinaryCalls get() {                                                 \
      return {[](const Tensor& a, const Tensor& b) { return function(a, b); }, \
              [](const Tensor& a, Scalar b) { return function(a, b); },        \
              [](Scalar a, const Tensor& b) { return function(a, b); }};       \
    }                                                                          \
  };
#include "ops/binary.def"
#undef DEFT_BINARY

}  // namespace

template <class Op>
OpSamples binary_samples() {
  Domain a, b;
  if constexpr (requires { Op::domain_a; }) a = Op::domain_a;
  if constexpr (requires { Op::domain_b; }) b = Op::domain_b;
  return make_binary(
      Op::info, a, b, requires(VjpContext & c) { Op::vjp(c); }, Calls<Op>::get(), pair_formula<Op>);
}
#define DEFT_BINARY(Type, function) template OpSamples binary_samples<Type>();
#include "ops/binary.def"
#undef DEFT_BINARY

}  // namespace deft
