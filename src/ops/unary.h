// Elementwise ops of one tensor. Adding one: a struct here, a line in unary.def, nothing else.
#pragma once

#include "ops/activation.h"
#include "ops/unary_op.h"

namespace deft {

namespace domains {
inline constexpr Domain kUnit{.low = -0.95, .high = 0.95};
inline constexpr Domain kPositive{.low = 0.1, .high = 4};
inline constexpr Domain kAboveOne{.low = 1.1, .high = 4};
inline constexpr Domain kAboveMinusOne{.low = -0.9, .high = 4};
inline constexpr Domain kAwayFromPole{.low = -1.4, .high = 1.4};
inline constexpr Domain kWholeSteps{.low = -4, .high = 4, .away_from = 0, .period = 1};
inline constexpr Domain kHalfSteps{.low = -4, .high = 4, .away_from = 0.5, .period = 1};
}  // namespace domains

// ---- Integers stay integers; overflow wraps.
struct Neg {
  static constexpr OpInfo info = unary_info("neg", kNumbers, 0, {"Neg", 13});
  static constexpr ResultType result = ResultType::same;
  static constexpr Domain domain = domains::kReal;
  template <class V>
  DEFT_HD static V fwd(V x) {
    if constexpr (std::is_integral_v<V>) {
      return math::wrapping_sub(V(0), x);
    } else {
      return -x;
    }
  }
  DEFT_UNARY_GRADIENT(Neg, -g)
};
struct Square {
  static constexpr OpInfo info = unary_info("square", kNumbers, input(0));
  static constexpr ResultType result = ResultType::same;
  static constexpr Domain domain = domains::kReal;
  template <class V>
  DEFT_HD static V fwd(V x) {
    if constexpr (std::is_integral_v<V>) {
      return math::wrapping_mul(x, x);
    } else {
      return x * x;
    }
  }
  DEFT_UNARY_GRADIENT(Square, g* x* V(2))
};
DEFT_UNARY_SAME(Abs, unary_info("abs", kNumbers, input(0), {"Abs", 13}), domains::kAwayFromZero, abs(x),
                select(x > V(0), g, select(x < V(0), -g, g* V(0))))
// NaN gives 0, as in PyTorch.
struct Sign {
  static constexpr OpInfo info = unary_info("sign", kAllTypes, 0, {"Sign", 13});
  static constexpr ResultType result = ResultType::same;
  static constexpr Domain domain = domains::kAwayFromZero;
  template <class V>
  DEFT_HD static V fwd(V x) {
    using namespace math;
    if constexpr (std::is_same_v<V, bool>) {
      return x;
    } else {
      return select(x > V(0), V(1), select(x < V(0), V(-1), V(0)));
    }
  }
  DEFT_UNARY_GRADIENT(Sign, V(0))
};
DEFT_UNARY_SAME(Floor, unary_info("floor", kNumbers, 0, {"Floor", 13}), domains::kWholeSteps, floor(x), V(0))
DEFT_UNARY_SAME(Ceil, unary_info("ceil", kNumbers, 0, {"Ceil", 13}), domains::kWholeSteps, ceil(x), V(0))
DEFT_UNARY_SAME(Trunc, unary_info("trunc", kNumbers, 0), domains::kWholeSteps, trunc(x), V(0))
// Half to even.
DEFT_UNARY_SAME(Round, unary_info("round", kNumbers, 0, {"Round", 11}), domains::kHalfSteps, round(x), V(0))
DEFT_UNARY_SAME(Frac, unary_info("frac", kFloats, 0), domains::kWholeSteps, x - trunc(x), g)

// ---- Exponentials, logarithms, roots
DEFT_UNARY_FLOATING(Exp, unary_info("exp", kAllTypes, output(), {"Exp", 13}, Autocast::fp32), domains::kReal, exp(x),
                    g* y)
DEFT_UNARY_FLOATING(Exp2, unary_info("exp2", kAllTypes, output(), {}, Autocast::fp32), domains::kReal, exp2(x),
                    g*(y* V(0.69314718055994530942)))
DEFT_UNARY_FLOATING(Expm1, unary_info("expm1", kAllTypes, output(), {}, Autocast::fp32), domains::kReal, expm1(x),
                    g*(y + V(1)))
DEFT_UNARY_FLOATING(Log, unary_info("log", kAllTypes, input(0), {"Log", 13}, Autocast::fp32), domains::kPositive,
                    log(x), g / x)
DEFT_UNARY_FLOATING(Log2, unary_info("log2", kAllTypes, input(0), {}, Autocast::fp32), domains::kPositive, log2(x),
                    g / x * V(1.44269504088896340736))
DEFT_UNARY_FLOATING(Log10, unary_info("log10", kAllTypes, input(0), {}, Autocast::fp32), domains::kPositive, log10(x),
                    g* V(0.43429448190325182765) / x)
DEFT_UNARY_FLOATING(Log1p, unary_info("log1p", kAllTypes, input(0), {}, Autocast::fp32), domains::kAboveMinusOne,
                    log1p(x), g / (x + V(1)))
DEFT_UNARY_FLOATING(Sqrt, unary_info("sqrt", kAllTypes, output(), {"Sqrt", 13}), domains::kPositive, sqrt(x),
                    g / (y + y))
DEFT_UNARY_FLOATING(Rsqrt, unary_info("rsqrt", kAllTypes, output(), {}, Autocast::fp32), domains::kPositive, rsqrt(x),
                    V(-0.5) * g * y * y * y)
DEFT_UNARY_FLOATING(Reciprocal, unary_info("reciprocal", kAllTypes, output(), {"Reciprocal", 13}, Autocast::fp32),
                    domains::kPositive, reciprocal(x), -g* y* y)

// ---- Trigonometry. Gradients keep their digits next to 1 and do not square what is large.
namespace detail {
inline constexpr double kSquareFar = 1e10;  // one and the square of this are the square
}
DEFT_UNARY_FLOATING(Sin, unary_info("sin", kAllTypes, input(0), {"Sin", 7}), domains::kReal, sin(x), g* cos(x))
DEFT_UNARY_FLOATING(Cos, unary_info("cos", kAllTypes, input(0), {"Cos", 7}), domains::kReal, cos(x), -g* sin(x))
DEFT_UNARY_FLOATING(Tan, unary_info("tan", kAllTypes, output(), {"Tan", 7}, Autocast::fp32), domains::kAwayFromPole,
                    tan(x), g*(V(1) + y * y))
DEFT_UNARY_FLOATING(Asin, unary_info("asin", kAllTypes, input(0), {"Asin", 7}, Autocast::fp32), domains::kUnit, asin(x),
                    g* rsqrt((V(1) - x) * (V(1) + x)))
DEFT_UNARY_FLOATING(Acos, unary_info("acos", kAllTypes, input(0), {"Acos", 7}, Autocast::fp32), domains::kUnit, acos(x),
                    -g* rsqrt((V(1) - x) * (V(1) + x)))
DEFT_UNARY_FLOATING(Atan, unary_info("atan", kAllTypes, input(0), {"Atan", 7}), domains::kReal, atan(x),
                    select(abs(x) > V(detail::kSquareFar), g / x / x, g / (x * x + V(1))))
DEFT_UNARY_FLOATING(Sinh, unary_info("sinh", kAllTypes, input(0), {"Sinh", 9}, Autocast::fp32), domains::kReal, sinh(x),
                    g* cosh(x))
DEFT_UNARY_FLOATING(Cosh, unary_info("cosh", kAllTypes, input(0), {"Cosh", 9}, Autocast::fp32), domains::kReal, cosh(x),
                    g* sinh(x))
DEFT_UNARY_FLOATING(Tanh, unary_info("tanh", kAllTypes, output(), {"Tanh", 13}), domains::kReal, tanh(x),
                    g*(V(1) - y * y))
DEFT_UNARY_FLOATING(Asinh, unary_info("asinh", kAllTypes, input(0), {"Asinh", 9}), domains::kReal, asinh(x),
                    g* select(abs(x) > V(detail::kSquareFar), reciprocal(abs(x)), rsqrt(x* x + V(1))))
DEFT_UNARY_FLOATING(Acosh, unary_info("acosh", kAllTypes, input(0), {"Acosh", 9}), domains::kAboveOne, acosh(x),
                    g* rsqrt(abs(x) - V(1)) * rsqrt(abs(x) + V(1)))
DEFT_UNARY_FLOATING(Atanh, unary_info("atanh", kAllTypes, input(0), {"Atanh", 9}), domains::kUnit, atanh(x),
                    g / ((V(1) - x) * (V(1) + x)))

// ---- Error function
DEFT_UNARY_FLOATING(Erf, unary_info("erf", kAllTypes, input(0), {"Erf", 13}), domains::kReal, erf(x),
                    V(1.12837916709551257390) * exp(-x * x) * g)
DEFT_UNARY_FLOATING(Erfc, unary_info("erfc", kAllTypes, input(0)), domains::kReal, erfc(x),
                    V(-1.12837916709551257390) * exp(-x * x) * g)
struct Erfinv {
  static constexpr OpInfo info = unary_info("erfinv", kAllTypes, output(), {}, Autocast::fp32);
  static constexpr ResultType result = ResultType::floating;
  static constexpr Domain domain = domains::kUnit;
  // Giles' two polynomials in w = -log(1 - x^2) (good to f32), then Newton steps on erf for f64. Near +-1 the steps
  // work on erfc, which keeps its digits there.
  template <class V>
  DEFT_HD static V fwd(V x) {
    using namespace math;
    V a = abs(x), w = -log((V(1) - a) * (V(1) + a));
    V c = w - V(2.5), t = sqrt(select(w > V(5), w, V(5))) - V(3);
    V center = V(2.81022636e-08), tail = V(-0.000200214257);
    constexpr double kCenter[] = {3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
                                  -0.00125372503, -0.00417768164, 0.246640727,     1.50140941};
    constexpr double kTail[] = {0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
                                -0.0076224613,  0.00943887047, 1.00167406,     2.83297682};
    for (int i = 0; i < 8; ++i) {
      center = center * c + V(kCenter[i]);
      tail = tail * t + V(kTail[i]);
    }
    V y = select(w > V(5), tail, center) * a;
    for (int i = 0; i < 2; ++i) {
      V miss = select(a > V(0.5), (V(1) - a) - erfc(y), erf(y) - a);
      y = y - miss * V(0.88622692545275801365) * exp(y * y);
    }
    y = select(a == V(1), V(std::numeric_limits<double>::infinity()), y);
    return select(x < V(0), -y, y);
  }
  DEFT_UNARY_GRADIENT(Erfinv, V(0.88622692545275801365) * exp(y * y) * g)
};

// ---- Tests of a value
DEFT_UNARY_BOOLEAN(IsNan, unary_info("isnan", kAllTypes, 0, {"IsNaN", 13}), isnan(x))
DEFT_UNARY_BOOLEAN(IsInf, unary_info("isinf", kAllTypes, 0, {"IsInf", 10}), isinf(x))
DEFT_UNARY_BOOLEAN(IsFinite, unary_info("isfinite", kAllTypes, 0), isfinite(x))
DEFT_UNARY_BOOLEAN(LogicalNot, unary_info("logical_not", kAllTypes, 0, {"Not", 1}), x == V(0))
struct BitwiseNot {
  static constexpr OpInfo info = unary_info("bitwise_not", kIntegers | kBool, 0, {"BitwiseNot", 18});
  static constexpr ResultType result = ResultType::same;
  static constexpr const char* not_differentiable = "it works on the bits of integers";
  template <class V>
  DEFT_HD static V fwd(V x) {
    if constexpr (std::is_same_v<V, bool>) {
      return !x;
    } else {
      return static_cast<V>(~x);
    }
  }
};

// min(max(x, low), high); NaN stays NaN, and where low > high the result is high. At a bound the gradient is 0; a bound
// that is infinite is none.
struct Clamp {
  struct Params {
    double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
    int64_t integer_low = INT64_MIN, integer_high = INT64_MAX;  // the same for integers, exact
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info = unary_info("clamp", kNumbers, input(0), {"Clip", 13});
  static constexpr ResultType result = ResultType::same;
  static constexpr Domain domain{.low = -2, .high = 2, .away_from = 0.5, .period = 1};
  template <class V>
  DEFT_HD static V fwd(V x, const Params& p) {
    using namespace math;
    if constexpr (std::is_integral_v<V>) {
      auto v = static_cast<int64_t>(x);
      return static_cast<V>(min(max(v, p.integer_low), p.integer_high));
    } else {
      return min(max(x, V(p.low)), V(p.high));
    }
  }
  template <class V>
  DEFT_HD static V grad(V g, V x, V, const Params& p) {
    using namespace math;
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (p.low != -kInfinity) g = select(x > V(p.low), g, V(0));
    return p.high != kInfinity ? select(x < V(p.high), g, V(0)) : g;
  }
  static void vjp(VjpContext& c) { detail::unary_vjp<Clamp>(c); }
};

enum class UnaryRow : uint16_t {
#define DEFT_UNARY(Type, function) Type,
#include "ops/unary.def"
#undef DEFT_UNARY
  count
};
enum class ActivationRow : uint16_t {
#define DEFT_UNARY(Type, function) Type,
#include "ops/activation.def"
#undef DEFT_UNARY
  count
};

#define DEFT_DEFINE(Type, function, family, Row)                                                  \
  inline constexpr ElementwiseDef elementwise_##function{.row = static_cast<uint16_t>(Row::Type), \
                                                         .result = Type::result,                  \
                                                         .table = &family##_table,                \
                                                         .grad_table = &family##_grad_table,      \
                                                         .cuda = &family##_cuda};                 \
  template <>                                                                                     \
  inline constexpr OpDef op_def<Type> = elementwise::make_def<Type>(&elementwise_##function);
#define DEFT_UNARY(Type, function) DEFT_DEFINE(Type, function, unary, UnaryRow)
#include "ops/unary.def"
#undef DEFT_UNARY
#define DEFT_UNARY(Type, function) DEFT_DEFINE(Type, function, activation, ActivationRow)
#include "ops/activation.def"
#undef DEFT_UNARY
#undef DEFT_DEFINE

// The functions: Tensor tanh(const Tensor&), Tensor& tanh_(Tensor&). Those with parameters are in ops/activation.h.
#define DEFT_UNARY(Type, function)                               \
  Tensor function(const Tensor& x, Site site = Site::current()); \
  Tensor& function##_(Tensor& x, Site site = Site::current());
#define DEFT_UNARY_P(Type, function)
#include "ops/unary.def"
#define DEFT_UNARY_P(Type, function)
#include "ops/activation.def"
#undef DEFT_UNARY

// A missing bound does not bound. Bounds that are floats make a float of an integer tensor.
Tensor clamp(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max = {}, Site site = Site::current());
Tensor& clamp_(Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max = {}, Site site = Site::current());
Tensor clamp_min(const Tensor& x, Scalar min, Site site = Site::current());
Tensor clamp_min(const Tensor& x, const Tensor& min, Site site = Site::current());
Tensor clamp_max(const Tensor& x, Scalar max, Site site = Site::current());
Tensor clamp_max(const Tensor& x, const Tensor& max, Site site = Site::current());
Tensor& clamp_min_(Tensor& x, Scalar min, Site site = Site::current());
Tensor& clamp_max_(Tensor& x, Scalar max, Site site = Site::current());
// NaN and infinities replaced; a missing replacement of an infinity is the type's largest or lowest number.
Tensor nan_to_num(const Tensor& x, double nan = 0, std::optional<double> posinf = {}, std::optional<double> neginf = {},
                  Site site = Site::current());
Tensor& nan_to_num_(Tensor& x, double nan = 0, std::optional<double> posinf = {}, std::optional<double> neginf = {},
                    Site site = Site::current());

}  // namespace deft
