// Lets a formula template run on tensors: the same text that is a SIMD kernel then records a graph of public ops.
// This is how elementwise ops get double backward without a second definition.
#pragma once

#include "core/tensor.h"

namespace deft {

class TensorExpr {
 public:
  explicit TensorExpr(Tensor t) : tensor_(std::move(t)) {}
  template <class S>
  requires std::is_arithmetic_v<S>
  explicit TensorExpr(S v) : number_(static_cast<double>(v)) {}
  bool is_number() const { return !tensor_.defined(); }
  double number() const { return number_; }
  const Tensor& tensor() const { return tensor_; }
  Tensor take() && { return std::move(tensor_); }

 private:
  Tensor tensor_;
  double number_ = 0;
};

#define DEFT_DECLARE(op) TensorExpr operator op(const TensorExpr& a, const TensorExpr& b);
DEFT_DECLARE(+)
DEFT_DECLARE(-)
DEFT_DECLARE(*)
DEFT_DECLARE(/)
DEFT_DECLARE(<)
DEFT_DECLARE(<=)
DEFT_DECLARE(>)
DEFT_DECLARE(>=)
DEFT_DECLARE(==)
DEFT_DECLARE(!=)
DEFT_DECLARE(&)
DEFT_DECLARE(|)
#undef DEFT_DECLARE
TensorExpr operator-(const TensorExpr& a);
TensorExpr operator!(const TensorExpr& a);
TensorExpr select(const TensorExpr& condition, const TensorExpr& a, const TensorExpr& b);
#define DEFT_DECLARE(name) TensorExpr name(const TensorExpr& x);
DEFT_DECLARE(exp)
DEFT_DECLARE(expm1)
DEFT_DECLARE(exp2)
DEFT_DECLARE(log)
DEFT_DECLARE(log1p)
DEFT_DECLARE(log2)
DEFT_DECLARE(log10)
DEFT_DECLARE(sqrt)
DEFT_DECLARE(rsqrt)
DEFT_DECLARE(reciprocal)
DEFT_DECLARE(abs)
DEFT_DECLARE(sign)
DEFT_DECLARE(sin)
DEFT_DECLARE(cos)
DEFT_DECLARE(tan)
DEFT_DECLARE(sinh)
DEFT_DECLARE(cosh)
DEFT_DECLARE(tanh)
DEFT_DECLARE(sigmoid)
DEFT_DECLARE(erf)
DEFT_DECLARE(floor)
DEFT_DECLARE(ceil)
DEFT_DECLARE(trunc)
DEFT_DECLARE(round)
DEFT_DECLARE(isnan)
#undef DEFT_DECLARE
TensorExpr max(const TensorExpr& a, const TensorExpr& b);
TensorExpr min(const TensorExpr& a, const TensorExpr& b);
TensorExpr pow(const TensorExpr& a, const TensorExpr& b);
// A step: no graph goes through it.
TensorExpr floor_divide(const TensorExpr& a, const TensorExpr& b);
TensorExpr fma(const TensorExpr& a, const TensorExpr& b, const TensorExpr& c);

}  // namespace deft
