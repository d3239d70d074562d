// Every elementwise op and its gradient over the whole range of each floating type, exponent by exponent, against the
// same formula in a wider type: what overflows or vanishes on the way to a result that does neither shows here.
#include <map>

#include "range_util.h"

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

constexpr DType kFloating[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

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
  return rounded(x, t);
}

// How far a result may be off: units in the last place of the result, and of 1 times `size`, which is what the terms of
// a sum are where they cancel, or how much an exponential makes of the rounding of its argument.
struct Bound {
  double ulps = 8;
  long double (*size)(long double x, long double want) = nullptr;
  double least = 0;
};
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
  const int edge = same_edge(got, want, t);
  if (edge >= 0) return edge ? "" : "is not it";
  // Results below the normal numbers of the type they are computed in keep what the largest step leaves.
  L allowed = bound.ulps * ulp_of(computed, want) + (t == DType::f64 || t == DType::f32 ? 0 : ulp_of(f, want));
  if (bound.size) allowed += bound.ulps * std::ldexp(bound.size(x, want), 1 - computed.digits);
  allowed += bound.least + smallest_of(computed) * (std::fabs(x) < 512 ? std::fabs(x) : 512);
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

// Where a value has left the range of the type, or has no number, its gradient may, too; so may what is divided by x.
bool no_gradient(double x, double y, L value, DType t) {
  const bool divides = x != 0 && std::fabs(1 / L(x)) > largest_of(format_of(t));
  return divides || (std::isinf(y) && std::isfinite(value)) || (std::isnan(value) && !std::isnan(x));
}

template <class Op, class P>
void check_case(const std::string& name, DType t, P params, Way way) {
  std::vector<double> x = arguments(t);
  if (way == Way::compiled) {  // the same kernels, or the same formulas in others: every third
    for (size_t i = 0; 3 * i < x.size(); ++i) x[i] = x[3 * i];
    x.resize(x.size() / 3);
  }
  Faults faults{name, t};
  const Function op = [&](const std::vector<Tensor>& in) {
    return elementwise::unary(op_def<Op>, in[0], std::is_same_v<P, NoParams> ? nullptr : &params, Site::current());
  };
  const Tensor in = tensor(x).to(t);
  for (double g : {1.0, 0.375}) {
    if (way == Way::compiled && g != 1) continue;
    const Values run = run_way(way, op, {in}, {true}, full(in.sizes(), g, t), true);
    const std::vector<double>&y = run.y, &dx = run.gradients[0];
    for (size_t i = 0; i < x.size(); ++i) {
      if (left_out(name, x[i])) continue;
      const Exact exact(x[i]);
      const L value = forward_of<Op>(exact, params).v;
      faults.check("forward", y[i], value, exact.v, bound_of(kForward, name));
      if (no_gradient(x[i], y[i], value, t)) continue;
      const L want = gradient_of<Op>(Exact(g), exact, Exact(y[i]), params).v;
      faults.check("gradient", dx[i], want, exact.v, bound_of(kGradient, name));
    }
  }
}

template <class Op>
void check_unary(const std::string& name, Way way) {
  if constexpr (requires(VjpContext & c) { Op::vjp(c); }) {
    for (DType t : kFloating) {
      int number = 0;
      for (const auto& params : cases_of<Op>()) check_case<Op>(number++ ? name + " tanh" : name, t, params, way);
    }
  }
}

class ElementwiseRange : public RangeTest {};
DEFT_RANGE_WAYS(ElementwiseRange);

TEST_P(ElementwiseRange, Unary) {
#define DEFT_UNARY(Type, function) check_unary<Type>(#function, GetParam());
#include "ops/unary.def"
#undef DEFT_UNARY
}
TEST_P(ElementwiseRange, Activations) {
#define DEFT_UNARY(Type, function) check_unary<Type>(#function, GetParam());
#include "ops/activation.def"
#undef DEFT_UNARY
}

