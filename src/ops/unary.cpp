#include "ops/unary.h"

#include "base/check.h"
#include "ops/binary.h"
#include "ops/creation.h"
#include "ops/gather_scatter.h"
#include "ops/operand.h"
#include "ops/ternary.h"

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
namespace {
Tensor whole_threshold(const Tensor& x, double t, double value, const Site& site) {
  check_fits(t, x.dtype(), "threshold");
  check_fits(value, x.dtype(), "threshold");
  return where(gt(x, Scalar(t).to_int64(), site), x, Scalar(value).to_int64(), site);
}
}  // namespace
Tensor threshold(const Tensor& x, double t, double value, Site site) {
  if (x.defined() && is_integral(x.dtype())) return whole_threshold(x, t, value, site);
  return with<Threshold>(x, {t, value}, site);
}
Tensor& threshold_(Tensor& x, double t, double value, Site site) {
  if (x.defined() && is_integral(x.dtype())) return x.copy_(whole_threshold(x, t, value, site), site);
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
// Integers stay integers, as do the bounds: fractions are cut off.
Tensor hardtanh(const Tensor& x, double low, double high, Site site) {
  if (x.defined() && is_integral(x.dtype())) {
    Hardtanh::Params p = hardtanh_params(low, high);
    return clamp(x, Scalar(p.low).to_int64(), Scalar(p.high).to_int64(), site);
  }
  return with<Hardtanh>(x, hardtanh_params(low, high), site);
}
Tensor& hardtanh_(Tensor& x, double low, double high, Site site) {
  if (x.defined() && is_integral(x.dtype())) {
    Hardtanh::Params p = hardtanh_params(low, high);
    return clamp_(x, Scalar(p.low).to_int64(), Scalar(p.high).to_int64(), site);
  }
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
  return !is_floating(x.dtype()) && ((min && min->is_floating()) || (max && max->is_floating()));
}
// Bools are clamped by numbers only, as numbers.
bool makes_integer(const Tensor& x, const std::optional<Scalar>& min, const std::optional<Scalar>& max) {
  auto is_integer = [](const std::optional<Scalar>& s) { return s && s->kind() == DType::i64; };
  return x.dtype() == DType::boolean && (is_integer(min) || is_integer(max));
}

}  // namespace

Tensor clamp(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max, Site site) {
  Clamp::Params p = clamp_params(min, max);
  if (makes_float(x, min, max)) return with<Clamp>(x.to(f32, site), p, site);
  return with<Clamp>(makes_integer(x, min, max) ? x.to(DType::i64, site) : x, p, site);
}
Tensor& clamp_(Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max, Site site) {
  Clamp::Params p = clamp_params(min, max);
  DEFT_CHECK(!makes_float(x, min, max), DTypeError,
             "clamp: bounds that are floats give f32, which cannot be written in place into {}; use whole numbers",
             name_of(x.dtype()));
  return with_inplace<Clamp>(x, p, site);
}
Tensor clamp_min(const Tensor& x, Scalar min, Site site) { return clamp(x, min, {}, site); }
Tensor clamp_min(const Tensor& x, const Tensor& min, Site site) { return clamp(x, min, Tensor(), site); }
Tensor clamp_max(const Tensor& x, Scalar max, Site site) { return clamp(x, {}, max, site); }
Tensor clamp_max(const Tensor& x, const Tensor& max, Site site) { return clamp(x, Tensor(), max, site); }
Tensor& clamp_min_(Tensor& x, Scalar min, Site site) { return clamp_(x, min, {}, site); }
Tensor& clamp_max_(Tensor& x, Scalar max, Site site) { return clamp_(x, {}, max, site); }

namespace {
double largest_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return std::numeric_limits<double>::max();
    case DType::f32:
      return std::numeric_limits<float>::max();
    case DType::f16:
      return 65504;
    default:
      return 0x1.FEp127;  // bf16
  }
}
}  // namespace
Tensor nan_to_num(const Tensor& x, double nan, std::optional<double> posinf, std::optional<double> neginf, Site site) {
  detail::check_defined(x, "nan_to_num");
  if (!is_floating(x.dtype())) return x.clone(MemoryFormat::preserve, site);
  double largest = largest_of(x.dtype());
  auto rounded = [&](double v) { return v > largest ? INFINITY : v < -largest ? -INFINITY : v; };
  Tensor y = masked_fill(x, isnan(x, site), rounded(nan), site);
  y = masked_fill(y, eq(x, INFINITY, site), rounded(posinf.value_or(largest)), site);
  return masked_fill(y, eq(x, -INFINITY, site), rounded(neginf.value_or(-largest)), site);
}
Tensor& nan_to_num_(Tensor& x, double nan, std::optional<double> posinf, std::optional<double> neginf, Site site) {
  detail::check_defined(x, "nan_to_num_");
  return is_floating(x.dtype()) ? x.copy_(nan_to_num(x, nan, posinf, neginf, site), site) : x;
}

Tensor Tensor::clamp_min(Scalar min, Site site) const { return deft::clamp_min(*this, min, site); }
Tensor Tensor::clamp_min(const Tensor& min, Site site) const { return deft::clamp_min(*this, min, site); }
Tensor Tensor::clamp_max(Scalar max, Site site) const { return deft::clamp_max(*this, max, site); }
Tensor Tensor::clamp_max(const Tensor& max, Site site) const { return deft::clamp_max(*this, max, site); }
Tensor& Tensor::clamp_min_(Scalar min, Site site) { return deft::clamp_min_(*this, min, site); }
Tensor& Tensor::clamp_max_(Scalar max, Site site) { return deft::clamp_max_(*this, max, site); }
Tensor Tensor::nan_to_num(double nan, std::optional<double> posinf, std::optional<double> neginf, Site site) const {
  return deft::nan_to_num(*this, nan, posinf, neginf, site);
}
Tensor& Tensor::nan_to_num_(double nan, std::optional<double> posinf, std::optional<double> neginf, Site site) {
  return deft::nan_to_num_(*this, nan, posinf, neginf, site);
}
Tensor Tensor::clamp(std::optional<Scalar> min, std::optional<Scalar> max, Site site) const {
  return deft::clamp(*this, min, max, site);
}
Tensor& Tensor::clamp_(std::optional<Scalar> min, std::optional<Scalar> max, Site site) {
  return deft::clamp_(*this, min, max, site);
}

}  // namespace deft
