// Linear, Bilinear, embeddings and containers as in PyTorch.
#include "nn/activation.h"
#include "nn/containers.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn_util.h"

namespace deft::nn {
namespace {

const State& cases() {
  static const State all = fixture("dense");
  return all;
}

TEST(NnDense, Linear) {
  Linear plain(5, 7), without(5, 7, false), row(5, 2);
  expect_as_pytorch(cases().part("linear"), plain, 7);
  expect_as_pytorch(cases().part("linear_3d"), without, 7);
  expect_as_pytorch(cases().part("linear_1d"), row, 5);
  EXPECT_EQ(plain.describe(), "Linear(in=5, out=7)");
  EXPECT_EQ(without.describe(), "Linear(in=5, out=7, bias=false)");
  expect_error<ShapeError>([&] { plain(sample({3, 4}, 1, DType::f32)); }, "linear");
}

TEST(NnDense, Bilinear) {
  Bilinear plain(3, 4, 5), without(3, 4, 2, false);
  auto call = [](Bilinear& m) { return [&m](const std::vector<Tensor>& in) { return std::vector{m(in[0], in[1])}; }; };
  expect_as_pytorch(cases().part("bilinear"), plain, call(plain), 20);
  expect_as_pytorch(cases().part("bilinear_no_bias"), without, call(without), 20);
  EXPECT_EQ(plain.describe(), "Bilinear(in1=3, in2=4, out=5)");
}

TEST(NnDense, Sequential) {
  Sequential net;
  net.add<Linear>(4, 8);
  net.add<Tanh>();
  net.add<Flatten>();
  net.append(std::make_shared<Linear>(24, 3));
  expect_as_pytorch(cases().part("sequential"), net, 48);
  EXPECT_EQ(
      net.to_string(),
      "Sequential\n  0: Linear(in=4, out=8)\n  1: Tanh\n  2: Flatten(start=1, end=-1)\n  3: Linear(in=24, out=3)");
  EXPECT_EQ(net.get<Linear>(0).weight.size(0), 8);
  expect_error<ValueError>([&] { net.get<Linear>(1); }, "module 1 is a Tanh");
  expect_error<IndexError>([&] { net[4]; }, "there is no module 4, only 4");
}

TEST(NnDense, SequentialOfValues) {
  Linear first(4, 8);
  const Tensor weight = first.weight;
  Sequential net(std::move(first), Tanh(), Sequential(Linear(8, 8), ReLU()), Linear(8, 3));
  EXPECT_EQ(net.to_string(),
            "Sequential\n  0: Linear(in=4, out=8)\n  1: Tanh\n  2: Sequential\n    0: Linear(in=8, out=8)\n    1: "
            "ReLU\n  3: Linear(in=8, out=3)");
  EXPECT_TRUE(net.get<Linear>(0).weight.is_same(weight)) << "the parameter itself moved along";
  net(sample({2, 4}).to(f32)).sum().backward();
  for (const Tensor& p : net.parameters()) EXPECT_TRUE(p.grad().defined());
  Sequential moved = [] {
    Sequential inner(Linear(2, 2));
    inner.eval();
    return inner;
  }();
  EXPECT_FALSE(moved.is_training());
  moved.get<Linear>(0).to(f64);  // replaces the tensors where the references look
  EXPECT_EQ(moved.get<Linear>(0).weight.dtype(), f64);
  EXPECT_EQ(moved(ones({1, 2}, f64)).dtype(), f64);

  const ModuleList list(ReLU(), Linear(3, 1));
  EXPECT_EQ(list.size(), 2u);
  static_assert(!std::is_constructible_v<Sequential, Linear&>, "a module that is kept elsewhere comes as shared_ptr");
  static_assert(!std::is_copy_constructible_v<Linear>);
}

TEST(NnDense, FlattenAndUnflatten) {
  Tensor x = sample({2, 3, 4});
  EXPECT_EQ(Flatten()(x).sizes(), (Shape{2, 12}));
  EXPECT_EQ(Flatten(0, 1)(x).sizes(), (Shape{6, 4}));
  Unflatten u(-1, {2, 2});
  EXPECT_EQ(u(x).sizes(), (Shape{2, 3, 2, 2}));
  EXPECT_EQ(u.describe(), "Unflatten(dim=-1, sizes=[2, 2])");
  EXPECT_TRUE(Identity()(x).is_same(x));
}

TEST(NnDense, Embedding) {
  Embedding plain(10, 4, {.padding_idx = 3});
  expect_as_pytorch(cases().part("embedding"), plain, 4);
  EXPECT_EQ(plain.describe(), "Embedding(rows=10, features=4, padding_idx=3)");
  Embedding counted(10, 4, {.padding_idx = -7});
  EXPECT_VALUES(counted.weight.detach()[3], 0, 0, 0, 0);
  expect_error<ValueError>([] { Embedding(10, 4, {.padding_idx = 10}); }, "padding_idx is 10, but there are 10 rows");
}

TEST(NnDense, EmbeddingMaxNorm) {
  Embedding limited(10, 4, {.max_norm = 1});
  expect_as_pytorch(cases().part("embedding_max_norm"), limited, 4);
  Tensor norms = limited.weight.detach().norm(2, {1});
  Tensor read = tensor<int64_t>({0, 1, 3, 9}), rest = tensor<int64_t>({2, 4, 5, 6, 7, 8});
  EXPECT_LE(norms.index_select(0, read).amax().item(), 1 + 1e-6);
  EXPECT_GT(norms.index_select(0, rest).amax().item(), 1 + 1e-3) << "rows that were not read stay as they are";
}

TEST(NnDense, EmbeddingBag) {
  const std::pair<const char*, BagMode> modes[] = {
      {"sum", BagMode::sum}, {"mean", BagMode::mean}, {"max", BagMode::max}};
  for (auto [name, mode] : modes) {
    SCOPED_TRACE(name);
    EmbeddingBag bag(10, 4, {.mode = mode}), padded(10, 4, {.mode = mode, .padding_idx = 2});
    auto call = [](EmbeddingBag& m) {
      return [&m](const std::vector<Tensor>& in) { return std::vector{m(in[0], in[1])}; };
    };
    expect_as_pytorch(cases().part(std::string("bag_") + name), bag, call(bag), 8);
    expect_as_pytorch(cases().part(std::string("bag_") + name + "_2d"), bag, 8);
    expect_as_pytorch(cases().part(std::string("bag_") + name + "_padding"), padded, call(padded), 8);
  }
  EmbeddingBag sum(10, 4, {.mode = BagMode::sum}), last(10, 4, {.mode = BagMode::sum, .include_last_offset = true});
  expect_as_pytorch(
      cases().part("bag_weights"), sum,
      [&](const std::vector<Tensor>& in) { return std::vector{sum(in[0], in[1], in[2])}; }, 8);
  expect_as_pytorch(
      cases().part("bag_last_offset"), last,
      [&](const std::vector<Tensor>& in) { return std::vector{last(in[0], in[1])}; }, 8);
  EXPECT_EQ(sum.describe(), "EmbeddingBag(rows=10, features=4, mode=sum)");
  Tensor index = tensor<int64_t>({1, 2, 3});
  expect_error<ValueError>([&] { sum(index, tensor<int64_t>({1, 2})); }, "the first offset must be 0, found 1");
  expect_error<ValueError>([&] { sum(index, tensor<int64_t>({0, 2, 1})); }, "must not fall");
  expect_error<ShapeError>([&] { sum(index); }, "takes 2-d indices");
}

}  // namespace
}  // namespace deft::nn
