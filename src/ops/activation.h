// Activations: elementwise ops of one tensor. Adding one: a struct here, a line in activation.def, nothing else.
#pragma once

#include "ops/unary_op.h"

namespace deft {

namespace domains {
inline constexpr Domain kWide{.low = -6, .high = 6};
inline constexpr Domain kKinkAtOne{.low = -3, .high = 3, .away_from = 1, .period = 2};
inline constexpr Domain kKinkAtHalf{.low = -3, .high = 3, .away_from = 0.5, .period = 1};
inline constexpr Domain kKinkAtThree{.low = -5, .high = 5, .away_from = 3, .period = 6};
inline constexpr Domain kKinkAtSix{.low = -3, .high = 9, .away_from = 0, .period = 6};
}  // namespace domains

DEFT_UNARY_FLOATING(Sigmoid, unary_info("sigmoid", kAllTypes, output(), {"Sigmoid", 13}), domains::kWide, sigmoid(x),
                    g*(V(1) - y) * y)
DEFT_UNARY_SAME(LogSigmoid, unary_info("log_sigmoid", kFloats, input(0)), domains::kWide,
                min(x, V(0)) - log1p(exp(-abs(x))), g* sigmoid(-x))
DEFT_UNARY_SAME(Relu, unary_info("relu", kNumbers, output(), {"Relu", 14}), domains::kAwayFromZero, max(x, V(0)),
                select(y <= V(0), V(0), g))
DEFT_UNARY_SAME(Relu6, unary_info("relu6", kNumbers, input(0)), domains::kKinkAtSix, min(max(x, V(0)), V(6)),
                select((x <= V(0)) | (x >= V(6)), V(0), g))
// Scale and alpha that keep mean 0 and variance 1 (Klambauer et al., 2017).
inline constexpr double kSeluScale = 1.0507009873554804934193349852946;
inline constexpr double kSeluAlpha = 1.6732632423543772848170429916717;
DEFT_UNARY_SAME(Selu, unary_info("selu", kFloats, input(0), {"Selu", 6}), domains::kAwayFromZero,
                V(kSeluScale) * select(x > V(0), x, V(kSeluAlpha) * expm1(min(x, V(0)))),
                V(kSeluScale) * g * select(x <= V(0), V(kSeluAlpha) * exp(min(x, V(0))), V(1)))
struct Silu {
  static constexpr OpInfo info = unary_info("silu", kFloats, input(0));
  static constexpr ResultType result = ResultType::same;
  static constexpr Domain domain = domains::kWide;
  template <class V>
  DEFT_HD static V gradient(V g, V x, V gate) {
    return g * gate * (V(1) + x * (V(1) - gate));
  }
  DEFT_UNARY_FORWARD(x* sigmoid(x))
  DEFT_UNARY_GRADIENT(Silu, gradient(g, x, sigmoid(x)))
};
struct Mish {
  static constexpr OpInfo info = unary_info("mish", kFloats, input(0), {"Mish", 18});
  static constexpr ResultType result = ResultType::same;
  static constexpr Domain domain = domains::kWide;
  // tanh(softplus(x)); log1p(exp(x)) without overflow.
  template <class V>
  DEFT_HD static V gate(V x) {
    using namespace math;
    return tanh(max(x, V(0)) + log1p(exp(-abs(x))));
  }
  template <class V>
  DEFT_HD static V gradient(V g, V x, V gate, V sigmoid) {
    return g * (gate + x * sigmoid * (V(1) - gate * gate));
  }
  DEFT_UNARY_FORWARD(x* gate(x))
  DEFT_UNARY_GRADIENT(Mish, gradient(g, x, gate(x), sigmoid(x)))
};
DEFT_UNARY_SAME(Softsign, unary_info("softsign", kFloats, input(0), {"Softsign", 1}), domains::kReal,
                x / (V(1) + abs(x)), (g / (V(1) + abs(x))) / (V(1) + abs(x)))
struct Tanhshrink {
  static constexpr OpInfo info = unary_info("tanhshrink", kFloats, input(0));
  static constexpr ResultType result = ResultType::same;
  static constexpr Domain domain = domains::kReal;
  template <class V>
  DEFT_HD static V gradient(V g, V t) {
    return g * t * t;
  }
  DEFT_UNARY_FORWARD(x - tanh(x))
  DEFT_UNARY_GRADIENT(Tanhshrink, gradient(g, tanh(x)))
};
DEFT_UNARY_SAME(Hardsigmoid, unary_info("hardsigmoid", kFloats, input(0), {"HardSigmoid", 6}), domains::kKinkAtThree,
                min(max(x + V(3), V(0)), V(6)) / V(6), select((x > V(-3)) & (x < V(3)), g / V(6), V(0)))
DEFT_UNARY_SAME(Hardswish, unary_info("hardswish", kFloats, input(0), {"HardSwish", 14}), domains::kKinkAtThree,
                x*(min(max(x + V(3), V(0)), V(6)) / V(6)),
                select(x <= V(-3), V(0), select(x < V(3), g*(x / V(3) + V(0.5)), g)))

// ---- With parameters
#define DEFT_ACTIVATION_BODY(Type, name, domain_, ...)                             \
  static constexpr OpInfo info = unary_info(name, kFloats, input(0), __VA_ARGS__); \
  static constexpr ResultType result = ResultType::same;                           \
  static constexpr Domain domain = domain_;                                        \
  static void vjp(VjpContext& c) { detail::unary_vjp<Type>(c); }                   \
  template <class V>                                                               \
  DEFT_HD static V fwd(V x, const Params& p)

#define DEFT_ACTIVATION_GRAD \
  template <class V>         \
  DEFT_HD static V grad(V g, V x, V, const Params& p)

struct LeakyRelu {
  struct Params {
    double slope = 0.01;
    bool operator==(const Params&) const = default;
  };
  DEFT_ACTIVATION_BODY(LeakyRelu, "leaky_relu", domains::kAwayFromZero, OnnxName("LeakyRelu", 16)) {
    using namespace math;
    return select(x > V(0), x, x * V(p.slope));
  }
  DEFT_ACTIVATION_GRAD {
    using namespace math;
    return select(x > V(0), g, g * V(p.slope));
  }
};

struct Elu {
  struct Params {
    double alpha = 1;
    bool operator==(const Params&) const = default;
  };
  DEFT_ACTIVATION_BODY(Elu, "elu", domains::kAwayFromZero, OnnxName("Elu", 6)) {
    using namespace math;
    return select(x > V(0), x, V(p.alpha) * expm1(min(x, V(0))));
  }
  DEFT_ACTIVATION_GRAD {
    using namespace math;
    return select(x <= V(0), g * V(p.alpha) * exp(min(x, V(0))), g);
  }
};

struct Celu {
  struct Params {
    double alpha = 1;
    bool operator==(const Params&) const = default;
  };
  DEFT_ACTIVATION_BODY(Celu, "celu", domains::kAwayFromZero, OnnxName("Celu", 12)) {
    using namespace math;
    return select(x > V(0), x, V(p.alpha) * expm1(min(x / V(p.alpha), V(0))));
  }
  DEFT_ACTIVATION_GRAD {
    using namespace math;
    return select(x <= V(0), g * exp(min(x / V(p.alpha), V(0))), g);
  }
};

// x times the normal distribution function of x: exact (erf), or its tanh approximation.
enum class GeluApproximation : uint8_t { none, tanh };
struct Gelu {
  struct Params {
    GeluApproximation approximate = GeluApproximation::none;
    bool operator==(const Params&) const = default;
  };
  static constexpr Params kCases[] = {{GeluApproximation::none}, {GeluApproximation::tanh}};
  DEFT_ACTIVATION_BODY(Gelu, "gelu", domains::kReal, OnnxName("Gelu", 20)) {
    using namespace math;
    const bool exact = p.approximate == GeluApproximation::none;
    if (!exact) return x * sigmoid(twice_inner(x));
    if constexpr (kHasOwn<V>) {
      return gelu_erf(x);
    } else {
      return x * share_below(x);
    }
  }
  DEFT_ACTIVATION_GRAD {
    using namespace math;
    const bool exact = p.approximate == GeluApproximation::none;
    if (!exact) return g * tanh_slope(x);
    if constexpr (kHasOwn<V>) {
      return g * gelu_erf_slope(x);
    } else {
      V density = V(kInvSqrt2Pi) * exp(V(-0.5) * x * x);
      return g * (share_below(x) + x * density);
    }
  }

