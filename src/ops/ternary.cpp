#include "ops/ternary.h"

#include "base/check.h"
#include "ops/binary.h"
#include "ops/operand.h"

namespace deft {

void Where::vjp(VjpContext& c) {
  Tensor condition = c.saved_input(0);
  if (c.needs(1)) c.grad_in(1) = where(condition, c.grad(), 0);
  if (c.needs(2)) c.grad_in(2) = where(condition, 0, c.grad());
}

void Lerp::vjp(VjpContext& c) {
  const Tensor& g = c.grad();
  if (c.needs(0)) {
    Tensor w = c.saved_input(2);
    c.grad_in(0) = w.meta().wrapped_number ? g * (1 - w.item()) : g * (1 - w);  // a number stays one
  }
  if (c.needs(1)) c.grad_in(1) = g * c.saved_input(2);
  if (c.needs(2)) c.grad_in(2) = g * (c.saved_input(1) - c.saved_input(0));
}

void Addcmul::vjp(VjpContext& c) {
  const Tensor& g = c.grad();
  double value = c.params<Addcmul>().value;
  if (c.needs(0)) c.grad_in(0) = g;
  if (c.needs(1)) c.grad_in(1) = g * c.saved_input(2) * value;
  if (c.needs(2)) c.grad_in(2) = g * c.saved_input(1) * value;
}

void Addcdiv::vjp(VjpContext& c) {
  const Tensor& g = c.grad();
  double value = c.params<Addcdiv>().value;
  if (c.needs(0)) c.grad_in(0) = g;
  if (c.needs(1)) c.grad_in(1) = g * value / c.saved_input(2);
  if (c.needs(2)) {
    Tensor b = c.saved_input(2);
    c.grad_in(2) = -g * (c.saved_input(1) * value / b / b);  // b * b leaves the range of the type
  }
}

namespace {
// Gradient of the larger (or smaller) of x and one bound: equal ones share it, incomparable ones both get all of it.
void bound_vjp(VjpContext& c, int bound, const Tensor& x_is_out, const Tensor& x_is_in) {
  Tensor shared = where(c.saved_input(0) == c.saved_input(bound), c.grad() * 0.5, c.grad());
  if (c.needs(0)) c.grad_in(0) = where(x_is_out, 0, shared);
  if (c.needs(bound)) c.grad_in(bound) = where(x_is_in, 0, shared);
}
}  // namespace
void ClampTensor::vjp(VjpContext& c) {
  Tensor x = c.saved_input(0), low = c.saved_input(1), high = c.saved_input(2);
  // A bound that is missing is a number.
  if (high.meta().wrapped_number) return bound_vjp(c, 1, x<low, x> low);
  if (low.meta().wrapped_number) return bound_vjp(c, 2, x > high, x < high);
  Tensor apart = low < high, at_low = logical_and(x == low, apart), at_high = logical_and(x == high, apart);
  Tensor shared = where(logical_or(at_low, at_high), c.grad() * 0.5, c.grad()), in_order = low <= high;
  if (c.needs(0)) c.grad_in(0) = where(logical_or(x<low, x> high), 0, shared);
  if (c.needs(1)) c.grad_in(1) = where(logical_or(logical_and(x < low, in_order), at_low), shared, 0);
  if (c.needs(2)) {
    Tensor above = logical_or(logical_and(x > high, in_order), high < low);
    c.grad_in(2) = where(logical_or(above, at_high), shared, 0);
  }
}

namespace {
// A number next to a tensor must fit into the type both are brought to.
Tensor number_beside(const Tensor& other, Scalar value) {
  Tensor number = wrap_number(value);
  if (!other.defined()) return number;
  const Meta* metas[] = {&other.meta(), &number.meta()};
  check_fits(value, elementwise::common_type(metas, 2, ResultType::same), "where");
  return number;
}
}  // namespace
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b, Site site) {
  return elementwise::ternary(op_def<Where>, condition, a, b, nullptr, site);
}
Tensor where(const Tensor& condition, const Tensor& a, Scalar b, Site site) {
  return where(condition, a, number_beside(a, b), site);
}
Tensor where(const Tensor& condition, Scalar a, const Tensor& b, Site site) {
  return where(condition, number_beside(b, a), b, site);
}
Tensor where(const Tensor& condition, Scalar a, Scalar b, Site site) {
  return where(condition, wrap_number(a), wrap_number(b), site);
}

