// Functions made of other ops: values as PyTorch gives them, gradients, errors, and the same under compile().
#include <functional>

#include "core/core_util.h"
#include "core/function.h"
#include "graph/compile.h"
#include "ops/gather_scatter.h"
#include "ops/gradcheck.h"
#include "ops/norm.h"
#include "ops/random.h"
#include "ops/shape_ops.h"
#include "ops/sort.h"

namespace deft {
namespace {

using Fn = std::function<Tensor(const Tensor&)>;

// Gradients by differences, and compile() as eager on two inputs.
void expect_differentiable(const char* what, const Fn& f, const Tensor& x) {
  SCOPED_TRACE(what);
  Tensor leaf = x.clone().requires_grad_();
  EXPECT_NO_THROW(gradcheck([&](const Tensors& in) { return Tensors{f(in[0])}; }, {leaf}));
}
void expect_compiles(const char* what, const Fn& f, const Tensor& x, const Tensor& other) {
  SCOPED_TRACE(what);
  auto fast = compile([&](const Tensor& t) { return f(t); });
  for (int i = 0; i < 2; ++i) {
    expect_close(fast(x), f(x), "first");
    expect_close(fast(other), f(other), "second");
  }
}

Tensor numbers(std::vector<double> v, IntList sizes) { return tensor(v).view(sizes); }
Tensor places(std::initializer_list<int64_t> v) { return tensor<int64_t>(v); }

TEST(Functions, OfTheOrderOfValues) {
  Tensor x = numbers({4, 1, 3, 2, 0, 7}, {2, 3});
  EXPECT_VALUES(x.median(), 2);  // the lower of the two in the middle
  auto [values_of, at] = x.median(1);
  EXPECT_VALUES(values_of, 3, 2);
  EXPECT_VALUES(at, 2, 0);
  EXPECT_EQ(x.median(0, true)[0].sizes(), (Shape{1, 3}));
  EXPECT_VALUES(tensor<int64_t>({5, -2, 9}).median(), 5);
  EXPECT_VALUES(scalar_tensor(3.0).median(0)[0], 3);
  auto [with_nan, first_nan] = numbers({1, NAN, 0, NAN}, {4}).median(0);
  EXPECT_TRUE(std::isnan(with_nan.item()));
  EXPECT_VALUES(first_nan, 1);
  EXPECT_TRUE(std::isnan(zeros({0}).median().item()));
  expect_error<ShapeError>([] { zeros({2, 0}).median(1); }, "is empty");
  expect_error<DTypeError>([] { zeros({2}, DType::boolean).median(); }, "does not take bool");

  expect_close(numbers({0, 1, 2, 3}, {4}).quantile(0.4), scalar_tensor(1.2, DType::f64));
  EXPECT_VALUES(quantile(numbers({0, 1, 2, 3}, {4}), 0.4, {}, false, Interpolation::lower), 1);
  EXPECT_VALUES(quantile(numbers({0, 1, 2, 3}, {4}), 0.4, {}, false, Interpolation::higher), 2);
  EXPECT_VALUES(quantile(numbers({0, 1, 2, 3}, {4}), 0.4, {}, false, Interpolation::midpoint), 1.5);
  EXPECT_VALUES(quantile(numbers({0, 1, 2, 3}, {4}), 0.4, {}, false, Interpolation::nearest), 1);
  Tensor q = tensor<double>({0, 0.5, 1});
  EXPECT_VALUES(quantile(x, q, 1), 1, 0, 3, 2, 4, 7);
  EXPECT_EQ(quantile(x, q, 1, true).sizes(), (Shape{3, 2, 1}));
  EXPECT_EQ(quantile(x, q, {}, true).sizes(), (Shape{3, 1, 1}));
  EXPECT_TRUE(std::isnan(numbers({0, NAN, 2}, {3}).quantile(0).item()));
  expect_error<ValueError>([&] { x.quantile(1.5); }, "[0, 1]");
  expect_error<ValueError>([&] { quantile(x, tensor<double>({0.5, -1})); }, "[0, 1]");
  expect_error<DTypeError>([] { ones({2}, DType::i64).quantile(0.5); }, "f32 or f64");
  expect_error<ShapeError>([] { zeros({0}).quantile(0.5); }, "is empty");

  // Equal medians share the gradient.
  Tensor tied = numbers({1, 2, 2, 3}, {4}).requires_grad_();
  tied.median().backward();
  EXPECT_VALUES(tied.grad(), 0, 0.5, 0.5, 0);
  Tensor unknown = numbers({1, NAN, 2, NAN}, {4}).requires_grad_();
  unknown.median().backward();
  EXPECT_VALUES(unknown.grad(), 0, 0.5, 0, 0.5);
  Tensor nothing = zeros({0, 2}, with_grad());
  nothing.median().backward();
  EXPECT_EQ(nothing.grad().sizes(), (Shape{0, 2}));
  Tensor one_of_three = numbers({1, 2, 3}, {3}).requires_grad_();
  one_of_three.median().log().mul(INFINITY).backward();
  EXPECT_VALUES(one_of_three.grad(), 0, INFINITY, 0);
  Tensor middle = numbers({1, 2, 3}, {3}).median();
  middle.mul_(tensor<double>({2}, with_grad(DType::f64)).reshape({}));
  EXPECT_EQ(middle.item(), 4) << "written with a graph";
  expect_differentiable(
      "median", [](const Tensor& t) { return t.median(1)[0]; }, x);
  expect_differentiable(
      "median of all", [](const Tensor& t) { return t.median(); }, x);
  expect_differentiable(
      "quantile", [&](const Tensor& t) { return quantile(t, q * 0.9, 0); }, x);
  Tensor other = x.neg().mul(1.5);
  expect_compiles(
      "median", [](const Tensor& t) { return t.median(1)[0]; }, x, other);
  expect_compiles(
      "median of all", [](const Tensor& t) { return t.median(); }, x, other);
  expect_compiles(
      "quantile", [](const Tensor& t) { return t.quantile(0.3, 0); }, x, other);
}

TEST(Functions, MethodsOfSortingAndChoosing) {
  Tensor x = numbers({4, 1, 3, 2, 0, 7}, {2, 3});
  EXPECT_VALUES(x.sort()[0], 1, 3, 4, 0, 2, 7);
  EXPECT_VALUES(x.sort(0, true)[1], 0, 0, 1, 1, 1, 0);
  EXPECT_VALUES(x.argsort(), 1, 2, 0, 1, 0, 2);
  EXPECT_VALUES(x.topk(2)[0], 4, 3, 7, 2);
  EXPECT_VALUES(x.topk(1, 0, false)[0], 2, 0, 3);
  EXPECT_VALUES(x.masked_select(x > 2), 4, 3, 7);
  EXPECT_VALUES(tensor<double>({3, 1, 3}).unique()[0], 1, 3);
  EXPECT_VALUES(tensor<double>({3, 1, 3}).unique()[2], 1, 2);
}

TEST(Functions, ReplaceValues) {
  Tensor x = tensor<float>({NAN, INFINITY, -INFINITY, 2});
  EXPECT_VALUES(x.nan_to_num(), 0, 0x1.fffffep127, -0x1.fffffep127, 2);
  EXPECT_VALUES(x.nan_to_num(1, 5, -6), 1, 5, -6, 2);
  EXPECT_VALUES(x.to(DType::f16).nan_to_num(1e9), INFINITY, 65504, -65504, 2);
  EXPECT_VALUES(tensor<int64_t>({1, 2}).nan_to_num(), 1, 2);
  Tensor y = x.clone();
  y.nan_to_num_(7, 8, 9);
  EXPECT_VALUES(y, 7, 8, 9, 2);
  Tensor leaf_x = x.clone().requires_grad_();
  leaf_x.nan_to_num().sum().backward();
  EXPECT_VALUES(leaf_x.grad(), 0, 0, 0, 1);

  Tensor v = tensor<double>({-2, 0.5, 3});
  EXPECT_VALUES(v.clamp_min(0), 0, 0.5, 3);
  EXPECT_VALUES(v.clamp_max(1), -2, 0.5, 1);
  EXPECT_VALUES(v.clamp_min(tensor<double>({0, 1, 2})), 0, 1, 3);
  EXPECT_VALUES(v.clamp_max(tensor<double>({0, 1, 2})), -2, 0.5, 2);
  EXPECT_VALUES(v.clone().clamp_min_(0).clamp_max_(2), 0, 0.5, 2);
  expect_differentiable(
      "clamp_min", [](const Tensor& t) { return t.clamp_min(0.1); }, v);
  expect_compiles(
      "nan_to_num", [](const Tensor& t) { return t.nan_to_num(1, 2, 3); }, x, x.neg());

  EXPECT_VALUES(normalize(numbers({3, 4, 0, 0}, {2, 2})), 0.6, 0.8, 0, 0);
  EXPECT_VALUES(normalize(numbers({3, -1, 1, 1}, {2, 2}), 1, 0), 0.75, -0.5, 0.25, 0.5);
  expect_differentiable(
      "normalize", [](const Tensor& t) { return normalize(t); }, numbers({3, 4, 1, -2}, {2, 2}));
  expect_error<IndexError>([] { normalize(ones({3})); }, "normalize");
}

TEST(Functions, CompareWholeTensors) {
  Tensor a = tensor<double>({1, 2, NAN, INFINITY}), b = tensor<double>({1, 2.00001, NAN, INFINITY});
  EXPECT_VALUES(a.isclose(b), 1, 1, 0, 1);
  EXPECT_VALUES(a.isclose(b, 0, 0), 1, 0, 0, 1);
  EXPECT_VALUES(a.isclose(b, 1e-5, 1e-8, true), 1, 1, 1, 1);
  EXPECT_FALSE(a.allclose(b));
  EXPECT_TRUE(a.allclose(b, 1e-5, 1e-8, true));
  EXPECT_FALSE(a.equal(a));  // NaN is not itself
  EXPECT_TRUE(ones({2}).equal(ones({2}, DType::f64)));
  EXPECT_FALSE(ones({2}).equal(ones({2, 1})));
  EXPECT_VALUES(tensor<int64_t>({100000, 3}).isclose(tensor<int64_t>({100001, 4})), 1, 0);
  EXPECT_VALUES(tensor<bool>({true, false}).isclose(tensor<bool>({true, true})), 1, 0);
  expect_error<DTypeError>([] { ones({1}).isclose(ones({1}, DType::f64)); }, "convert");
  expect_error<ValueError>([] { ones({1}).isclose(ones({1}), -1); }, "not be negative");
}

TEST(Functions, ArrangeTensors) {
  Tensor x = numbers({1, 2, 3, 4}, {2, 2}), v = tensor<double>({1, 2}), w = tensor<double>({3, 4});
  EXPECT_VALUES(x.tile({2}), 1, 2, 1, 2, 3, 4, 3, 4);
  EXPECT_EQ(v.tile({3, 1, 2}).sizes(), (Shape{3, 1, 4}));
  EXPECT_VALUES(hstack({v, w}), 1, 2, 3, 4);
  EXPECT_VALUES(hstack({x, x}), 1, 2, 1, 2, 3, 4, 3, 4);
  EXPECT_VALUES(vstack({v, w}), 1, 2, 3, 4);
  EXPECT_EQ(vstack({scalar_tensor(1.0), ones({1})}).sizes(), (Shape{2, 1}));
  expect_error<ValueError>([] { hstack(std::vector<Tensor>{}); }, "is empty");
  auto ij = meshgrid({v, tensor<double>({5, 6, 7})});
  EXPECT_EQ(ij[0].sizes(), (Shape{2, 3}));
  EXPECT_VALUES(ij[0], 1, 1, 1, 2, 2, 2);
  EXPECT_VALUES(ij[1], 5, 6, 7, 5, 6, 7);
  auto xy = meshgrid({v, tensor<double>({5, 6, 7})}, MeshIndexing::xy);
  EXPECT_EQ(xy[0].sizes(), (Shape{3, 2}));
  EXPECT_VALUES(xy[0], 1, 2, 1, 2, 1, 2);
  expect_error<ShapeError>([&] { meshgrid({x}); }, "at most one dimension");
  expect_error<DTypeError>([&] { meshgrid({v, ones({2})}); }, "convert");
  EXPECT_VALUES(v.diag(), 1, 0, 0, 2);
  EXPECT_VALUES(v.diag(-1), 0, 0, 0, 1, 0, 0, 0, 2, 0);
  EXPECT_VALUES(v.diag(1), 0, 1, 0, 0, 0, 2, 0, 0, 0);
  EXPECT_VALUES(numbers({1, 2, 3, 4, 5, 6}, {2, 3}).diag(1), 2, 6);
  EXPECT_FALSE(x.diag().shares_storage_with(x));
  EXPECT_EQ(ones({2, 3}).diag(3).numel(), 0);
  expect_error<ShapeError>([] { ones({1, 1, 1}).diag(); }, "1-d or 2-d");
  expect_error<ShapeError>([] { ones({2}).diag(INT64_MIN); }, "beyond");
  expect_differentiable(
      "diag", [](const Tensor& t) { return t.diag(1); }, v);
  expect_differentiable(
      "meshgrid",
      [&](const Tensor& t) {
        return meshgrid({t, v * t})[1] * meshgrid({t, v})[0];
      },
      w);
  expect_compiles(
      "diag", [](const Tensor& t) { return t.diag(-1); }, v, w);
  expect_compiles(
      "vstack",
      [&](const Tensor& t) {
        return vstack({t, t * 2, v});
      },
      v, w);
  expect_compiles(
      "tile",
      [&](const Tensor& t) {
        return t.tile({2, 2}) + 1;
      },
      v, w);
}

TEST(Functions, ViewsAndLikeness) {
  Tensor x = numbers({0, 1, 2, 3, 4, 5, 6, 7}, {8});
  Tensor windows = x.unfold(0, 3, 2);
  EXPECT_VALUES(windows, 0, 1, 2, 2, 3, 4, 4, 5, 6);
  EXPECT_TRUE(windows.shares_storage_with(x));
  EXPECT_VALUES(x.view({2, 4}).t().unfold(0, 2, 2), 0, 1, 4, 5, 2, 3, 6, 7);
  EXPECT_EQ(x.view({2, 4}).unfold(1, 4, INT64_MAX).sizes(), (Shape{2, 1, 4}));
  EXPECT_EQ(x.unfold(0, 0, 3).sizes(), (Shape{3, 0}));
  EXPECT_EQ(scalar_tensor(1.0).unfold(0, 1, 1).sizes(), (Shape{1}));
  for (auto [size, step] : {std::pair<int64_t, int64_t>{9, 1}, {-1, 1}, {2, 0}, {2, -3}})
    expect_error<ValueError>([&, n = size, s = step] { x.unfold(0, n, s); }, "windows");
  EXPECT_EQ(x.unflatten(0, {2, -1}).sizes(), (Shape{2, 4}));
  EXPECT_EQ(ones({2, 6, 3}).unflatten(-2, {3, 2}).sizes(), (Shape{2, 3, 2, 3}));
  expect_error<ShapeError>([&] { x.unflatten(0, {3, -1}); }, "view");
  expect_error<ShapeError>([&] { x.unflatten(0, {}); }, "unflatten");
  EXPECT_EQ(ones({1, 3}).expand_as(ones({2, 3})).sizes(), (Shape{2, 3}));
  EXPECT_EQ(x.view_as(ones({4, 2})).sizes(), (Shape{4, 2}));
  EXPECT_EQ(x.type_as(ones({1}, DType::i8)).dtype(), DType::i8);
  EXPECT_EQ(x.new_zeros({2}).dtype(), DType::f64);
  EXPECT_VALUES(x.new_ones({2}), 1, 1);
  EXPECT_VALUES(x.new_full({2}, 3, DType::i64), 3, 3);
  EXPECT_EQ(x.new_full({2}, 3, DType::i64).dtype(), DType::i64);
  EXPECT_EQ(x.new_empty({2, 0}).sizes(), (Shape{2, 0}));
  expect_differentiable(
      "unfold", [](const Tensor& t) { return t.unfold(0, 3, 2) * t.unfold(0, 3, 1).narrow(0, 1, 3); }, x);
  expect_differentiable(
      "unflatten",
      [](const Tensor& t) {
        return t.unflatten(0, {2, 4}).exp();
      },
      x * 0.1);
  expect_compiles(
      "unfold", [](const Tensor& t) { return t.unfold(0, 3, 2).sum({1}); }, x, x.neg());
  expect_compiles(
      "unflatten",
      [](const Tensor& t) {
        return t.unflatten(0, {2, 4}) * 2;
      },
      x, x.neg());
}

TEST(Functions, ScatterReduceOfMeansAndWithoutSelf) {
  Tensor index = places({0, 1, 1}), source = tensor<int64_t>({2, -1, -2}), x = tensor<int64_t>({5, -7, 3});
  auto without = [&](ScatterReduce r) { return x.scatter_reduce(0, index, source, r, false); };
  EXPECT_VALUES(x.scatter_reduce(0, index, source, ScatterReduce::mean), 3, -4, 3);  // rounded down
  EXPECT_VALUES(without(ScatterReduce::mean), 2, -2, 3);
  EXPECT_VALUES(without(ScatterReduce::add), 2, -3, 3);
  EXPECT_VALUES(without(ScatterReduce::mul), 2, 2, 3);
  EXPECT_VALUES(without(ScatterReduce::amax), 2, -1, 3);
  EXPECT_VALUES(without(ScatterReduce::amin), 2, -2, 3);
  Tensor f = tensor<double>({5, -7, 3}), g = tensor<double>({2, -1, -2});
  EXPECT_VALUES(f.scatter_reduce(0, index, g, ScatterReduce::mean), 3.5, -10 / 3.0, 3);
  for (ScatterReduce r : {ScatterReduce::mean, ScatterReduce::add, ScatterReduce::mul, ScatterReduce::amax})
    for (bool self : {true, false}) {
      expect_differentiable(
          "x", [&](const Tensor& t) { return t.scatter_reduce(0, index, g, r, self); }, f);
      expect_differentiable(
          "source", [&](const Tensor& t) { return f.scatter_reduce(0, index, t, r, self); }, g);
    }
  expect_compiles(
      "mean", [&](const Tensor& t) { return t.scatter_reduce(0, index, g, ScatterReduce::mean, false); }, f, f.neg());
  expect_error<IndexError>([&] { f.scatter_reduce(0, places({3, 0, 0}), g, ScatterReduce::mean); }, "3");
  Tensor bools = ones({2}, DType::boolean);
  expect_error<DTypeError>([&] { bools.scatter_reduce(0, places({0, 1}), bools, ScatterReduce::mean); }, "bool");
}

TEST(Functions, Multinomial) {
  manual_seed(3);
  Tensor w = numbers({0, 1, 3, 0, 6, 0, 0, 2}, {2, 4});
  Tensor often = multinomial(w, 20000, true);
  EXPECT_EQ(often.sizes(), (Shape{2, 20000}));
  EXPECT_EQ(often.dtype(), DType::i64);
  std::vector<std::vector<double>> expected = {{0, 0.25, 0.75, 0}, {0.75, 0, 0, 0.25}};
  for (int64_t row = 0; row < 2; ++row)
    for (int64_t k = 0; k < 4; ++k) {
      double share = eq(often[row], k).sum().item() / 20000, want = expected[row][k];
      EXPECT_NEAR(share, want, want == 0 ? 0 : 0.02) << row << " " << k;
    }
  // Without replacement each comes once, and those of weight 0 last.
  for (int i = 0; i < 50; ++i) EXPECT_VALUES(multinomial(w[0], 2).sort()[0], 1, 2);
  int64_t first = 0;
  for (int i = 0; i < 2000; ++i) first += multinomial(w[0], 2)[0].item<int64_t>() == 2;
  EXPECT_NEAR(static_cast<double>(first) / 2000, 0.75, 0.04);
  EXPECT_EQ(zeros({0, 3}).multinomial(2).sizes(), (Shape{0, 2}));
  for (auto& bad : {tensor<float>({-1, 1}), tensor<float>({NAN, 1}), tensor<float>({INFINITY, 1}), zeros({2})})
    expect_error<ValueError>([&] { multinomial(bad, 1); }, "multinomial");
  expect_error<ValueError>([] { multinomial(ones({2}), 3); }, "without replacement");
  expect_error<ValueError>([] { multinomial(ones({2}), 0); }, "at least 1");
  expect_error<ShapeError>([] { multinomial(ones({1, 1, 2}), 1); }, "one row");
  expect_error<DTypeError>([] { multinomial(ones({2}, DType::i64), 1); }, "floating");
  // Another draw in every call of a plan.
  auto draw = compile([](const Tensor& t) { return multinomial(t, 4, true); });
  Tensor even = ones({1000});
  EXPECT_FALSE(draw(even).equal(draw(even)));
}

}  // namespace
}  // namespace deft