 private:
  // Vectors of floats have functions of their own (kernels/cpu/simd/simd_math_f32-inl.h).
  template <class V>
  static constexpr bool kHasOwn = requires(V x) {
    gelu_erf(x);
  };
  static constexpr double kInvSqrt2 = 0.70710678118654752440, kInvSqrt2Pi = 0.39894228040143267794;
  static constexpr double kSqrt2OverPi = 0.79788456080286535588, kCubic = 0.044715;
  // The share of a normal distribution below x.
  template <class V>
  DEFT_HD static V share_below(V x) {
    using namespace math;
#ifdef __CUDA_ARCH__
    if constexpr (std::is_same_v<V, float>) return x < 0.0f ? share_beyond(x) : 1.0f - share_beyond(x);
#endif
    return V(0.5) * (V(1) + erf(x * V(kInvSqrt2)));
  }
#ifdef __CUDA_ARCH__
  // erff costs a GPU more than the memory it works on: bf16 would run at 69 % of copy speed. Here the share beyond |x|
  // is t 2^(p(t) - x^2 log2(e) / 2) with t = 1 / (1 + |x| / sqrt(8)); p is fitted to 8e-7. Unlike 1 + erf it does not
  // cancel.
  __device__ static float share_beyond(float x) {
    constexpr float p[] = {-2.82569885f, 1.44064200f,  0.568670869f, -0.0589569844f,
                           0.509088457f, -1.44984031f, 1.08797133f,  -0.271877706f};
    float t = __fdividef(1.0f, fmaf(fabsf(x), 0.353553391f, 1.0f)), e = p[7];
#pragma unroll
    for (int i = 6; i >= 0; --i) e = fmaf(e, t, p[i]);
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(fmaf(x * -0.721347520f, x, e)));
    return t * power;
  }
#endif
  // 1 + tanh(z) is 2 sigmoid(2 z): this is 2 z.
  template <class V>
  DEFT_HD static V twice_inner(V x) {
    return x * (V(2 * kSqrt2OverPi) + V(2 * kSqrt2OverPi * kCubic) * (x * x));
  }
  // The slope is 0 or 1 to within 1e-35 beyond 10, where its terms overflow but their combination does not.
  template <class V>
  DEFT_HD static V tanh_slope(V x) {
    using namespace math;
    V b = max(min(x, V(10)), V(-10));
    V e = exp(-twice_inner(b)), share = V(1) / (V(1) + e);
    V inner_slope = V(2 * kSqrt2OverPi) * (V(1) + V(3 * kCubic) * (b * b));
    return select(x < V(-10), V(0), share * (V(1) + b * inner_slope * (e * share)));
  }
};

