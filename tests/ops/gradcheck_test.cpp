#include "ops/gradcheck.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "core/grad_mode.h"
#include "ops/binary.h"
#include "ops/creation.h"
#include "ops/reduce.h"
#include "ops/unary.h"

namespace deft {
namespace {

using Tensors = std::vector<Tensor>;

Tensor leaf(IntList sizes, double first = 0.3) {
  Tensor x = empty(sizes, f64);
  for (int64_t i = 0; i < x.numel(); ++i) x.data<double>()[i] = first + 0.1 * static_cast<double>(i % 13);
  return x.requires_grad_();
}

std::string message_of(const GradcheckFn& f, const Tensors& inputs, bool second = false) {
  try {
    second ? gradgradcheck(f, inputs) : gradcheck(f, inputs);
  } catch (const GradError& e) {
    return e.what();
  }
  return "";
}

Tensors product(const Tensors& a) { return {mul(a[0], a[1])}; }
// The value of x * x, but a gradient of x: half of what it should be.
Tensors half_gradient(const Tensors& a) { return {mul(a[0], a[0].detach())}; }

TEST(Gradcheck, AcceptsRightGradients) {
  gradcheck(product, {leaf({2, 3}), leaf({3}, 1)});
  gradgradcheck(product, {leaf({2, 3}), leaf({3}, 1)});
  gradcheck([](const Tensors& a) { return Tensors{exp(a[0]), tanh(a[0])}; }, {leaf({})});
  gradcheck([](const Tensors& a) { return Tensors{exp(a[0])}; }, {leaf({0, 3})});
}

TEST(Gradcheck, AcceptsRightGradientsOfLargeFunctions) {
  gradcheck(product, {leaf({40, 50}), leaf({50}, 1)});
  gradgradcheck([](const Tensors& a) { return Tensors{exp(a[0])}; }, {leaf({11, 13})});
}

TEST(Gradcheck, FindsAWrongGradientAndNamesThePlace) {
  std::string text = message_of(half_gradient, {leaf({2, 2})});
  EXPECT_NE(text.find("gradcheck: the gradient of output 0 at [0, 0] with respect to input 0 at [0, 0] is 0.3"),
            text.npos)
      << text;
  EXPECT_NE(text.find("differences give 0.59999"), text.npos) << text;
  EXPECT_NE(message_of(half_gradient, {leaf({5, 10})}), "");    // projections, element by element
  EXPECT_NE(message_of(half_gradient, {leaf({50, 100})}), "");  // projections along random directions
  EXPECT_FALSE(gradcheck_ok(half_gradient, {leaf({2, 2})}));
  EXPECT_TRUE(gradcheck_ok(product, {leaf({2, 2}), leaf({2, 2})}));
}

TEST(Gradcheck, FindsASingleWrongElement) {
  // Off by a factor in one element of 6: in the full Jacobian and in projections.
  auto f = [](const Tensors& a) {
    Tensor mask = zeros({6}, f64);
    mask.data<double>()[4] = 0.01;
    return Tensors{add(mul(a[0], a[0]), mul(mask, a[0].detach()))};
  };
  for (bool full : {true, false}) {
    try {
      gradcheck(f, {leaf({6})}, {.full = full});
      ADD_FAILURE() << "nothing was found, full = " << full;
    } catch (const GradError& e) {
      EXPECT_NE(std::string(e.what()).find("input 0 at [4]"), std::string::npos) << e.what();
    }
  }
}

TEST(Gradcheck, FindsAMissingGradient) {
  auto f = [](const Tensors& a) { return Tensors{mul(a[0], a[1].detach())}; };
  std::string text = message_of(f, {leaf({2}), leaf({2}, 1)});
  EXPECT_NE(text.find("input 1 at [0] has no gradient, but differences give"), text.npos) << text;
  EXPECT_NE(message_of([](const Tensors& a) { return Tensors{a[0].detach()}; }, {leaf({2})}).find("no output"),
            text.npos);
}

TEST(Gradcheck, FindsGradientsThatAreNotFinite) {
  auto f = [](const Tensors& a) { return Tensors{div(zeros({2}, f64), mul(a[0], Scalar(0)))}; };
  EXPECT_NE(message_of(f, {leaf({2})}), "");
}

TEST(Gradcheck, FindsFunctionsThatAreNotRepeatable) {
  double calls = 0;
  auto f = [&](const Tensors& a) { return Tensors{mul(a[0], Scalar(calls += 1))}; };
  EXPECT_NE(message_of(f, {leaf({2})}).find("different results"), std::string::npos);
}

TEST(Gradcheck, FindsAWrongSecondGradient) {
  // The first gradient 2x is right, but made from a detached x: the second is 0 instead of 2.
  auto f = [](const Tensors& a) {
    Tensor x = a[0], d = x.detach();
    return Tensors{add(mul(d, d), mul(mul(sub(x, d), d), Scalar(2)))};
  };
  gradcheck([&](const Tensors& a) { return f(a); }, {leaf({3})}, {.rtol = 1});  // differences see d move as well
  EXPECT_NE(message_of(f, {leaf({3})}, true), "");
}

TEST(Gradcheck, RefusesWhatItCannotCheck) {
  EXPECT_THROW(gradcheck(half_gradient, {ones({2}, with_grad(f32))}), DTypeError);
  EXPECT_THROW(gradcheck(half_gradient, {ones({2}, f64)}), ValueError);
  EXPECT_THROW(gradgradcheck(half_gradient, {ones({2}, f64)}), ValueError);
}

TEST(Gradcheck, LeavesInputsAndModesAlone) {
  Tensor x = leaf({2, 2}), y = leaf({2, 2}, 1);
  std::vector<double> before = x.to_vector<double>();
  NoGradGuard guard;
  gradcheck(product, {x, y});
  EXPECT_FALSE(is_grad_enabled());
  EXPECT_EQ(x.to_vector<double>(), before);
  EXPECT_EQ(x.version(), 0u);
  EXPECT_FALSE(x.grad().defined());
}

TEST(Gradcheck, PassesIndicesOn) {
  auto f = [](const Tensors& a) { return Tensors{mul(a[0], a[1])}; };
  gradcheck(f, {leaf({3}), arange(3)});
}

}  // namespace
}  // namespace deft
