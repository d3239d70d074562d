#include "ops/binary.h"

#include "base/check.h"
#include "core/capture_hook.h"
#include "core/describe.h"
#include "kernels/cpu/index/index.h"
#include "ops/creation.h"
#include "ops/operand.h"
#include "ops/reduce.h"
#include "ops/strided.h"
#include "ops/unary.h"

namespace deft {

namespace detail {

namespace {
Tensor to_tensor(TensorExpr&& e, const Tensor& like) {
  return e.is_number() ? full_like(like, e.number()) : std::move(e).take();
}
}  // namespace

// Next to f64 gradients, log() of a number or an integer tensor must not be taken in f32. Bools are no numbers.
static Tensor wide_as(const Tensor& g, const Tensor& x) {
  if (x.dtype() == DType::boolean) return x.to(g.dtype());
  if (g.dtype() != f64) return x;
  return x.dtype() != f64 ? x.to(f64) : x.meta().wrapped_number ? x.clone() : x;
}

static double number_of(const Tensor& wrapped) {
  return dispatch_all(wrapped.dtype(), [&]<class T>() { return static_cast<double>(*wrapped.data<const T>()); });
}

// What a formula reads of an input. A constant exponent is a number, which decides half of the formula of pow. Other
// numbers lie on the host: next to gradients on another device they stay numbers where the formula only joins them with
// tensors of that device, and go there otherwise.
template <class Op>
static TensorExpr operand_expr(VjpContext& c, int i) {
  const Tensor& g = c.grad();
  Tensor x = c.saved_input(i);
  if (std::is_same_v<Op, Pow> && i == 1 && x.meta().wrapped_number && !c.needs(1)) return TensorExpr(number_of(x));
  if (g.device().is_cpu() || !x.meta().wrapped_number) return TensorExpr(wide_as(g, x));
  if (std::is_same_v<Op, Div> || (std::is_same_v<Op, Pow> && i == 1)) return TensorExpr(x.item());
  return TensorExpr(full({}, x.item_scalar(), TensorOptions(f64, g.device())));
}

template <class Op>
void binary_vjp(VjpContext& c) {
  if constexpr (std::is_same_v<Op, Mul>) {
    // The commonest gradient of all, without the detour through expressions.
    if (c.needs(0)) c.grad_in(0) = mul(c.grad(), c.saved_input(1), c.node.site);
    if (c.needs(1)) c.grad_in(1) = mul(c.grad(), c.saved_input(0), c.node.site);
  } else if constexpr (requires { Op::vjp(c); }) {
    constexpr auto uses = Op::info.uses;
    uint16_t needed = static_cast<uint16_t>((c.needs(0) ? uses[0] : 0) | (c.needs(1) ? uses[1] : 0));
    TensorExpr g(c.grad());
    TensorExpr a = needed & input(0) ? operand_expr<Op>(c, 0) : TensorExpr(0);
    TensorExpr b = needed & input(1) ? operand_expr<Op>(c, 1) : TensorExpr(0);
    TensorExpr y = needed & output(0) ? TensorExpr(c.saved_output(0)) : TensorExpr(0);
    if (c.needs(0)) c.grad_in(0) = to_tensor(Op::grad_a(g, a, b, y), c.grad());
    if (c.needs(1)) c.grad_in(1) = to_tensor(Op::grad_b(g, a, b, y), c.grad());
  }
}

void check_divisor(const KernelCall& c) {
  const Tensor& b = c.in(1);
  if (is_floating(c.out().dtype()) || is_floating(b.dtype()) || c.out().numel() == 0) return;
  DEFT_CHECK(cpu::count_nonzero(b.dtype(), b.data_ptr(), strided(b)) == b.numel(), ValueError,
             "{}: an integer is divided by 0; replace the zeros, or convert to floats with to()", c.def.info.name);
}

#define DEFT_BINARY(Type, function) template void binary_vjp<Type>(VjpContext&);
#include "ops/binary.def"
#undef DEFT_BINARY

}  // namespace detail

void Sub::check_types(const Meta& a, const Meta& b) {
  DEFT_CHECK(a.dtype != DType::boolean && b.dtype != DType::boolean, DTypeError,
             "sub: does not take bool; use logical_xor() or logical_not(), or convert it with to()");
}

namespace {

template <class Op>
Tensor with_number(const Tensor& a, Scalar b, const Site& site) {
  return elementwise::binary(op_def<Op>, a, wrap_number(b), site);
}
void check_power(const Tensor& a, Scalar b) {
  DEFT_CHECK(b.is_floating() || b.to_int64() >= 0 || !a.defined() || is_floating(a.dtype()), ValueError,
             "pow: integers to the power {} are not whole numbers; convert them to floats with to(), or use {}.0",
             b.to_int64(), b.to_int64());
  if (a.defined() && is_integral(a.dtype()) && !b.is_floating()) check_fits(b, a.dtype(), "pow");
}
// A bool to the power of a bool stays what it is, or becomes true.
template <>
Tensor with_number<Pow>(const Tensor& a, Scalar b, const Site& site) {
  check_power(a, b);
  bool of_bools = a.defined() && a.dtype() == DType::boolean && b.kind() == DType::boolean;
  if (of_bools) return b.to_bool() ? a.clone(MemoryFormat::preserve, site) : ones_like(a, site);
  return elementwise::binary(op_def<Pow>, a, wrap_number(b), site);
}
template <class Op>
Tensor& with_number_inplace(Tensor& a, Scalar b, const Site& site) {
  if constexpr (std::is_same_v<Op, Pow>) check_power(a, b);
  return elementwise::binary_inplace(op_def<Op>, a, wrap_number(b), site);
}

}  // namespace

#define DEFT_BINARY(Type, function)                                                               \
  Tensor function(const Tensor& a, const Tensor& b, Site site) {                                  \
    return elementwise::binary(op_def<Type>, a, b, site);                                         \
  }                                                                                               \
  Tensor function(const Tensor& a, Scalar b, Site site) { return with_number<Type>(a, b, site); } \
  Tensor function(Scalar a, const Tensor& b, Site site) {                                         \
    return elementwise::binary(op_def<Type>, wrap_number(a), b, site);                            \
  }                                                                                               \
  Tensor& function##_(Tensor& a, const Tensor& b, Site site) {                                    \
    return elementwise::binary_inplace(op_def<Type>, a, b, site);                                 \
  }                                                                                               \
  Tensor& function##_(Tensor& a, Scalar b, Site site) { return with_number_inplace<Type>(a, b, site); }