struct Softplus {
  struct Params {
    double beta = 1, threshold = 20;
    bool operator==(const Params&) const = default;
  };
  DEFT_ACTIVATION_BODY(Softplus, "softplus", domains::kWide, OnnxName("Softplus", 1), Autocast::fp32) {
    using namespace math;
    V z = x * V(p.beta);
    return select(z > V(p.threshold), x, (max(z, V(0)) + log1p(exp(-abs(z)))) / V(p.beta));
  }
  DEFT_ACTIVATION_GRAD {
    using namespace math;
    V z = x * V(p.beta);
    return select(z > V(p.threshold), g, g * sigmoid(z));
  }
};

struct Hardtanh {
  struct Params {
    double low = -1, high = 1;
    bool operator==(const Params&) const = default;
  };
  DEFT_ACTIVATION_BODY(Hardtanh, "hardtanh", domains::kKinkAtOne, OnnxName("Clip", 13)) {
    using namespace math;
    return min(max(x, V(p.low)), V(p.high));
  }
  DEFT_ACTIVATION_GRAD {
    using namespace math;
    return select((x <= V(p.low)) | (x >= V(p.high)), V(0), g);
  }
};

struct Hardshrink {
  struct Params {
    double lambda = 0.5;
    bool operator==(const Params&) const = default;
  };
  DEFT_ACTIVATION_BODY(Hardshrink, "hardshrink", domains::kKinkAtHalf, OnnxName("Shrink", 9)) {
    using namespace math;
    return select((x >= V(-p.lambda)) & (x <= V(p.lambda)), V(0), x);
  }
  DEFT_ACTIVATION_GRAD {
    using namespace math;
    return select((x >= V(-p.lambda)) & (x <= V(p.lambda)), V(0), g);
  }
};

