// Every elementwise op and its gradient over the whole range of each floating type, exponent by exponent, against the
// same formula in a wider type: what overflows or vanishes on the way to a result that does neither shows here.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "ops/binary.h"
#include "ops/creation.h"
#include "ops/unary.h"

namespace deft::testing {

// A number with the range of long double, for the formulas of ops.
struct Exact {
  long double v = 0;
  Exact() = default;
  template <class S>
  requires std::is_arithmetic_v<S>
  explicit Exact(S s) : v(static_cast<long double>(s)) {}
};
Exact operator+(Exact a, Exact b) { return Exact(a.v + b.v); }
Exact operator-(Exact a, Exact b) { return Exact(a.v - b.v); }
Exact operator*(Exact a, Exact b) { return Exact(a.v * b.v); }
Exact operator/(Exact a, Exact b) { return Exact(a.v / b.v); }
Exact operator-(Exact a) { return Exact(-a.v); }
bool operator<(Exact a, Exact b) { return a.v < b.v; }
bool operator<=(Exact a, Exact b) { return a.v <= b.v; }
bool operator>(Exact a, Exact b) { return a.v > b.v; }
bool operator>=(Exact a, Exact b) { return a.v >= b.v; }
bool operator==(Exact a, Exact b) { return a.v == b.v; }
bool operator!=(Exact a, Exact b) { return a.v != b.v; }
Exact select(bool c, Exact a, Exact b) { return c ? a : b; }
Exact min(Exact a, Exact b) { return a.v < b.v || std::isnan(a.v) ? a : b; }
Exact max(Exact a, Exact b) { return a.v > b.v || std::isnan(a.v) ? a : b; }
Exact sign(Exact x) { return Exact((x.v > 0) - (x.v < 0)); }
Exact rsqrt(Exact x) { return Exact(1 / std::sqrt(x.v)); }
Exact reciprocal(Exact x) { return Exact(1 / x.v); }
Exact sigmoid(Exact x) { return Exact(1 / (1 + std::exp(-x.v))); }
Exact round(Exact x) { return Exact(std::nearbyint(x.v)); }
#define DEFT_OF_STD(name) \
  Exact name(Exact x) { return Exact(std::name(x.v)); }
DEFT_OF_STD(exp)
DEFT_OF_STD(exp2)
DEFT_OF_STD(expm1)
DEFT_OF_STD(log)
DEFT_OF_STD(log2)
DEFT_OF_STD(log10)
DEFT_OF_STD(log1p)
DEFT_OF_STD(sqrt)
DEFT_OF_STD(abs)
DEFT_OF_STD(sin)
DEFT_OF_STD(cos)
DEFT_OF_STD(tan)
DEFT_OF_STD(asin)
DEFT_OF_STD(acos)
DEFT_OF_STD(atan)
DEFT_OF_STD(sinh)
DEFT_OF_STD(cosh)
DEFT_OF_STD(tanh)
DEFT_OF_STD(asinh)
DEFT_OF_STD(acosh)
DEFT_OF_STD(atanh)
DEFT_OF_STD(erf)
DEFT_OF_STD(erfc)
DEFT_OF_STD(floor)
DEFT_OF_STD(ceil)
DEFT_OF_STD(trunc)
#undef DEFT_OF_STD

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
constexpr DType kFloating[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

struct Format {
  int digits, least, most;  // the exponents of the smallest normal number and of the largest
};
Format format_of(DType t) {
  switch (t) {
    case DType::f64:
      return {53, -1022, 1023};
    case DType::f16:
      return {11, -14, 15};
    default:
      return {t == DType::bf16 ? 8 : 24, -126, 127};
  }
}
double largest_of(Format f) { return std::ldexp(2 - std::ldexp(1.0, 1 - f.digits), f.most); }
double smallest_of(Format f) { return std::ldexp(1.0, f.least - f.digits + 1); }
long double ulp_of(Format f, long double want) {
  const int e = want == 0 || !std::isfinite(want) ? f.least : std::ilogb(want);
  return std::ldexp(1.0L, std::max(e, f.least) - f.digits + 1);
}

// Each exponent, the middle of the range densely, and the special values.
std::vector<double> arguments(DType t) {
  const Format f = format_of(t);
  std::vector<double> x = {0, -0.0, kInf, -kInf, kNan, largest_of(f), -largest_of(f), smallest_of(f), -smallest_of(f)};
  for (int e = f.least - f.digits + 1; e <= f.most; ++e) {
    for (double m : {1.0, 1.375, 1.96875}) {
      x.push_back(std::ldexp(m, e));
      x.push_back(-std::ldexp(m, e));
    }
  }
  for (double v = -110; v < 110; v += 0.171) x.push_back(v);
  for (double v = -12; v < 12; v += 0.0173) x.push_back(v);
  for (int k = 1; k < f.digits; ++k) {
    for (double side : {-1.0, 1.0}) {
      x.push_back(side * (1 - std::ldexp(1.0, -k)));
      x.push_back(side * (1 + std::ldexp(1.0, -k)));
    }
  }
  return tensor(x).to(t).to(DType::f64).to_vector<double>();
}

// How far a result may be off: units in the last place of the result, and of 1 times `size`, which is what the terms of
// a sum are where they cancel, or how much an exponential makes of the rounding of its argument.
struct Bound {
  double ulps = 8;
  long double (*size)(long double x, long double want) = nullptr;
  double least = 0;
};
using L = long double;
L of_argument(L x, L) { return std::fabs(x); }
L of_one(L, L) { return 1; }
L of_square(L x, L want) { return std::isfinite(x) ? std::fabs(want) * x * x : 0; }
L of_cube(L x, L want) { return std::fabs(x) < 30 ? std::fabs(want) * (1 + std::fabs(x * x * x)) : 0; }
L of_gate(L x, L) { return x > 60 ? 1 : (1 + std::fabs(x)) / (1 + std::exp(-x)); }
L of_tanh_slope(L x, L want) { return x > -2 ? 2 : of_cube(x, want); }

const std::map<std::string, Bound> kForward = {
    {"tanhshrink", {8, of_argument}},
    {"gelu", {8, of_argument}},
    {"gelu tanh", {8, of_cube}},
    {"erfinv", {32}},
};
const std::map<std::string, Bound> kGradient = {
    {"erf", {8, of_square}},      {"erfc", {8, of_square}}, {"erfinv", {64}},
    {"tanh", {8, of_one}},        {"silu", {8, of_gate}},   {"mish", {8, of_gate}},
    {"hardswish", {8, of_one}},   {"gelu", {8, of_one}},    {"gelu tanh", {8, of_tanh_slope, 1e-34}},
    {"tanhshrink", {16, nullptr}}};
Bound bound_of(const std::map<std::string, Bound>& bounds, const std::string& name) {
  const auto found = bounds.find(name);
  return found == bounds.end() ? Bound{} : found->second;
}

// "" or what is wrong with a result.
std::string wrong(double got, L want, L x, DType t, const Bound& bound) {
  const Format f = format_of(t), computed = format_of(t == DType::f64 ? t : DType::f32);
  if (std::isnan(want)) return std::isnan(got) ? "" : "is no NaN";
  const L most = largest_of(f), near = most * (1 - 16 * std::ldexp(1.0L, -f.digits));
  if (std::fabs(want) > near && std::fabs(got) > near && std::signbit(want) == std::signbit(L(got))) return "";
  if (!std::isfinite(got) || !std::isfinite(want)) return got == want ? "" : "is not finite";
  // Results below the normal numbers of the type they are computed in keep what the largest step leaves.
  L allowed = bound.ulps * ulp_of(computed, want) + (t == DType::f64 || t == DType::f32 ? 0 : ulp_of(f, want));
  if (bound.size) allowed += bound.ulps * std::ldexp(bound.size(x, want), 1 - computed.digits);
  allowed += bound.least + smallest_of(computed) * std::min<L>(std::fabs(x), 512);
  return std::fabs(got - want) <= allowed ? "" : "is too far off";
}

struct Faults {
  std::string op;
  DType t;
  int count = 0;
  void check(const char* what, double got, L want, L x, const Bound& bound) {
    const std::string why = wrong(got, want, x, t, bound);
    if (why.empty() || ++count > 3) return;
    ADD_FAILURE() << op << " " << name_of(t) << " " << what << " at " << double(x) << ": " << got << " " << why
                  << ", want " << double(want);
  }
};

struct NoParams {};
template <class Op>
auto cases_of() {
  if constexpr (requires { Op::kCases; }) {
    return std::vector(std::begin(Op::kCases), std::end(Op::kCases));
  } else if constexpr (requires { typename Op::Params; }) {
    return std::vector<typename Op::Params>(1);
  } else {
    return std::vector<NoParams>(1);
  }
}
template <class Op, class P>
Exact forward_of(Exact x, const P& p) {
  if constexpr (std::is_same_v<P, NoParams>) {
    return Op::fwd(x);
  } else {
    return Op::fwd(x, p);
  }
}
template <class Op, class P>
Exact gradient_of(Exact g, Exact x, Exact y, const P& p) {
  if constexpr (std::is_same_v<P, NoParams>) {
    return Op::grad(g, x, y);
  } else {
    return Op::grad(g, x, y, p);
  }
}

// gelu(+-inf) and its slope there are limits in f32, 0 times infinity in the formula.
bool left_out(const std::string& name, double x) { return name == "gelu" && std::isinf(x); }

template <class Op, class P>
void check_case(const std::string& name, DType t, P params) {
  const std::vector<double> x = arguments(t);
  Faults faults{name, t};
  for (double g : {1.0, 0.375}) {
    Tensor in = tensor(x).to(t).requires_grad_();
    Tensor out = elementwise::unary(op_def<Op>, in, std::is_same_v<P, NoParams> ? nullptr : &params, Site::current());
    out.backward(full(out.sizes(), g, t));
    const std::vector<double> y = out.detach().to(DType::f64).template to_vector<double>();
    const std::vector<double> dx = in.grad().to(DType::f64).template to_vector<double>();
    for (size_t i = 0; i < x.size(); ++i) {
      if (left_out(name, x[i])) continue;
      const Exact exact(x[i]);
      faults.check("forward", y[i], forward_of<Op>(exact, params).v, exact.v, bound_of(kForward, name));
      const L want = gradient_of<Op>(Exact(g), exact, Exact(y[i]), params).v;
      faults.check("gradient", dx[i], want, exact.v, bound_of(kGradient, name));
    }
  }
}

template <class Op>
void check_unary(const std::string& name) {
  if constexpr (requires(VjpContext & c) { Op::vjp(c); }) {
    for (DType t : kFloating) {
      int number = 0;
      for (const auto& params : cases_of<Op>()) check_case<Op>(number++ ? name + " tanh" : name, t, params);
    }
  }
}

TEST(ElementwiseRange, Unary) {
#define DEFT_UNARY(Type, function) check_unary<Type>(#function);
#include "ops/unary.def"
#undef DEFT_UNARY
}
TEST(ElementwiseRange, Activations) {
#define DEFT_UNARY(Type, function) check_unary<Type>(#function);
#include "ops/activation.def"
#undef DEFT_UNARY
}

// Pairs of magnitudes, against the same op in f64, whose range has room for what overflows in the other types.
std::vector<double> magnitudes(DType t) {
  const Format f = format_of(t);
  std::vector<double> x = {0, 1, 0.3, 2.5, 17, 88, largest_of(f), largest_of(f) / 3, smallest_of(f), kInf, kNan};
  for (int e = f.least; e < f.most; e += std::max(1, f.most / 7)) x.push_back(std::ldexp(1.4375, e));
  for (size_t i = 0, n = x.size(); i + 1 < n; ++i) x.push_back(-x[i]);
  return tensor(x).to(t).to(DType::f64).to_vector<double>();
}
struct Run {
  std::vector<double> y, da, db;
};
Run run_binary(const OpDef& def, const std::vector<double>& a, const std::vector<double>& b, DType t) {
  Tensor ta = tensor(a).to(t).requires_grad_(), tb = tensor(b).to(t).requires_grad_();
  Tensor y = elementwise::binary(def, ta, tb, Site::current());
  y.backward(ones(y.sizes(), t));
  const auto values = [&](const Tensor& x) {
    return x.defined() ? x.to(DType::f64).to_vector<double>() : std::vector<double>(a.size());
  };
  return {values(y.detach()), values(ta.grad()), values(tb.grad())};
}
// Only what is lost altogether: digits are compared elsewhere.
bool same_magnitude(double got, double want, DType t) {
  const Format f = format_of(t);
  if (std::isnan(want)) return std::isnan(got);
  const double most = largest_of(f);
  if (std::fabs(want) > 0.99 * most && std::fabs(got) > 0.98 * most) return std::signbit(got) == std::signbit(want);
  if (!std::isfinite(got)) return false;
  return std::fabs(got - want) <= 0.03 * std::fabs(want) + 8 * smallest_of(f);
}
template <class Op>
void check_binary(const std::string& name) {
  if constexpr (!requires(VjpContext & c) { Op::vjp(c); }) return;
  for (DType t : {DType::f32, DType::bf16, DType::f16}) {
    std::vector<double> a, b;
    for (double u : magnitudes(t))
      for (double v : magnitudes(t)) a.push_back(u), b.push_back(v);
    const Run got = run_binary(op_def<Op>, a, b, t), want = run_binary(op_def<Op>, a, b, DType::f64);
    int faults = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      const bool overflowed = std::isinf(got.y[i]) && std::isfinite(want.y[i]);
      const bool fits =
          same_magnitude(got.y[i], want.y[i], t) &&
          (overflowed || (same_magnitude(got.da[i], want.da[i], t) && same_magnitude(got.db[i], want.db[i], t)));
      if (fits || ++faults > 3) continue;
      ADD_FAILURE() << name << "(" << a[i] << ", " << b[i] << ") in " << name_of(t) << " gives " << got.y[i]
                    << " and gradients " << got.da[i] << ", " << got.db[i] << ", want " << want.y[i] << ", "
                    << want.da[i] << ", " << want.db[i];
    }
  }
}
TEST(ElementwiseRange, Binary) {
#define DEFT_BINARY(Type, function) check_binary<Type>(#function);
#include "ops/binary.def"
#undef DEFT_BINARY
}

}  // namespace
}  // namespace deft::testing