#include "ops/binary.def"
#undef DEFT_BINARY

// --- Comparing whole tensors -----------------------------------------------------------------------------------

namespace {

void check_pair(const char* op, const Tensor& a, const Tensor& b) {
  detail::check_defined(a, op);
  detail::check_defined(b, op);
  DEFT_CHECK(a.dtype() == b.dtype(), DTypeError, "{}: found {} and {}; convert one of them with to()", op,
             describe(a.meta()), describe(b.meta()));
}

}  // namespace

Tensor isclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan, Site site) {
  SiteScope scope(site);
  check_pair("isclose", a, b);
  DEFT_CHECK(rtol >= 0 && atol >= 0, ValueError, "isclose: the tolerances {} and {} must not be negative", rtol, atol);
  Tensor close = eq(a, b);
  if (equal_nan && is_floating(a.dtype())) close = logical_or(close, logical_and(isnan(a), isnan(b)));
  if (rtol == 0 && atol == 0) return close;
  auto floats = [](const Tensor& t) { return is_floating(t.dtype()) ? t.detach() : t.to(DType::f32); };
  Tensor x = floats(a), y = floats(b), error = abs(x - y);
  return logical_or(close, logical_and(isfinite(error), le(error, abs(y * rtol) + atol)));
}
static void note_comparison(const char* what, const Tensor& a, const Tensor& b, const Site& site) {
  note_host_read(what, a, site);
  note_host_read(what, b, site);
}
bool allclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan, Site site) {
  note_comparison("allclose", a, b, site);
  return all(isclose(a, b, rtol, atol, equal_nan, site), {}, false, site).item<bool>(site);
}
bool equal(const Tensor& a, const Tensor& b, Site site) {
  detail::check_defined(a, "equal");
  detail::check_defined(b, "equal");
  note_comparison("equal", a, b, site);
  return a.sizes() == b.sizes() && all(eq(a, b, site), {}, false, site).item<bool>(site);
}
bool Tensor::equal(const Tensor& other, Site site) const { return deft::equal(*this, other, site); }
bool Tensor::allclose(const Tensor& other, double rtol, double atol, bool equal_nan, Site site) const {
  return deft::allclose(*this, other, rtol, atol, equal_nan, site);
}
Tensor Tensor::isclose(const Tensor& other, double rtol, double atol, bool equal_nan, Site site) const {
  return deft::isclose(*this, other, rtol, atol, equal_nan, site);
}

}  // namespace deft
