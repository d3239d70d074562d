// Ordinary code that asks for values in eager mode, where a plan has to do without.
#include <gtest/gtest.h>

#include "core/grad_mode.h"
#include "graph/compile.h"
#include "graph/training_util.h"

namespace deft {
namespace {

using Function = std::function<Tensor(const Tensor&)>;

void expect_same_as_eager(const Function& f, const std::vector<Tensor>& inputs, const std::string& what) {
  auto fast = compile(f);
  for (const Tensor& x : inputs) EXPECT_TRUE(same_bits(fast(x), f(x))) << what << "\n" << fast.explain();
  EXPECT_EQ(fast.stats().captures, 1) << what;
}

// Values at the edges come in a later call than the one that was captured, and the opposite.
TEST(HiddenReads, BinaryCrossEntropy) {
  const Tensor target = tensor<float>({1, 0, 1, 0.25});
  const Tensor inside = tensor<float>({0.2f, 0.3f, 0.9f, 0.5f}), edges = tensor<float>({0, 0, 1, 1});
  for (const auto& order : {std::vector<Tensor>{inside, edges, inside}, {edges, inside, edges}}) {
    const Function loss = [&](const Tensor& x) {
      Tensor p = x.detach().requires_grad_();
      binary_cross_entropy(p, target).backward();
      return p.grad();
    };
    expect_same_as_eager(loss, order, "gradient");
    NoGradGuard no_grad;
    expect_same_as_eager([&](const Tensor& x) { return binary_cross_entropy(x, target); }, order, "loss");
  }
  NoGradGuard no_grad;
  auto fast = compile([&](const Tensor& x) { return binary_cross_entropy(x, target); });
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(contains(message_of<ValueError>([&] { fast(inside * 2); }), "probabilities in [0, 1]"));
    fast(inside);
  }
}

TEST(HiddenReads, GradientsOfProducts) {
  const Tensor without = tensor<float>({1, 2, 3, 4}), with = tensor<float>({1, 0, 3, 4});
  const std::pair<const char*, Function> products[] = {
      {"prod", [](const Tensor& x) { return prod(x); }},
      {"cumprod", [](const Tensor& x) { return cumprod(x, 0).sum(); }},
  };
  for (const auto& [name, product] : products) {
    const Function gradient = [&f = product](const Tensor& x) {
      Tensor w = x.detach().requires_grad_();
      f(w).backward();
      return w.grad();
    };
    auto fast = compile(gradient);
    for (const Tensor& x : {without, with, without, with})
      EXPECT_LE((fast(x) - gradient(x)).abs().amax().item(), 1e-4) << name;
    EXPECT_EQ(fast.stats().captures, 1) << name;
  }
}

// Running statistics that weigh all batches alike count on in a plan.
TEST(HiddenReads, BatchNormWithoutMomentum) {
  const std::vector<Tensor> batches = {randn({6, 3}), randn({6, 3}) * 2 + 1, randn({6, 3}) - 4, randn({6, 3})};
  nn::BatchNorm1d eager(3, {.momentum = std::nullopt}), compiled(3, {.momentum = std::nullopt});
  auto fast = compile([&](const Tensor& x) { return compiled(x).detach(); }, exact());
  Tensor sum = zeros({3}), squares = zeros({3});
  NoGradGuard no_grad;
  for (size_t i = 0; i < batches.size(); ++i) {
    EXPECT_TRUE(same_bits(fast(batches[i]), eager(batches[i]))) << i;
    sum.add_(batches[i].mean({0})), squares.add_(batches[i].var({0}));
    for (const nn::BatchNorm1d* n : {&eager, &compiled}) {
      EXPECT_LE((n->running_mean - sum / static_cast<double>(i + 1)).abs().amax().item(), 1e-5) << i;
      EXPECT_LE((n->running_var - squares / static_cast<double>(i + 1)).abs().amax().item(), 1e-4) << i;
      EXPECT_EQ(n->num_batches_tracked.item(), static_cast<double>(i + 1));
    }
  }
  EXPECT_EQ(fast.stats().captures, 1) << fast.misses().back();
  const Tensor mean = eager.running_mean.clone(), var = eager.running_var.clone();
  EXPECT_THROW(eager(randn({1, 3})), Error) << "one value per channel has no variance";
  EXPECT_TRUE(same_bits(eager.running_mean, mean));
  EXPECT_TRUE(same_bits(eager.running_var, var));
  EXPECT_EQ(eager.num_batches_tracked.item(), 4);
}

TEST(HiddenReads, IndexByNumbersOnTheDevice) {
  NoGradGuard no_grad;
  const Tensor table = arange(60).to(DType::f32).view({3, 4, 5}), list = tensor<int64_t>({3, 0});
  const std::pair<const char*, Function> reads[] = {
      {"first", [&](const Tensor& i) { return table.index({i}); }},
      {"middle",
       [&](const Tensor& i) {
         return table.index({Slice(), i});
       }},
      {"last",
       [&](const Tensor& i) {
         return table.index({Ellipsis(), i});
       }},
      {"two",
       [&](const Tensor& i) {
         return table.index({i, Slice(1, 3), i});
       }},
      {"apart from a list",
       [&](const Tensor& i) {
         return table.index({i, Slice(), list});
       }},
      {"beside a list",
       [&](const Tensor& i) {
         return table.index({Slice(), list, i});
       }},
      {"new axis",
       [&](const Tensor& i) {
         return table.index({NewAxis(), i, NewAxis()});
       }},
  };
  std::vector<Tensor> numbers;
  for (int64_t i : {1, 0, 2, -1, -3}) numbers.push_back(scalar_tensor(i, DType::i64));
  for (const auto& [name, read] : reads) expect_same_as_eager(read, numbers, name);
  const std::pair<const char*, std::function<void(Tensor&, const Tensor&)>> writes[] = {
      {"row", [](Tensor& t, const Tensor& i) { t.index_put_({i}, -1); }},
      {"two",
       [](Tensor& t, const Tensor& i) {
         t.index_put_({i, Slice(), i}, -1);
       }},
      {"sum",
       [](Tensor& t, const Tensor& i) {
         t.index_put_({Slice(), i}, arange(5).to(DType::f32), true);
       }},
      {"beside a list",
       [&](Tensor& t, const Tensor& i) {
         t.index_put_({Slice(), list, i}, -2);
       }},
  };
  for (const auto& [name, write] : writes)
    expect_same_as_eager(
        [&, &w = write](const Tensor& i) {
          Tensor t = table.clone();
          w(t, i);
          return t;
        },
        numbers, name);
  auto fast = compile([&](const Tensor& i) { return table.index({i}); });
  fast(numbers[0]);
  EXPECT_THROW(fast(scalar_tensor(3, DType::i64)), IndexError);
}

TEST(HiddenReads, GradientsOfAnElementByItsNumber) {
  const Function gradient = [](const Tensor& i) {
    Tensor w = ones({3, 2}).requires_grad_();
    (w.index({i}) * 3).sum().backward();
    return w.grad();
  };
  expect_same_as_eager(gradient, {scalar_tensor(1, DType::i64), scalar_tensor(0, DType::i64)}, "");
}

// In eager mode the element is a view: what a replay could not follow is refused.
TEST(HiddenReads, WritesAroundACopiedElement) {
  NoGradGuard no_grad;
  auto into_element = compile([](const Tensor& i) {
    Tensor t = i * 0 + arange(3);
    t.index({i}).fill_(7);
    return t;
  });
  auto into_whole = compile([](const Tensor& i) {
    Tensor t = i * 0 + arange(3), element = t.index({i});
    t.fill_(7);
    return element;
  });
  for (Compiled* f : {&into_element, &into_whole})
    EXPECT_TRUE(contains(message_of<CaptureError>([&] { (*f)(scalar_tensor(1, DType::i64)); }), "fill_ writes"));
  Tensor one = scalar_tensor(1, DType::i64);  // one that stays what it is remains a view
  auto constant = compile([&](const Tensor& x) {
    Tensor t = x * 2;
    t.index({one}).fill_(7);
    return t;
  });
  for (int k = 0; k < 3; ++k) EXPECT_EQ(constant(ones({3})).to_vector<float>(), (std::vector<float>{2, 7, 2}));
  one.fill_(2);
  EXPECT_EQ(constant(ones({3})).to_vector<float>(), (std::vector<float>{2, 2, 7}));
}

TEST(HiddenReads, EmbeddingWithAMaximumOfItsNorm) {
  for (bool bags : {false, true}) {
    auto make = [&]() -> std::unique_ptr<nn::Module> {
      RngScope rng({3, 0});
      if (bags) return std::make_unique<nn::EmbeddingBag>(20, 8, nn::EmbeddingBagOptions{.max_norm = 1.5});
      return std::make_unique<nn::Embedding>(20, 8, nn::EmbeddingOptions{.max_norm = 1.5});
    };
    auto call = [&](nn::Module& m, const Tensor& x) {
      return bags ? static_cast<nn::EmbeddingBag&>(m)(x) : static_cast<nn::Embedding&>(m)(x);
    };
    auto eager = make(), compiled = make();
    auto fast = compile([&](const Tensor& x) { return call(*compiled, x); }, exact());
    NoGradGuard no_grad;
    for (const auto& rows : {std::vector<int64_t>{1, 5, 5, 1}, {7, 8, 9, 19}, {1, 1, 1, 1}}) {
      const Tensor index = tensor(rows).view({2, 2});
      EXPECT_TRUE(same_bits(fast(index), call(*eager, index)));
      EXPECT_TRUE(same_bits(compiled->parameters()[0], eager->parameters()[0]));
    }
    EXPECT_EQ(fast.stats().captures, 1) << fast.misses().back();
  }
}

}  // namespace
}  // namespace deft
