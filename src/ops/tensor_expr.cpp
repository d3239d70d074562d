#include "ops/tensor_expr.h"

#include <cmath>

#include "ops/binary.h"
#include "ops/ternary.h"
#include "ops/unary.h"

namespace deft {

namespace {

// Numbers stay numbers until they meet a tensor.
template <class OnTensors, class OnNumbers>
TensorExpr combine(const TensorExpr& a, const TensorExpr& b, OnTensors tensors, OnNumbers numbers) {
  if (a.is_number() && b.is_number()) return TensorExpr(numbers(a.number(), b.number()));
  if (a.is_number()) return TensorExpr(tensors(Scalar(a.number()), b.tensor()));
  if (b.is_number()) return TensorExpr(tensors(a.tensor(), Scalar(b.number())));
  return TensorExpr(tensors(a.tensor(), b.tensor()));
}

}  // namespace

#define DEFT_DEFINE(op, function)                                                \
  TensorExpr operator op(const TensorExpr& a, const TensorExpr& b) {             \
    return combine(                                                              \
        a, b, [](const auto& x, const auto& y) { return deft::function(x, y); }, \
        [](double x, double y) { return static_cast<double>(x op y); });         \
  }
DEFT_DEFINE(+, add)
DEFT_DEFINE(-, sub)
DEFT_DEFINE(*, mul)
DEFT_DEFINE(/, div)
DEFT_DEFINE(<, lt)
DEFT_DEFINE(<=, le)
DEFT_DEFINE(>, gt)
DEFT_DEFINE(>=, ge)
DEFT_DEFINE(==, eq)
DEFT_DEFINE(!=, ne)
#undef DEFT_DEFINE

TensorExpr operator&(const TensorExpr& a, const TensorExpr& b) {
  return TensorExpr(logical_and(a.tensor(), b.tensor()));
}
TensorExpr operator|(const TensorExpr& a, const TensorExpr& b) {
  return TensorExpr(logical_or(a.tensor(), b.tensor()));
}
TensorExpr operator!(const TensorExpr& a) { return TensorExpr(logical_not(a.tensor())); }
TensorExpr operator-(const TensorExpr& a) {
  return a.is_number() ? TensorExpr(-a.number()) : TensorExpr(neg(a.tensor()));
}

TensorExpr select(const TensorExpr& condition, const TensorExpr& a, const TensorExpr& b) {
  if (condition.is_number()) return condition.number() != 0 ? a : b;
  auto value = [](const TensorExpr& e) { return e.is_number() ? wrap_number(e.number()) : e.tensor(); };
  return TensorExpr(where(condition.tensor(), value(a), value(b)));
}

#define DEFT_DEFINE(name, on_number)                                                               \
  TensorExpr name(const TensorExpr& x) {                                                           \
    return x.is_number() ? TensorExpr(on_number(x.number())) : TensorExpr(deft::name(x.tensor())); \
  }
DEFT_DEFINE(exp, math::exp)
DEFT_DEFINE(expm1, math::expm1)
DEFT_DEFINE(exp2, math::exp2)
DEFT_DEFINE(log, math::log)
DEFT_DEFINE(log1p, math::log1p)
DEFT_DEFINE(log2, math::log2)
DEFT_DEFINE(log10, math::log10)
DEFT_DEFINE(sqrt, math::sqrt)
DEFT_DEFINE(rsqrt, math::rsqrt)
DEFT_DEFINE(reciprocal, math::reciprocal)
DEFT_DEFINE(abs, math::abs)
DEFT_DEFINE(sign, math::sign)
DEFT_DEFINE(sin, math::sin)
DEFT_DEFINE(cos, math::cos)
DEFT_DEFINE(tan, math::tan)
DEFT_DEFINE(sinh, math::sinh)
DEFT_DEFINE(cosh, math::cosh)
DEFT_DEFINE(tanh, math::tanh)
DEFT_DEFINE(sigmoid, math::sigmoid)
DEFT_DEFINE(erf, math::erf)
DEFT_DEFINE(floor, math::floor)
DEFT_DEFINE(ceil, math::ceil)
DEFT_DEFINE(trunc, math::trunc)
DEFT_DEFINE(round, math::round)
DEFT_DEFINE(isnan, math::isnan)
#undef DEFT_DEFINE

TensorExpr max(const TensorExpr& a, const TensorExpr& b) {
  return combine(
      a, b, [](const auto& x, const auto& y) { return maximum(x, y); },
      [](double x, double y) { return math::max(x, y); });
}
TensorExpr min(const TensorExpr& a, const TensorExpr& b) {
  return combine(
      a, b, [](const auto& x, const auto& y) { return minimum(x, y); },
      [](double x, double y) { return math::min(x, y); });
}
TensorExpr pow(const TensorExpr& a, const TensorExpr& b) {
  if (b.is_number() && b.number() == 1) return a;
  return combine(
      a, b, [](const auto& x, const auto& y) { return deft::pow(x, y); },
      [](double x, double y) { return std::pow(x, y); });
}
TensorExpr floor_divide(const TensorExpr& a, const TensorExpr& b) {
  auto value = [](const TensorExpr& e) { return e.is_number() ? wrap_number(e.number()) : e.tensor().detach(); };
  return TensorExpr(deft::floor_divide(value(a), value(b)));
}
TensorExpr fma(const TensorExpr& a, const TensorExpr& b, const TensorExpr& c) { return a * b + c; }

}  // namespace deft
