// Elementwise ops of three tensors. fwd is the kernel; vjp runs on tensors. The engine sums broadcast dimensions away.
#pragma once

#include "ops/elementwise.h"

namespace deft {

struct OpSamples;

// a where the condition holds, else b.
struct Where {
  static constexpr OpInfo info = ternary_info("where", kBool, {0, input(0), input(0)}, {"Where", 16});
  static constexpr ResultType result = ResultType::same;
  static constexpr bool condition = true;
  template <class V>
  DEFT_HD static V fwd(V c, V a, V b) {
    using namespace math;
    return select(c != V(0), a, b);
  }
  static void vjp(VjpContext& c);
  static OpSamples samples();
};

// a + weight (b - a), exact at both ends.
struct Lerp {
  static constexpr OpInfo info = ternary_info("lerp", kFloats, {input(2), input(2), input(0) | input(1)});
  static constexpr ResultType result = ResultType::same;
  template <class V>
  DEFT_HD static V fwd(V a, V b, V w) {
    using namespace math;
    return select(abs(w) < V(0.5), a + w * (b - a), b - (b - a) * (V(1) - w));
  }
  static void vjp(VjpContext& c);
  static OpSamples samples();
};

// x + value a b.
struct Addcmul {
  struct Params {
    double value = 1;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info = ternary_info("addcmul", kNumbers, {0, input(2), input(1)});
  static constexpr ResultType result = ResultType::same;
  template <class V>
  DEFT_HD static V fwd(V x, V a, V b, const Params& p) {
    using namespace math;
    if constexpr (std::is_integral_v<V>) {
      auto value = static_cast<V>(Scalar(p.value).to_int64());
      return wrapping_add(x, wrapping_mul(value, wrapping_mul(a, b)));
    } else {
      return x + V(p.value) * a * b;
    }
  }
  static void vjp(VjpContext& c);
  static OpSamples samples();
};

// x + value a / b.
struct Addcdiv {
  struct Params {
    double value = 1;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info = ternary_info("addcdiv", kFloats, {0, input(2), input(1) | input(2)});
  static constexpr ResultType result = ResultType::floating;
  template <class V>
  DEFT_HD static V fwd(V x, V a, V b, const Params& p) {
    return x + V(p.value) * a / b;
  }
  static void vjp(VjpContext& c);
  static OpSamples samples();
};

// min(max(x, low), high); NaN anywhere gives NaN, and where low > high the result is high.
struct ClampTensor {
  static constexpr uint16_t kAll = input(0) | input(1) | input(2);
  static constexpr OpInfo info = ternary_info("clamp_tensor", kNumbers, {kAll, kAll, kAll}, {"Clip", 13});
  static constexpr ResultType result = ResultType::same;
  template <class V>
  DEFT_HD static V fwd(V x, V low, V high) {
    using namespace math;
    return min(max(x, low), high);
  }
  static void vjp(VjpContext& c);
  static OpSamples samples();
};

enum class TernaryRow : uint16_t {
#define DEFT_TERNARY(Type, function) Type,
#include "ops/ternary.def"
#undef DEFT_TERNARY
  count
};
#define DEFT_TERNARY(Type, function)                                                                     \
  inline constexpr ElementwiseDef elementwise_##function{.row = static_cast<uint16_t>(TernaryRow::Type), \
                                                         .result = Type::result,                         \
                                                         .table = &ternary_table,                        \
                                                         .condition = elementwise::has_condition<Type>,  \
                                                         .cuda = &ternary_cuda};                         \
  template <>                                                                                            \
  inline constexpr OpDef op_def<Type> = elementwise::make_def<Type>(&elementwise_##function);
#include "ops/ternary.def"
#undef DEFT_TERNARY

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b, Site site = Site::current());
Tensor where(const Tensor& condition, const Tensor& a, Scalar b, Site site = Site::current());
Tensor where(const Tensor& condition, Scalar a, const Tensor& b, Site site = Site::current());
Tensor where(const Tensor& condition, Scalar a, Scalar b, Site site = Site::current());
Tensor lerp(const Tensor& start, const Tensor& end, const Tensor& weight, Site site = Site::current());
Tensor lerp(const Tensor& start, const Tensor& end, double weight, Site site = Site::current());
Tensor& lerp_(Tensor& start, const Tensor& end, const Tensor& weight, Site site = Site::current());
Tensor& lerp_(Tensor& start, const Tensor& end, double weight, Site site = Site::current());
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, double value = 1, Site site = Site::current());
Tensor& addcmul_(Tensor& x, const Tensor& a, const Tensor& b, double value = 1, Site site = Site::current());
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, double value = 1, Site site = Site::current());
Tensor& addcdiv_(Tensor& x, const Tensor& a, const Tensor& b, double value = 1, Site site = Site::current());
// An undefined tensor as a bound does not bound. With numbers as bounds: ops/unary.h.
Tensor clamp(const Tensor& x, const Tensor& min, const Tensor& max, Site site = Site::current());
Tensor& clamp_(Tensor& x, const Tensor& min, const Tensor& max, Site site = Site::current());

}  // namespace deft
