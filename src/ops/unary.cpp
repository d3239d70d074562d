#include "ops/unary.h"

#include "base/check.h"
#include "ops/creation.h"

namespace deft {

namespace detail {

namespace {

template <class Op>
TensorExpr gradient(const TensorExpr& g, const TensorExpr& x, const TensorExpr& y, VjpContext& c) {
  if constexpr (requires { typename Op::Params; }) {
    return Op::grad(g, x, y, c.params<Op>());
  } else {
    return Op::grad(g, x, y);
  }
}

}  // namespace

template <class Op>
void unary_vjp(VjpContext& c) {
  if constexpr (requires { Op::vjp(c); }) {
    if (!c.create_graph) {
      const void* params = nullptr;
      if constexpr (requires { typename Op::Params; }) params = &c.params<Op>();
      return elementwise::unary_vjp_fused(c, *op_def<Op>.elementwise, params);
    }
    constexpr uint16_t uses = Op::info.uses[0];
    TensorExpr x = uses & input(0) ? TensorExpr(c.saved_input(0)) : TensorExpr(0);
    TensorExpr y = uses & output(0) ? TensorExpr(c.saved_output(0)) : TensorExpr(0);
    TensorExpr r = gradient<Op>(TensorExpr(c.grad()), x, y, c);
    c.grad_in(0) = r.is_number() ? full_like(c.grad(), r.number()) : r.tensor();
  }
}
#define DEFT_UNARY(Type, function) template void unary_vjp<Type>(VjpContext&);
#include "ops/activation.def"
#include "ops/unary.def"
#undef DEFT_UNARY

}  // namespace detail

#define DEFT_UNARY(Type, function)                                                                           \
  Tensor function(const Tensor& x, Site site) { return elementwise::unary(op_def<Type>, x, nullptr, site); } \
  Tensor& function##_(Tensor& x, Site site) { return elementwise::unary_inplace(op_def<Type>, x, nullptr, site); }
#define DEFT_UNARY_P(Type, function)
#include "ops/unary.def"
#define DEFT_UNARY_P(Type, function)
#include "ops/activation.def"
#undef DEFT_UNARY

// ---- With parameters
namespace {
template <class Op>
Tensor with(const Tensor& x, typename Op::Params p, const Site& site) {
  return elementwise::unary(op_def<Op>, x, &p, site);
}
template <class Op>
Tensor& with_inplace(Tensor& x, typename Op::Params p, const Site& site) {
  return elementwise::unary_inplace(op_def<Op>, x, &p, site);
}
}  // namespace

Tensor leaky_relu(const Tensor& x, double slope, Site site) { return with<LeakyRelu>(x, {slope}, site); }
Tensor& leaky_relu_(Tensor& x, double slope, Site site) { return with_inplace<LeakyRelu>(x, {slope}, site); }
Tensor elu(const Tensor& x, double alpha, Site site) { return with<Elu>(x, {alpha}, site); }
Tensor& elu_(Tensor& x, double alpha, Site site) { return with_inplace<Elu>(x, {alpha}, site); }
Tensor gelu(const Tensor& x, GeluApproximation a, Site site) { return with<Gelu>(x, {a}, site); }
Tensor& gelu_(Tensor& x, GeluApproximation a, Site site) { return with_inplace<Gelu>(x, {a}, site); }
Tensor hardshrink(const Tensor& x, double lambda, Site site) { return with<Hardshrink>(x, {lambda}, site); }
Tensor& hardshrink_(Tensor& x, double lambda, Site site) { return with_inplace<Hardshrink>(x, {lambda}, site); }
Tensor threshold(const Tensor& x, double t, double value, Site site) { return with<Threshold>(x, {t, value}, site); }
Tensor& threshold_(Tensor& x, double t, double value, Site site) {
  return with_inplace<Threshold>(x, {t, value}, site);
}
Tensor huber(const Tensor& x, double delta, double scale, Site site) { return with<Huber>(x, {delta, scale}, site); }

namespace {
Celu::Params celu_params(double alpha) {
  DEFT_CHECK(alpha != 0, ValueError, "celu: alpha is 0, and x / alpha has no value; use another alpha");
  return {alpha};
}
Softplus::Params softplus_params(double beta, double threshold) {
  DEFT_CHECK(beta != 0, ValueError, "softplus: beta is 0, and the result is divided by it; use another beta");
  return {beta, threshold};
}
Hardtanh::Params hardtanh_params(double low, double high) {
  DEFT_CHECK(low <= high, ValueError, "hardtanh: min {} is above max {}; exchange them", low, high);
  return {low, high};
}
Softshrink::Params softshrink_params(double lambda) {
  DEFT_CHECK(lambda >= 0, ValueError, "softshrink: lambda is {}, expected at least 0", lambda);
  return {lambda};
}
}  // namespace

Tensor celu(const Tensor& x, double alpha, Site site) { return with<Celu>(x, celu_params(alpha), site); }
Tensor& celu_(Tensor& x, double alpha, Site site) { return with_inplace<Celu>(x, celu_params(alpha), site); }
Tensor softplus(const Tensor& x, double beta, double threshold, Site site) {
  return with<Softplus>(x, softplus_params(beta, threshold), site);
}
Tensor& softplus_(Tensor& x, double beta, double threshold, Site site) {
  return with_inplace<Softplus>(x, softplus_params(beta, threshold), site);
}
Tensor hardtanh(const Tensor& x, double low, double high, Site site) {
  return with<Hardtanh>(x, hardtanh_params(low, high), site);
}
Tensor& hardtanh_(Tensor& x, double low, double high, Site site) {
  return with_inplace<Hardtanh>(x, hardtanh_params(low, high), site);
}
Tensor softshrink(const Tensor& x, double lambda, Site site) {
  return with<Softshrink>(x, softshrink_params(lambda), site);
}
Tensor& softshrink_(Tensor& x, double lambda, Site site) {
  return with_inplace<Softshrink>(x, softshrink_params(lambda), site);
}

// ---- clamp
namespace {

Clamp::Params clamp_params(const std::optional<Scalar>& min, const std::optional<Scalar>& max) {
  DEFT_CHECK(min || max, ValueError, "clamp: found neither min nor max; give at least one of them");
  Clamp::Params p;
  if (min) p.low = min->to_double(), p.integer_low = min->to_int64();
  if (max) p.high = max->to_double(), p.integer_high = max->to_int64();
  return p;
}
bool makes_float(const Tensor& x, const std::optional<Scalar>& min, const std::optional<Scalar>& max) {
  detail::check_defined(x, "clamp");
  return is_integral(x.dtype()) && ((min && min->is_floating()) || (max && max->is_floating()));
}

}  // namespace

Tensor clamp(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max, Site site) {
  Clamp::Params p = clamp_params(min, max);
  return with<Clamp>(makes_float(x, min, max) ? x.to(f32, site) : x, p, site);
}
Tensor& clamp_(Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max, Site site) {
  Clamp::Params p = clamp_params(min, max);
  DEFT_CHECK(!makes_float(x, min, max), DTypeError,
             "clamp: bounds that are floats give f32, which cannot be written in place into {}; use whole numbers",
             name_of(x.dtype()));
  return with_inplace<Clamp>(x, p, site);
}
Tensor Tensor::clamp(std::optional<Scalar> min, std::optional<Scalar> max, Site site) const {
  return deft::clamp(*this, min, max, site);
}
Tensor& Tensor::clamp_(std::optional<Scalar> min, std::optional<Scalar> max, Site site) {
  return deft::clamp_(*this, min, max, site);
}

}  // namespace deft
