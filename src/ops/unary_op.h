// How an elementwise op of one tensor is written; the ops are in ops/unary.h and ops/activation.h.
//
// fwd(x) and grad(g, x, y) are templates over the value type: a SIMD vector, a scalar, a complex number in tests, or a
// TensorExpr when the gradient itself must be differentiable. `info.uses` says which of x and y grad() reads.
#pragma once

#include "ops/elementwise.h"
#include "ops/tensor_expr.h"

namespace deft {

namespace detail {
// The fused gradient kernel, or Op::grad on tensors when a graph of the gradient is wanted.
template <class Op>
void unary_vjp(VjpContext& c);
}  // namespace detail

// Inside formulas the names of deft::math are in scope; other value types bring theirs.
#define DEFT_UNARY_FORWARD(formula) \
  template <class V>                \
  DEFT_HD static auto fwd(V x) {    \
    using namespace math;           \
    return formula;                 \
  }
#define DEFT_UNARY_GRADIENT(Type, formula)                                                  \
  template <class V>                                                                        \
  DEFT_HD static V grad([[maybe_unused]] V g, [[maybe_unused]] V x, [[maybe_unused]] V y) { \
    using namespace math;                                                                   \
    return formula;                                                                         \
  }                                                                                         \
  static void vjp(VjpContext& c) { detail::unary_vjp<Type>(c); }

// Floats only in their result: integers are converted to f32 first.
#define DEFT_UNARY_FLOATING(Type, info_, domain_, forward, gradient) \
  struct Type {                                                      \
    static constexpr OpInfo info = info_;                            \
    static constexpr ResultType result = ResultType::floating;       \
    static constexpr Domain domain = domain_;                        \
    DEFT_UNARY_FORWARD(forward)                                      \
    DEFT_UNARY_GRADIENT(Type, gradient)                              \
  };
// The result has the type of the input.
#define DEFT_UNARY_SAME(Type, info_, domain_, forward, gradient) \
  struct Type {                                                  \
    static constexpr OpInfo info = info_;                        \
    static constexpr ResultType result = ResultType::same;       \
    static constexpr Domain domain = domain_;                    \
    DEFT_UNARY_FORWARD(forward)                                  \
    DEFT_UNARY_GRADIENT(Type, gradient)                          \
  };
#define DEFT_UNARY_BOOLEAN(Type, info_, forward)                              \
  struct Type {                                                               \
    static constexpr OpInfo info = info_;                                     \
    static constexpr ResultType result = ResultType::boolean;                 \
    static constexpr const char* not_differentiable = "its result is a bool"; \
    DEFT_UNARY_FORWARD(forward)                                               \
  };

}  // namespace deft
