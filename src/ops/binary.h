// Elementwise ops of two tensors. Adding one: a struct here, a line in binary.def, nothing else.
//
// fwd(a, b) is the kernel; grad_a(g, a, b, y) and grad_b(g, a, b, y) run on tensors. The engine sums broadcast
// dimensions away; formulas need not care.
#pragma once

#include "ops/elementwise.h"
#include "ops/tensor_expr.h"

namespace deft {

namespace detail {
template <class Op>
void binary_vjp(VjpContext& c);
// Integers that are divided by 0: ValueError. Only in kernels of the CPU that run this op alone; elsewhere the result
// is 0.
void check_divisor(const KernelCall& c);
}  // namespace detail

// Inside formulas the names of deft::math are in scope; other value types bring theirs.
#define DEFT_BINARY_FORWARD(formula)  \
  template <class V>                  \
  DEFT_HD static auto fwd(V a, V b) { \
    using namespace math;             \
    return formula;                   \
  }
// Integers by the first formula (overflow wraps), floats by the second.
#define DEFT_BINARY_FORWARD2(on_integers, on_floats) \
  template <class V>                                 \
  DEFT_HD static V fwd(V a, V b) {                   \
    using namespace math;                            \
    if constexpr (std::is_integral_v<V>) {           \
      return on_integers;                            \
    } else {                                         \
      return on_floats;                              \
    }                                                \
  }
#define DEFT_BINARY_GRADIENTS(Type, formula_a, formula_b)                                                            \
  using Expr = TensorExpr;                                                                                           \
  static Expr grad_a([[maybe_unused]] const Expr& g, [[maybe_unused]] const Expr& a, [[maybe_unused]] const Expr& b, \
                     [[maybe_unused]] const Expr& y) {                                                               \
    return formula_a;                                                                                                \
  }                                                                                                                  \
  static Expr grad_b([[maybe_unused]] const Expr& g, [[maybe_unused]] const Expr& a, [[maybe_unused]] const Expr& b, \
                     [[maybe_unused]] const Expr& y) {                                                               \
    return formula_b;                                                                                                \
  }                                                                                                                  \
  static void vjp(VjpContext& c) { detail::binary_vjp<Type>(c); }

// ---- Arithmetic. On bool, add is "or" and mul is "and".
struct Add {
  static constexpr OpInfo info = binary_info("add", kAllTypes, 0, 0, {"Add", 14});
  static constexpr ResultType result = ResultType::same;
  DEFT_BINARY_FORWARD2(wrapping_add(a, b), a + b)
  DEFT_BINARY_GRADIENTS(Add, g, g)
};
struct Sub {
  static constexpr OpInfo info = binary_info("sub", kNumbers, 0, 0, {"Sub", 14});
  static constexpr ResultType result = ResultType::same;
  DEFT_BINARY_FORWARD2(wrapping_sub(a, b), a - b)
  static void check_types(const Meta& a, const Meta& b);  // no bool among them
  DEFT_BINARY_GRADIENTS(Sub, g, -g)
};
struct Mul {
  static constexpr OpInfo info = binary_info("mul", kAllTypes, input(1), input(0), {"Mul", 14});
  static constexpr ResultType result = ResultType::same;
  DEFT_BINARY_FORWARD2(wrapping_mul(a, b), a* b)
  DEFT_BINARY_GRADIENTS(Mul, g* b, g* a)
};
// True division: integers give f32.
struct Div {
  static constexpr OpInfo info = binary_info("div", kAllTypes, input(1), input(0) | input(1), {"Div", 14});
  static constexpr ResultType result = ResultType::floating;
  static constexpr Domain domain_b{.low = 0.5, .high = 3};
  DEFT_BINARY_FORWARD(a / b)
  DEFT_BINARY_GRADIENTS(Div, g / b, -g*((a / b) / b))
};
// floor(a / b). An integer divided by 0: detail::check_divisor().
struct FloorDivide {
  static constexpr OpInfo info = binary_info("floor_divide", kNumbers, 0, 0);
  static constexpr ResultType result = ResultType::same;
  static constexpr Domain domain_a{.low = -7, .high = 7}, domain_b{.low = 1.1, .high = 3};
  static constexpr const char* not_differentiable = "it is a step function; use div() and floor() to get zeros";
  static void check_values(const KernelCall& c) { detail::check_divisor(c); }
  // Through the exact remainder, so that the quotient is not rounded up to the next whole number.
  template <class V>
  DEFT_HD static V fwd(V a, V b) {
    using namespace math;
    if constexpr (std::is_integral_v<V>) {
      return floor_divide(a, b);
    } else {
      V r = fmod(a, b), q = (a - r) / b;
      V lowered = select((r != V(0)) & ((b < V(0)) ^ (r < V(0))), q - V(1), q);
      V f = floor(lowered);
      f = select(lowered - f > V(0.5), f + V(1), f);
      f = select(lowered == V(0), copysign(V(0), a / b), f);
      return select(b == V(0), a / b, f);
    }
  }
};
// The rest of floor division: has the sign of b.
struct Remainder {
  static constexpr OpInfo info = binary_info("remainder", kNumbers, 0, input(0) | input(1));
  static constexpr ResultType result = ResultType::same;
  static constexpr Domain domain_a{.low = -7, .high = 7}, domain_b{.low = 1.1, .high = 3};
  static void check_values(const KernelCall& c) { detail::check_divisor(c); }
  DEFT_BINARY_FORWARD(remainder(a, b))
  DEFT_BINARY_GRADIENTS(Remainder, g, -g* floor_divide(a, b))
};
// The rest of division rounded to zero: has the sign of a.
struct Fmod {
  static constexpr OpInfo info = binary_info("fmod", kNumbers, 0, input(0) | input(1), {"Mod", 13});
  static constexpr ResultType result = ResultType::same;
  static constexpr Domain domain_a{.low = -7, .high = 7}, domain_b{.low = 1.1, .high = 3};
  static void check_values(const KernelCall& c) { detail::check_divisor(c); }
  DEFT_BINARY_FORWARD(fmod(a, b))
  DEFT_BINARY_GRADIENTS(Fmod, g, -g* trunc(a / b))
};
// Integers to a negative power are an error where the power is a number; 1 / x rounded to zero where it is a tensor.
struct Pow {
  static constexpr OpInfo info =
      binary_info("pow", kNumbers, input(0) | input(1), input(0) | input(1) | output(), {"Pow", 15}, Autocast::fp32);
  static constexpr ResultType result = ResultType::same;
  static constexpr Domain domain_a{.low = 0.6, .high = 3}, domain_b{.low = -2, .high = 2, .away_from = 0};
  DEFT_BINARY_FORWARD(pow(a, b))
  DEFT_BINARY_GRADIENTS(Pow, select(b == Expr(0), Expr(0), g* b* pow(a, b - Expr(1))),
                        g* select((a == Expr(0)) & (b >= Expr(0)), Expr(0), y* log(a)))
};

// ---- The larger and the smaller. NaN wins in maximum and minimum, the number in fmax and fmin.
// Where both are equal each gets half of the gradient.
struct Maximum {
  static constexpr OpInfo info =
      binary_info("maximum", kAllTypes, input(0) | input(1), input(0) | input(1), {"Max", 13});
  static constexpr ResultType result = ResultType::same;
  DEFT_BINARY_FORWARD(max(a, b))
  DEFT_BINARY_GRADIENTS(Maximum, select(a == b, g* Expr(0.5), select(a < b, Expr(0), g)),
                        select(a == b, g* Expr(0.5), select(b < a, Expr(0), g)))
};
struct Minimum {
  static constexpr OpInfo info =
      binary_info("minimum", kAllTypes, input(0) | input(1), input(0) | input(1), {"Min", 13});
  static constexpr ResultType result = ResultType::same;
  DEFT_BINARY_FORWARD(min(a, b))
  DEFT_BINARY_GRADIENTS(Minimum, select(a == b, g* Expr(0.5), select(a > b, Expr(0), g)),
                        select(a == b, g* Expr(0.5), select(b > a, Expr(0), g)))
};
struct Fmax {
  static constexpr OpInfo info = binary_info("fmax", kAllTypes, input(0) | input(1), input(0) | input(1));
  static constexpr ResultType result = ResultType::same;
  DEFT_BINARY_FORWARD2(max(a, b), select(isnan(a), b, select(isnan(b), a, max(a, b))))
  DEFT_BINARY_GRADIENTS(Fmax, select(a == b, g* Expr(0.5), select((a > b) | isnan(b), g, Expr(0))),
                        select(a == b, g* Expr(0.5), select((a > b) | isnan(b), Expr(0), g)))
};
struct Fmin {
  static constexpr OpInfo info = binary_info("fmin", kAllTypes, input(0) | input(1), input(0) | input(1));
  static constexpr ResultType result = ResultType::same;
  DEFT_BINARY_FORWARD2(min(a, b), select(isnan(a), b, select(isnan(b), a, min(a, b))))
  DEFT_BINARY_GRADIENTS(Fmin, select(a == b, g* Expr(0.5), select((a < b) | isnan(b), g, Expr(0))),
                        select(a == b, g* Expr(0.5), select((a < b) | isnan(b), Expr(0), g)))
};

// ---- Functions of two numbers
struct Atan2 {
  static constexpr OpInfo info = binary_info("atan2", kAllTypes, input(0) | input(1), input(0) | input(1));
  static constexpr ResultType result = ResultType::floating;
  static constexpr Domain domain_b{.low = 0.3, .high = 2};
  DEFT_BINARY_FORWARD(atan2(a, b))
  // b / (a^2 + b^2), scaled by the larger, so that squares neither overflow nor vanish. 0 at the origin, where there is
  // no derivative: a NaN there would spoil every other gradient; and 0 far out.
  static TensorExpr slope(const TensorExpr& a, const TensorExpr& b) {
    const TensorExpr size = max(abs(a), abs(b)), p = a / size, q = b / size, zero(0);
    const TensorExpr at_limit = (size == zero) | (size == TensorExpr(std::numeric_limits<double>::infinity()));
    return select(at_limit, zero, q / (p * p + q * q) / size);
  }
  DEFT_BINARY_GRADIENTS(Atan2, g* slope(a, b), -g* slope(b, a))
};
struct Hypot {
  static constexpr OpInfo info = binary_info("hypot", kFloats, input(0) | output(), input(1) | output());
  static constexpr ResultType result = ResultType::same;
  static constexpr Domain domain_b{.low = 0.3, .high = 2};
  // Scaled by the larger, so that squares neither overflow nor vanish.
  template <class V>
  DEFT_HD static V fwd(V a, V b) {
    using namespace math;
    V m = max(abs(a), abs(b)), r = min(abs(a), abs(b)) / m;
    V y = select(m == V(0), m, m * sqrt(V(1) + r * r));
    return select(isinf(a) | isinf(b), V(std::numeric_limits<double>::infinity()), y);
  }
  DEFT_BINARY_GRADIENTS(Hypot, g*(a / y), g*(b / y))
};
// a log(b), and 0 where a is 0, unless b is NaN.
struct Xlogy {
  static constexpr OpInfo info = binary_info("xlogy", kAllTypes, input(0) | input(1), input(0) | input(1));
  static constexpr ResultType result = ResultType::floating;
  static constexpr Domain domain_a{.away_from = 0}, domain_b{.low = 0.3, .high = 3};
  DEFT_BINARY_FORWARD(select(isnan(b), b, select(a == V(0), V(0), a* log(b))))
  // As in PyTorch: a masked gradient (g = 0) stays 0 at b = 0 in the first one, where g log(b) would be NaN.
  DEFT_BINARY_GRADIENTS(Xlogy,
                        select((a == Expr(0)) & (b <= Expr(0)), Expr(0),
                               select((g == Expr(0)) & (b == b), Expr(0), g* log(b))),
                        g* a / b)
};
// log(exp(a) + exp(b)) without overflow.
struct Logaddexp {
  static constexpr OpInfo info = binary_info("logaddexp", kFloats, input(0) | input(1), input(0) | input(1));
  static constexpr ResultType result = ResultType::same;
  DEFT_BINARY_FORWARD(select((a == b) & isinf(a), a, max(a, b) + log1p(exp(-abs(a - b)))))
  // Not exp(a - y): y may be infinite like a.
  DEFT_BINARY_GRADIENTS(Logaddexp, g* sigmoid(a - b), g* sigmoid(b - a))
};
// |a| with the sign of b.
struct Copysign {
  static constexpr OpInfo info = binary_info("copysign", kAllTypes, input(0) | output(), 0);
  static constexpr ResultType result = ResultType::floating;
  static constexpr Domain domain_a{.away_from = 0}, domain_b{.away_from = 0};
  DEFT_BINARY_FORWARD(copysign(a, b))
  DEFT_BINARY_GRADIENTS(Copysign, select(a == Expr(0), Expr(0), g*(y / a)), Expr(0))
};

// ---- Comparisons and logic: the result is bool
#define DEFT_BINARY_BOOLEAN(Type, info_, formula)                             \
  struct Type {                                                               \
    static constexpr OpInfo info = info_;                                     \
    static constexpr ResultType result = ResultType::boolean;                 \
    static constexpr const char* not_differentiable = "its result is a bool"; \
    DEFT_BINARY_FORWARD(formula)                                              \
  };
DEFT_BINARY_BOOLEAN(Eq, binary_info("eq", kAllTypes, 0, 0, {"Equal", 13}), a == b)
DEFT_BINARY_BOOLEAN(Ne, binary_info("ne", kAllTypes, 0, 0), a != b)
DEFT_BINARY_BOOLEAN(Lt, binary_info("lt", kAllTypes, 0, 0, {"Less", 13}), a < b)
DEFT_BINARY_BOOLEAN(Le, binary_info("le", kAllTypes, 0, 0, {"LessOrEqual", 16}), a <= b)
DEFT_BINARY_BOOLEAN(Gt, binary_info("gt", kAllTypes, 0, 0, {"Greater", 13}), a > b)
DEFT_BINARY_BOOLEAN(Ge, binary_info("ge", kAllTypes, 0, 0, {"GreaterOrEqual", 16}), a >= b)
DEFT_BINARY_BOOLEAN(LogicalAnd, binary_info("logical_and", kAllTypes, 0, 0, {"And", 7}), (a != V(0)) && (b != V(0)))
DEFT_BINARY_BOOLEAN(LogicalOr, binary_info("logical_or", kAllTypes, 0, 0, {"Or", 7}), (a != V(0)) || (b != V(0)))
DEFT_BINARY_BOOLEAN(LogicalXor, binary_info("logical_xor", kAllTypes, 0, 0, {"Xor", 7}),
                    ((a != V(0)) && (b == V(0))) || ((a == V(0)) && (b != V(0))))
#undef DEFT_BINARY_BOOLEAN

// ---- Bits of integers and bools
#define DEFT_BINARY_BITS(Type, info_, formula)                                             \
  struct Type {                                                                            \
    static constexpr OpInfo info = info_;                                                  \
    static constexpr ResultType result = ResultType::same;                                 \
    static constexpr const char* not_differentiable = "it works on the bits of integers";  \
    static constexpr Domain domain_a{.low = -9, .high = 9}, domain_b{.low = 0, .high = 4}; \
    template <class V>                                                                     \
    DEFT_HD static V fwd(V a, V b) {                                                       \
      return static_cast<V>(formula);                                                      \
    }                                                                                      \
  };
DEFT_BINARY_BITS(BitwiseAnd, binary_info("bitwise_and", kIntegers | kBool, 0, 0, {"BitwiseAnd", 18}), a& b)
DEFT_BINARY_BITS(BitwiseOr, binary_info("bitwise_or", kIntegers | kBool, 0, 0, {"BitwiseOr", 18}), a | b)
DEFT_BINARY_BITS(BitwiseXor, binary_info("bitwise_xor", kIntegers | kBool, 0, 0, {"BitwiseXor", 18}), a ^ b)
// Shifts by a negative count or by at least the width give 0 (or -1, shifting a negative number right).
DEFT_BINARY_BITS(LeftShift, binary_info("bitwise_left_shift", kIntegers, 0, 0),
                 math::is_negative(b) || b >= V(sizeof(V) * 8) ? 0ull : static_cast<unsigned long long>(a) << b)
DEFT_BINARY_BITS(RightShift, binary_info("bitwise_right_shift", kIntegers, 0, 0),
                 math::is_negative(b) || b >= V(sizeof(V) * 8) ? (math::is_negative(a) ? V(-1) : V(0)) : a >> b)
#undef DEFT_BINARY_BITS

enum class BinaryRow : uint16_t {
#define DEFT_BINARY(Type, function) Type,
#include "ops/binary.def"
#undef DEFT_BINARY
  count
};

#define DEFT_BINARY(Type, function)                                                                     \
  inline constexpr ElementwiseDef elementwise_##function{.row = static_cast<uint16_t>(BinaryRow::Type), \
                                                         .result = Type::result,                        \
                                                         .table = &binary_table,                        \
                                                         .cuda = &binary_cuda};                         \
  template <>                                                                                           \
  inline constexpr OpDef op_def<Type> = elementwise::make_def<Type>(&elementwise_##function);
#include "ops/binary.def"
#undef DEFT_BINARY

// |a - b| <= atol + rtol |b|; infinities are close to themselves, and NaN to NaN only with equal_nan.
Tensor isclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false,
               Site site = Site::current());
// These wait for the device. equal: same shape and values.
bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false,
              Site site = Site::current());
bool equal(const Tensor& a, const Tensor& b, Site site = Site::current());

// The functions: Tensor add(a, b), with a number on either side, and Tensor& add_(a, b).
#define DEFT_BINARY(Type, function)                                               \
  Tensor function(const Tensor& a, const Tensor& b, Site site = Site::current()); \
  Tensor function(const Tensor& a, Scalar b, Site site = Site::current());        \
  Tensor function(Scalar a, const Tensor& b, Site site = Site::current());        \
  Tensor& function##_(Tensor& a, const Tensor& b, Site site = Site::current());   \
  Tensor& function##_(Tensor& a, Scalar b, Site site = Site::current());
#include "ops/binary.def"
#undef DEFT_BINARY

}  // namespace deft
