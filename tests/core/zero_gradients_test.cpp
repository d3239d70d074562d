// Gradients that are zeros, where an undefined one would make an optimizer skip its parameter.
#include <functional>

#include "core_util.h"
#include "ops/matmul.h"
#include "ops/random.h"
#include "ops/shape_ops.h"

namespace deft {
namespace {

// An optimizer that finds no gradient leaves decay and momentum out, too.
TEST(ZeroGradients, OfWhatIsOverwrittenAreZeros) {
  const std::pair<const char*, std::function<void(Tensor&)>> writes[] = {
      {"fill_", [](Tensor& y) { y.fill_(-1); }},
      {"zero_", [](Tensor& y) { y.zero_(); }},
      {"copy_", [](Tensor& y) { y.copy_(zeros({3})); }},
      {"uniform_", [](Tensor& y) { uniform_(y); }},
      {"normal_", [](Tensor& y) { normal_(y); }},
      {"eq_", [](Tensor& y) { eq_(y, 1); }},
      {"lt_", [](Tensor& y) { lt_(y, zeros({3}, DType::f64)); }},
      {"logical_and_", [](Tensor& y) { logical_and_(y, 1); }},
      {"logical_not_", [](Tensor& y) { logical_not_(y); }},
  };
  for (const auto& [name, write] : writes) {
    Tensor x = leaf({3}), y = x * 1;
    write(y);
    ASSERT_TRUE(y.requires_grad()) << name;
    y.sum().backward();
    ASSERT_TRUE(x.grad().defined()) << name;
    EXPECT_VALUES(x.grad(), 0, 0, 0) << name;
    Tensor part = leaf({2, 3}), whole = part * 1;
    Tensor row = whole[0];
    write(row);
    whole.sum().backward();
    EXPECT_VALUES(part.grad(), 0, 0, 0, 1, 1, 1) << name;
  }
}

TEST(ZeroGradients, OfBothSidesOfAComparisonInPlace) {
  Tensor a = leaf({2}, 1), b = leaf({2}, 2), y = a * 1;
  ge_(y, b);
  EXPECT_EQ(values(y), values(a.ge(b)));
  y.sum().backward();
  EXPECT_VALUES(a.grad(), 0, 0);
  EXPECT_VALUES(b.grad(), 0, 0);
  EXPECT_FALSE(a.ge(b).requires_grad()) << "a bool";
}

TEST(ZeroGradients, OfWhatTakesNoPartAreZeros) {
  Tensor nothing = empty({0}, with_grad(f64)), x = leaf({2, 2});
  cat({nothing, x}).sum().backward();
  ASSERT_TRUE(nothing.grad().defined());
  EXPECT_EQ(nothing.grad().sizes(), (Shape{0}));
  EXPECT_VALUES(x.grad(), 1, 1, 1, 1);
  for (bool batched : {false, true}) {
    Tensor summand = full({2}, NAN, with_grad(f64)), m = sample({2, 2});
    Tensor y = batched ? baddbmm(summand, m.unsqueeze(0), m.unsqueeze(0), 0) : addmm(summand, m, m, 0);
    EXPECT_TRUE(y.requires_grad());
    EXPECT_FALSE(has_nan(y));
    y.sum().backward();
    EXPECT_VALUES(summand.grad(), 0, 0);
    EXPECT_FALSE(no_grad([&] { return addmm(summand, m, m, 0); }).requires_grad());
  }
  Tensor p = full({2}, 0.5, with_grad(f64));
  bernoulli(p).sum().backward();
  EXPECT_VALUES(p.grad(), 0, 0);
}

}  // namespace
}  // namespace deft