namespace {
void check_lerp(const Tensor& start) {
  DEFT_CHECK(!start.defined() || is_floating(start.dtype()), DTypeError, "lerp: does not take {}; convert it with to()",
             name_of(start.dtype()));
}
}  // namespace
Tensor lerp(const Tensor& start, const Tensor& end, const Tensor& weight, Site site) {
  check_lerp(start);
  return elementwise::ternary(op_def<Lerp>, start, end, weight, nullptr, site);
}
Tensor lerp(const Tensor& start, const Tensor& end, double weight, Site site) {
  return lerp(start, end, wrap_number(weight), site);
}
Tensor& lerp_(Tensor& start, const Tensor& end, const Tensor& weight, Site site) {
  check_lerp(start);
  return elementwise::ternary_inplace(op_def<Lerp>, start, end, weight, nullptr, site);
}
Tensor& lerp_(Tensor& start, const Tensor& end, double weight, Site site) {
  return lerp_(start, end, wrap_number(weight), site);
}
Tensor& Tensor::lerp_(const Tensor& end, double weight, Site site) { return deft::lerp_(*this, end, weight, site); }

Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, double value, Site site) {
  Addcmul::Params p{value};
  return elementwise::ternary(op_def<Addcmul>, x, a, b, &p, site);
}
Tensor& addcmul_(Tensor& x, const Tensor& a, const Tensor& b, double value, Site site) {
  Addcmul::Params p{value};
  return elementwise::ternary_inplace(op_def<Addcmul>, x, a, b, &p, site);
}
Tensor& Tensor::addcmul_(const Tensor& a, const Tensor& b, double value, Site site) {
  return deft::addcmul_(*this, a, b, value, site);
}
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, double value, Site site) {
  Addcdiv::Params p{value};
  return elementwise::ternary(op_def<Addcdiv>, x, a, b, &p, site);
}
Tensor& addcdiv_(Tensor& x, const Tensor& a, const Tensor& b, double value, Site site) {
  Addcdiv::Params p{value};
  return elementwise::ternary_inplace(op_def<Addcdiv>, x, a, b, &p, site);
}

namespace {

// The number that bounds nothing, in the type the op will compute in.
Tensor no_bound(const Tensor& x, const Tensor& other, bool high) {
  DEFT_CHECK(other.defined(), ValueError, "clamp: found neither min nor max; give at least one of them");
  detail::check_defined(x, "clamp");
  return dispatch_all(result_type(x.meta(), other.meta()), [&]<class T>() {
    if constexpr (std::is_integral_v<T>) {
      using Limits = std::numeric_limits<T>;
      return wrap_number(high ? Limits::max() : Limits::min(), x.device());
    } else {
      double infinity = std::numeric_limits<double>::infinity();
      return wrap_number(high ? infinity : -infinity, x.device());
    }
  });
}

}  // namespace

Tensor clamp(const Tensor& x, const Tensor& min, const Tensor& max, Site site) {
  return elementwise::ternary(op_def<ClampTensor>, x, min.defined() ? min : no_bound(x, max, false),
                              max.defined() ? max : no_bound(x, min, true), nullptr, site);
}
Tensor& clamp_(Tensor& x, const Tensor& min, const Tensor& max, Site site) {
  return elementwise::ternary_inplace(op_def<ClampTensor>, x, min.defined() ? min : no_bound(x, max, false),
                                      max.defined() ? max : no_bound(x, min, true), nullptr, site);
}

}  // namespace deft
