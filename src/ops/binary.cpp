#include "ops/binary.h"

#include "ops/creation.h"

namespace deft {

namespace detail {

namespace {
Tensor to_tensor(TensorExpr&& e, const Tensor& like) {
  return e.is_number() ? full_like(like, e.number()) : std::move(e).take();
}
}  // namespace

// Next to f64 gradients, log() of a number or an integer tensor must not be taken in f32.
static Tensor wide_as(const Tensor& g, const Tensor& x) {
  if (g.dtype() != f64) return x;
  return x.dtype() != f64 ? x.to(f64) : x.meta().wrapped_number ? x.clone() : x;
}

static double number_of(const Tensor& wrapped) {
  return dispatch_all(wrapped.dtype(), [&]<class T>() { return static_cast<double>(*wrapped.data<T>()); });
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
#define DEFT_BINARY(Type, function) template void binary_vjp<Type>(VjpContext&);
#include "ops/binary.def"
#undef DEFT_BINARY

}  // namespace detail

#define DEFT_BINARY(Type, function)                                            \
  Tensor function(const Tensor& a, const Tensor& b, Site site) {               \
    return elementwise::binary(op_def<Type>, a, b, site);                      \
  }                                                                            \
  Tensor function(const Tensor& a, Scalar b, Site site) {                      \
    return elementwise::binary(op_def<Type>, a, wrap_number(b), site);         \
  }                                                                            \
  Tensor function(Scalar a, const Tensor& b, Site site) {                      \
    return elementwise::binary(op_def<Type>, wrap_number(a), b, site);         \
  }                                                                            \
  Tensor& function##_(Tensor& a, const Tensor& b, Site site) {                 \
    return elementwise::binary_inplace(op_def<Type>, a, b, site);              \
  }                                                                            \
  Tensor& function##_(Tensor& a, Scalar b, Site site) {                        \
    return elementwise::binary_inplace(op_def<Type>, a, wrap_number(b), site); \
  }
#include "ops/binary.def"
#undef DEFT_BINARY

}  // namespace deft
