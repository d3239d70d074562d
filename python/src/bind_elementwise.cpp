// Elementwise ops: the tables of the library, and those with arguments of their own.
#include "bind_op.h"
#include "ops/all_ops.h"

namespace deft::python {

namespace {

template <class F>
Tensor on_both(const Operand& a, const Operand& b, const Site& site, F&& f) {
  return with_operands(a, b, [&](const auto& x, const auto& y) { return f(x, y, site); });
}

void bind_unary() {
#define DEFT_UNARY(Type, function)                                                              \
  bind(                                                                                         \
      #function "(input)", kEverywhere, [](const Tensor& x, Site s) { return function(x, s); }, \
      op_def<Type>.info.name);                                                                  \
  bind(                                                                                         \
      #function "_(input)", kEverywhere,                                                        \
      [](Tensor& x, Site s) {                                                                   \
        function##_(x, s);                                                                      \
        return Same();                                                                          \
      },                                                                                        \
      op_def<Type>.info.name);
#define DEFT_UNARY_P(Type, function)
#include "ops/unary.def"
#define DEFT_UNARY_P(Type, function)
#include "ops/activation.def"
#undef DEFT_UNARY
}

void bind_binary() {
#define DEFT_BINARY(Type, function)                                                                             \
  bind(                                                                                                         \
      #function "(input, other)", kEverywhere,                                                                  \
      [](Operand a, Operand b, Site s) {                                                                        \
        return on_both(a, b, s, [](const auto& x, const auto& y, const Site& t) { return function(x, y, t); }); \
      },                                                                                                        \
      op_def<Type>.info.name);                                                                                  \
  bind(                                                                                                         \
      #function "_(input, other)", kMethod,                                                                     \
      [](Tensor& a, Operand b, Site s) {                                                                        \
        b.tensor ? function##_(a, *b.tensor, s) : function##_(a, b.scalar, s);                                  \
        return Same();                                                                                          \
      },                                                                                                        \
      op_def<Type>.info.name);
#include "ops/binary.def"
#undef DEFT_BINARY
}

// alpha * b, of the second argument of add() and sub().
Operand times(const Operand& b, Scalar alpha, Tensor& kept, const Site& site) {
  if (!alpha.is_floating() && alpha.to_int64() == 1) return b;
  if (!b.tensor) {
    if (b.scalar.is_floating() || alpha.is_floating()) return {nullptr, b.scalar.to_double() * alpha.to_double()};
    return {nullptr, b.scalar.to_int64() * alpha.to_int64()};
  }
  kept = mul(*b.tensor, alpha, site);
  return {&kept};
}

void bind_sums() {
  bind("add(input, other, *, alpha=1)", kEverywhere, [](Operand a, Operand b, Scalar alpha, Site s) {
    Tensor kept;
    return on_both(a, times(b, alpha, kept, s), s,
                   [](const auto& x, const auto& y, const Site& t) { return add(x, y, t); });
  });
  bind("sub(input, other, *, alpha=1)", kEverywhere, [](Operand a, Operand b, Scalar alpha, Site s) {
    Tensor kept;
    return on_both(a, times(b, alpha, kept, s), s,
                   [](const auto& x, const auto& y, const Site& t) { return sub(x, y, t); });
  });
  bind("add_(input, other, *, alpha=1)", kMethod, [](Tensor& a, Operand b, Scalar alpha, Site s) {
    Tensor kept;
    Operand c = times(b, alpha, kept, s);
    c.tensor ? add_(a, *c.tensor, s) : add_(a, c.scalar, s);
    return Same();
  });
  bind("sub_(input, other, *, alpha=1)", kMethod, [](Tensor& a, Operand b, Scalar alpha, Site s) {
    Tensor kept;
    Operand c = times(b, alpha, kept, s);
    c.tensor ? sub_(a, *c.tensor, s) : sub_(a, c.scalar, s);
    return Same();
  });
  bind(
      "rsub(input, other, *, alpha=1)", kEverywhere,
      [](const Tensor& a, Operand b, Scalar alpha, Site s) {
        Tensor kept;
        return on_both(b, times({&a}, alpha, kept, s), s,
                       [](const auto& x, const auto& y, const Site& t) { return sub(x, y, t); });
      },
      "sub");
}

enum class Rounding { none, trunc, floor };
constexpr Choice<Rounding> kRoundings[] = {{"trunc", Rounding::trunc}, {"floor", Rounding::floor}};

void bind_division() {
  bind("div(input, other, *, rounding_mode=None)", kEverywhere,
       [](Operand a, Operand b, std::optional<std::string> rounding_mode, Site s) {
         Rounding mode = rounding_mode ? choose(*rounding_mode, kRoundings) : Rounding::none;
         auto divide = [](const auto& x, const auto& y, const Site& t) { return div(x, y, t); };
         auto divide_floor = [](const auto& x, const auto& y, const Site& t) { return floor_divide(x, y, t); };
         if (mode == Rounding::none) return on_both(a, b, s, divide);
         if (mode == Rounding::floor) return on_both(a, b, s, divide_floor);
         Tensor q = trunc(on_both(a, b, s, divide), s);
         const Tensor& like = a.tensor ? *a.tensor : *b.tensor;
         bool whole =
             !is_floating(like.dtype()) && (b.tensor ? !is_floating(b.tensor->dtype()) : !b.scalar.is_floating());
         return whole ? q.to(like.dtype(), s) : q;
       });
  bind("div_(input, other, *, rounding_mode=None)", kMethod,
       [](Tensor& a, Operand b, std::optional<std::string> rounding_mode, Site s) {
         Rounding mode = rounding_mode ? choose(*rounding_mode, kRoundings) : Rounding::none;
         if (mode == Rounding::floor) {
           b.tensor ? floor_divide_(a, *b.tensor, s) : floor_divide_(a, b.scalar, s);
         } else {
           b.tensor ? div_(a, *b.tensor, s) : div_(a, b.scalar, s);
           if (mode == Rounding::trunc) trunc_(a, s);
         }
         return Same();
       });
}

// One end of clamp() is a tensor, a number or None.
using End = std::optional<Operand>;
Tensor clamp_any(const Tensor& x, const End& low, const End& high, const Site& s) {
  DEFT_CHECK(low || high, ValueError, "clamp: at least one of min and max must not be None");
  auto limit = [&](const Tensor& y, const End& end, bool is_low) {
    if (!end) return y;
    if (end->tensor) return is_low ? clamp_min(y, *end->tensor, s) : clamp_max(y, *end->tensor, s);
    return is_low ? clamp_min(y, end->scalar, s) : clamp_max(y, end->scalar, s);
  };
  if ((!low || !low->tensor) && (!high || !high->tensor)) {
    auto number = [](const End& e) { return e ? std::optional<Scalar>(e->scalar) : std::nullopt; };
    return clamp(x, number(low), number(high), s);
  }
  if (low && high && low->tensor && high->tensor) return clamp(x, *low->tensor, *high->tensor, s);
  return limit(limit(x, low, true), high, false);
}

void bind_clamps() {
  bind("clamp(input, min=None, max=None)", kEverywhere,
       [](const Tensor& x, End min, End max, Site s) { return clamp_any(x, min, max, s); });
  bind("clamp_(input, min=None, max=None)", kMethod, [](Tensor& x, End min, End max, Site s) {
    if ((!min || !min->tensor) && (!max || !max->tensor)) {
      auto number = [](const End& e) { return e ? std::optional<Scalar>(e->scalar) : std::nullopt; };
      clamp_(x, number(min), number(max), s);
    } else {
      x.copy_(clamp_any(x, min, max, s), s);
    }
    return Same();
  });
  bind(
      "clamp_min(input, min)", kEverywhere,
      [](const Tensor& x, Operand min, Site s) { return clamp_any(x, min, {}, s); }, "clamp");
  bind(
      "clamp_max(input, max)", kEverywhere,
      [](const Tensor& x, Operand max, Site s) { return clamp_any(x, {}, max, s); }, "clamp");
  bind(
      "clamp_min_(input, min)", kMethod,
      [](Tensor& x, Scalar min, Site s) {
        clamp_min_(x, min, s);
        return Same();
      },
      "clamp");
  bind(
      "clamp_max_(input, max)", kMethod,
      [](Tensor& x, Scalar max, Site s) {
        clamp_max_(x, max, s);
        return Same();
      },
      "clamp");
  bind(
      "_clamp_tensor(input, min, max)", kPrivate,
      [](const Tensor& x, const Tensor& min, const Tensor& max, Site s) { return clamp(x, min, max, s); },
      "clamp_tensor");
  bind("nan_to_num(input, nan=0.0, posinf=None, neginf=None)", kEverywhere,
       [](const Tensor& x, std::optional<double> nan, std::optional<double> posinf, std::optional<double> neginf,
          Site s) { return nan_to_num(x, nan.value_or(0), posinf, neginf, s); });
  bind("nan_to_num_(input, nan=0.0, posinf=None, neginf=None)", kMethod,
       [](Tensor& x, std::optional<double> nan, std::optional<double> posinf, std::optional<double> neginf, Site s) {
         nan_to_num_(x, nan.value_or(0), posinf, neginf, s);
         return Same();
       });
}

void bind_ternary() {
  bind("where(condition, input=None, other=None)", kFunction,
       [](const Tensor& c, Object a, Object b, Site s) -> Returns {
         if (a.p == Py_None && b.p == Py_None) {
           Tensor where = nonzero(c, s);
           return {binding::give({}, unbind(where, 1, s))};
         }
         Operand x = to_operand(a.p), y = to_operand(b.p);
         if (x.tensor && y.tensor) return {wrap(where(c, *x.tensor, *y.tensor, s))};
         if (x.tensor) return {wrap(where(c, *x.tensor, y.scalar, s))};
         if (y.tensor) return {wrap(where(c, x.scalar, *y.tensor, s))};
         return {wrap(where(c, x.scalar, y.scalar, s))};
       });
  bind(
      "_where_method(input, condition, other)", kPrivate,
      [](const Tensor& x, const Tensor& c, Operand y, Site s) {
        return y.tensor ? where(c, x, *y.tensor, s) : where(c, x, y.scalar, s);
      },
      "where");
  bind("lerp(input, end, weight)", kEverywhere, [](const Tensor& x, const Tensor& end, Operand weight, Site s) {
    return weight.tensor ? lerp(x, end, *weight.tensor, s) : lerp(x, end, weight.scalar.to_double(), s);
  });
  bind("lerp_(input, end, weight)", kMethod, [](Tensor& x, const Tensor& end, Operand weight, Site s) {
    weight.tensor ? lerp_(x, end, *weight.tensor, s) : lerp_(x, end, weight.scalar.to_double(), s);
    return Same();
  });
  bind("addcmul(input, tensor1, tensor2, *, value=1)", kEverywhere,
       [](const Tensor& x, const Tensor& a, const Tensor& b, double value, Site s) {
         return addcmul(x, a, b, value, s);
       });
  bind("addcmul_(input, tensor1, tensor2, *, value=1)", kMethod,
       [](Tensor& x, const Tensor& a, const Tensor& b, double value, Site s) {
         addcmul_(x, a, b, value, s);
         return Same();
       });
  bind("addcdiv(input, tensor1, tensor2, *, value=1)", kEverywhere,
       [](const Tensor& x, const Tensor& a, const Tensor& b, double value, Site s) {
         return addcdiv(x, a, b, value, s);
       });
  bind("addcdiv_(input, tensor1, tensor2, *, value=1)", kMethod,
       [](Tensor& x, const Tensor& a, const Tensor& b, double value, Site s) {
         addcdiv_(x, a, b, value, s);
         return Same();
       });
}

void bind_comparisons() {
  bind("isclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False)", kEverywhere,
       [](const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan, Site s) {
         return isclose(a, b, rtol, atol, equal_nan, s);
       });
  bind("allclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False)", kEverywhere,
       [](const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan, Site s) {
         return allclose(a, b, rtol, atol, equal_nan, s);
       });
  bind("equal(input, other)", kEverywhere, [](const Tensor& a, const Tensor& b, Site s) { return equal(a, b, s); });
}

constexpr Choice<GeluApproximation> kGelus[] = {{"none", GeluApproximation::none}, {"tanh", GeluApproximation::tanh}};

// Activations with parameters, as torch.nn.functional has them, and their forms that write into x.
void bind_activations() {
#define DEFT_ACTIVATION(name, torch_name, argument, value)                       \
  bind(                                                                          \
      torch_name "(input, " argument "=" #value ", inplace=False)", kFunctional, \
      [](const Tensor& x, double p, bool inplace, Site s) -> OrSame {            \
        if (!inplace) return {name(x, p, s)};                                    \
        Tensor y = x;                                                            \
        name##_(y, p, s);                                                        \
        return {};                                                               \
      },                                                                         \
      #name);                                                                    \
  bind(                                                                          \
      torch_name "_(input, " argument "=" #value ")", kFunctional,               \
      [](Tensor& x, double p, Site s) {                                          \
        name##_(x, p, s);                                                        \
        return Same();                                                           \
      },                                                                         \
      #name);
  DEFT_ACTIVATION(leaky_relu, "leaky_relu", "negative_slope", 0.01)
  DEFT_ACTIVATION(elu, "elu", "alpha", 1.0)
  DEFT_ACTIVATION(celu, "celu", "alpha", 1.0)
#undef DEFT_ACTIVATION
  bind("gelu(input, *, approximate='none')", kFunctional,
       [](const Tensor& x, std::string approximate, Site s) { return gelu(x, choose(approximate, kGelus), s); });
  bind("softplus(input, beta=1.0, threshold=20.0)", kFunctional,
       [](const Tensor& x, double beta, double threshold, Site s) { return softplus(x, beta, threshold, s); });
  bind("hardshrink(input, lambd=0.5)", kEverywhere | kFunctional,
       [](const Tensor& x, double lambd, Site s) { return hardshrink(x, lambd, s); });
  bind("softshrink(input, lambd=0.5)", kFunctional,
       [](const Tensor& x, double lambd, Site s) { return softshrink(x, lambd, s); });
  bind("hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False)", kFunctional,
       [](const Tensor& x, double low, double high, bool inplace, Site s) -> OrSame {
         if (!inplace) return {hardtanh(x, low, high, s)};
         Tensor y = x;
         hardtanh_(y, low, high, s);
         return {};
       });
  bind("threshold(input, threshold, value, inplace=False)", kFunctional | kFunction,
       [](const Tensor& x, double limit, double value, bool inplace, Site s) -> OrSame {
         if (!inplace) return {threshold(x, limit, value, s)};
         Tensor y = x;
         threshold_(y, limit, value, s);
         return {};
       });
  bind(
      "_huber(input, delta=1.0, scale=1.0)", kPrivate,
      [](const Tensor& x, double delta, double scale, Site s) { return huber(x, delta, scale, s); }, "huber");
#define DEFT_SWITCHED(name, torch_name)                     \
  bind(                                                     \
      torch_name "(input, inplace=False)", kFunctional,     \
      [](const Tensor& x, bool inplace, Site s) -> OrSame { \
        if (!inplace) return {name(x, s)};                  \
        Tensor y = x;                                       \
        name##_(y, s);                                      \
        return {};                                          \
      },                                                    \
      #name);
  DEFT_SWITCHED(relu, "relu")
  DEFT_SWITCHED(relu6, "relu6")
  DEFT_SWITCHED(selu, "selu")
  DEFT_SWITCHED(silu, "silu")
  DEFT_SWITCHED(mish, "mish")
  DEFT_SWITCHED(hardsigmoid, "hardsigmoid")
  DEFT_SWITCHED(hardswish, "hardswish")
#undef DEFT_SWITCHED
#define DEFT_PLAIN(name, torch_name) \
  bind(                              \
      torch_name "(input)", kFunctional, [](const Tensor& x, Site s) { return name(x, s); }, #name);
  DEFT_PLAIN(log_sigmoid, "logsigmoid")
  DEFT_PLAIN(softsign, "softsign")
  DEFT_PLAIN(tanhshrink, "tanhshrink")
  DEFT_PLAIN(sigmoid, "sigmoid")
  DEFT_PLAIN(tanh, "tanh")
#undef DEFT_PLAIN
}

}  // namespace

void bind_elementwise() {
  bind_unary();
  bind_binary();
  bind_sums();
  bind_division();
  bind_clamps();
  bind_ternary();
  bind_comparisons();
  bind_activations();
}

}  // namespace deft::python