// Pairs of magnitudes, against the same op in f64, whose range has room for what overflows in the other types.
std::vector<double> magnitudes(DType t) {
  const Format f = format_of(t);
  std::vector<double> x = {0, 1, 0.3, 2.5, 17, 88, largest_of(f), largest_of(f) / 3, smallest_of(f), kInf, kNan};
  for (int e = f.least; e < f.most; e += std::max(1, f.most / 7)) x.push_back(std::ldexp(1.4375, e));
  for (size_t i = 0, n = x.size(); i + 1 < n; ++i) x.push_back(-x[i]);
  return rounded(x, t);
}
Values run_binary(const OpDef& def, const std::vector<double>& a, const std::vector<double>& b, DType t, Way way) {
  const Function op = [&](const std::vector<Tensor>& in) {
    return elementwise::binary(def, in[0], in[1], Site::current());
  };
  const Tensor x = tensor(a).to(t);
  return run_way(way, op, {x, tensor(b).to(t)}, {true, true}, ones(x.sizes(), t), true);
}
// Only what is lost altogether: digits are compared elsewhere.
bool same_magnitude(double got, double want, DType t, double least = 0) {
  const Format f = format_of(t);
  if (std::isnan(want)) return std::isnan(got);
  const double most = largest_of(f);
  if (std::fabs(want) > 0.99 * most && std::fabs(got) > 0.98 * most) return std::signbit(got) == std::signbit(want);
  if (!std::isfinite(got)) return false;
  return std::fabs(got - want) <= 0.03 * std::fabs(want) + 64 * smallest_of(f) + least;
}
// Where a gradient is made of something that the type cannot hold: a power beyond its range, a quotient next to a whole
// number, a result of few digits.
bool lost_on_the_way(const std::string& name, double a, double b, double y, DType t) {
  const Format f = format_of(t);
  if (name == "pow") {  // of b - 1, which is rounded, too
    const double digits = std::ldexp(1.0, f.digits), rounding = std::fabs((b - 1) * std::log(std::fabs(a))) / digits;
    return !(std::fabs(std::pow(a, b - 1)) < largest_of(f)) || rounding > 0.01 || (a < 0 && std::fabs(b) > digits);
  }
  if (name == "hypot") return std::fabs(y) < std::ldexp(1.0, f.least);
  if (name != "remainder" && name != "fmod") return false;
  const double q = a / b;
  return std::fabs(q - std::nearbyint(q)) <= std::ldexp(1 + std::fabs(q), -f.digits);
}
template <class Op>
void check_binary(const std::string& name, Way way) {
  if constexpr (!requires(VjpContext & c) { Op::vjp(c); }) return;
  for (DType t : {DType::f32, DType::bf16, DType::f16}) {
    std::vector<double> a, b;
    for (double u : magnitudes(t))
      for (double v : magnitudes(t)) a.push_back(u), b.push_back(v);
    const Values got = run_binary(op_def<Op>, a, b, t, way),
                 want = run_binary(op_def<Op>, a, b, DType::f64, Way::eager);
    const std::vector<double>&da = got.gradients[0], &db = got.gradients[1];
    const std::vector<double>&want_da = want.gradients[0], &want_db = want.gradients[1];
    int faults = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      // The conversion of f16 on a GPU drops the sign of NaN.
      if (way == Way::cuda && t == DType::f16 && name == "copysign" && std::isnan(b[i])) continue;
      const bool overflowed = std::isinf(got.y[i]) && std::isfinite(want.y[i]);
      const double least = name == "logaddexp" ? 1e-6 : 0;  // an exponential of a rounded difference
      const bool fits = same_magnitude(got.y[i], want.y[i], t) &&
                        (overflowed || lost_on_the_way(name, a[i], b[i], want.y[i], t) ||
                         (same_magnitude(da[i], want_da[i], t, least) && same_magnitude(db[i], want_db[i], t, least)));
      if (fits || ++faults > 3) continue;
      ADD_FAILURE() << name << "(" << a[i] << ", " << b[i] << ") in " << name_of(t) << " gives " << got.y[i]
                    << " and gradients " << da[i] << ", " << db[i] << ", want " << want.y[i] << ", " << want_da[i]
                    << ", " << want_db[i];
    }
  }
}
TEST_P(ElementwiseRange, Binary) {
#define DEFT_BINARY(Type, function) check_binary<Type>(#function, GetParam());
#include "ops/binary.def"
#undef DEFT_BINARY
}

}  // namespace
}  // namespace deft::testing