struct Softshrink {
  struct Params {
    double lambda = 0.5;
    bool operator==(const Params&) const = default;
  };
  DEFT_ACTIVATION_BODY(Softshrink, "softshrink", domains::kKinkAtHalf, OnnxName("Shrink", 9)) {
    using namespace math;
    V lambda = V(p.lambda);
    return select(x > lambda, x - lambda, select(x < -lambda, x + lambda, x * V(0)));  // NaN stays
  }
  DEFT_ACTIVATION_GRAD {
    using namespace math;
    return select((x >= V(-p.lambda)) & (x <= V(p.lambda)), V(0), g);
  }
};

// x where x > threshold, else value.
struct Threshold {
  struct Params {
    double threshold = 0, value = 0;
    bool operator==(const Params&) const = default;
  };
  DEFT_ACTIVATION_BODY(Threshold, "threshold", domains::kKinkAtHalf, OnnxName()) {
    using namespace math;
    return select(x <= V(p.threshold), V(p.value), x);
  }
  DEFT_ACTIVATION_GRAD {
    using namespace math;
    return select(x <= V(p.threshold), V(0), g);
  }
};

// scale x^2 / 2 up to |x| = delta, then a line of the same slope: the losses of that name, of a difference.
struct Huber {
  struct Params {
    double delta = 1, scale = 1;
    bool operator==(const Params&) const = default;
  };
  DEFT_ACTIVATION_BODY(Huber, "huber", domains::kKinkAtHalf, OnnxName()) {
    using namespace math;
    V size = abs(x);
    return select(size <= V(p.delta), x * x * V(0.5 * p.scale), (size - V(0.5 * p.delta)) * V(p.delta * p.scale));
  }
  DEFT_ACTIVATION_GRAD {
    using namespace math;
    return g * select(abs(x) > V(p.delta), sign(x) * V(p.delta * p.scale), x * V(p.scale));
  }
};
#undef DEFT_ACTIVATION_BODY
#undef DEFT_ACTIVATION_GRAD

// The functions with parameters; the others are declared in ops/unary.h. A trailing _ writes into x.
Tensor leaky_relu(const Tensor& x, double slope = 0.01, Site site = Site::current());
Tensor& leaky_relu_(Tensor& x, double slope = 0.01, Site site = Site::current());
Tensor elu(const Tensor& x, double alpha = 1, Site site = Site::current());
Tensor& elu_(Tensor& x, double alpha = 1, Site site = Site::current());
Tensor celu(const Tensor& x, double alpha = 1, Site site = Site::current());
Tensor& celu_(Tensor& x, double alpha = 1, Site site = Site::current());
Tensor gelu(const Tensor& x, GeluApproximation approximate = GeluApproximation::none, Site site = Site::current());
Tensor& gelu_(Tensor& x, GeluApproximation approximate = GeluApproximation::none, Site site = Site::current());
// Linear where beta x > threshold.
Tensor softplus(const Tensor& x, double beta = 1, double threshold = 20, Site site = Site::current());
Tensor& softplus_(Tensor& x, double beta = 1, double threshold = 20, Site site = Site::current());
Tensor hardtanh(const Tensor& x, double min = -1, double max = 1, Site site = Site::current());
Tensor& hardtanh_(Tensor& x, double min = -1, double max = 1, Site site = Site::current());
Tensor hardshrink(const Tensor& x, double lambda = 0.5, Site site = Site::current());
Tensor& hardshrink_(Tensor& x, double lambda = 0.5, Site site = Site::current());
Tensor softshrink(const Tensor& x, double lambda = 0.5, Site site = Site::current());
Tensor& softshrink_(Tensor& x, double lambda = 0.5, Site site = Site::current());
Tensor threshold(const Tensor& x, double threshold, double value, Site site = Site::current());
Tensor& threshold_(Tensor& x, double threshold, double value, Site site = Site::current());
Tensor huber(const Tensor& x, double delta = 1, double scale = 1, Site site = Site::current());

}  // namespace deft
