// Batch norm in training with the relu after it: the same bits as eager mode, and left alone where it must be.
#include <fmt/format.h>

#include "amp/autocast.h"
#include "graph/fused_norm_util.h"
#include "graph/training_util.h"
#include "ops/elementwise_gradient.h"
#include "ops/op_table.h"

namespace deft {
namespace {

TEST(FusedNorms, SameBitsAsSingleOps) { check_fused_norms(kCPU); }
TEST(FusedNorms, NaN) { check_fused_norms_keep_nan(kCPU); }

TEST(FusedNorms, Rules) {
  Tensor x = randn({2, 3, 4}), none;
  BatchNorm::Params eval{false, 0.1, 1e-5}, train{true, 0.1, 1e-5};
  auto forward = [&](const BatchNorm::Params& p, const Tensor& residual) {
    call<FusedBatchNorm>(Site::current(), p, x, none, none, none, none, residual);
  };
  EXPECT_TRUE(contains(message_of<ValueError>([&] { forward(eval, none); }), "statistics of the batch"));
  EXPECT_TRUE(contains(message_of<ShapeError>([&] { forward(train, randn({3, 4})); }), "the residual is"));
  auto backward = [&](const Tensor& affine, const Tensor& y, const Tensor& more) {
    BatchNormBackward::Params p{true, 1e-5, kGradX, DType::f32};
    call<FusedBatchNormBackward>(Site::current(), p, x, x, none, randn({3}), randn({3}), affine, y, more);
  };
  EXPECT_TRUE(contains(message_of<ValueError>([&] { backward(none, none, none); }), "either y or affine"));
  EXPECT_TRUE(contains(message_of<ValueError>([&] { backward(randn({2, 3}), x, none); }), "either y or affine"));
  EXPECT_TRUE(contains(message_of<ValueError>([&] { backward(randn({2, 3}), none, x); }), "either y or affine"));
  EXPECT_TRUE(contains(message_of<ShapeError>([&] { backward(randn({3}), none, none); }), "expected [2, 3]"));
  EXPECT_TRUE(contains(message_of<ShapeError>([&] { backward(none, randn({2, 3}), none); }), "like the input"));
}

// --- The pass.

// Two convolutions with norms, and a function that says what comes after them.
struct NormNet : nn::Module {
  using Rest = std::function<Tensor(NormNet&, const Tensor& x)>;
  explicit NormNet(Rest r) : rest(std::move(r)) {}
  Rest rest;
  nn::Conv2d &conv1 = add<nn::Conv2d>("conv1", 1, 8, 3, nn::ConvOptions{.padding = 1, .bias = false}),
             &conv2 = add<nn::Conv2d>("conv2", 8, 8, 3, nn::ConvOptions{.padding = 1, .bias = false});
  nn::BatchNorm2d &norm1 = add<nn::BatchNorm2d>("norm1", 8), &norm2 = add<nn::BatchNorm2d>("norm2", 8);
  nn::Linear& last = add<nn::Linear>("last", 8, 10);
  Tensor forward(const Tensor& x) override { return last(rest(*this, x).mean({2, 3})); }
};

Maker training(const NormNet::Rest& rest, bool amp) {
  return [=] {
    Training s = of(std::make_unique<NormNet>(rest));
    s.model->train();
    s.step = [m = s.model.get(), o = s.optimizer.get(), amp](const Tensor& x, const Tensor& y) {
      Tensor loss;
      {
        AutocastGuard guard(amp ? DType::bf16 : DType::f32);
        loss = cross_entropy((*m)(x), y);
      }
      loss.backward();
      o->step();
      o->zero_grad();
      return loss;
    };
    return s;
  };
}

// Also what does not pay.
CompileOptions everything() {
  CompileOptions options = exact();
  options.passes.cost_model = false;
  options.passes.recompute = false;  // would make some of them twice
  return options;
}

// So many norms and gradients are fused, in f32 and under autocast, in either memory order, with the same bits.
void expect_fused(const std::string& what, const NormNet::Rest& rest, size_t forward, size_t backward) {
  for (bool amp : {false, true})
    for (bool last : {false, true}) {
      Data d = images(4, 9);
      if (last) d.x = d.x.contiguous(MemoryFormat::channels_last);
      const Maker make = training(rest, amp);
      Found eager = train(make, {d}, false, {}), fast = train(make, {d}, true, everything());
      ASSERT_EQ(eager.state.size(), fast.state.size()) << what;
      for (size_t i = 0; i < eager.state.size(); ++i)
        EXPECT_TRUE(same_bits(eager.state[i], fast.state[i])) << what << ", tensor " << i;
      for (size_t i = 0; i < eager.losses.size(); ++i)
        EXPECT_TRUE(same_bits(eager.losses[i], fast.losses[i])) << what << ", loss " << i;
      const std::string& text = fast.explained;
      auto count = [&](const std::string& part) {
        size_t n = 0;
        for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
        return n;
      };
      EXPECT_EQ(count("= fused_batch_norm("), forward) << what << text;
      EXPECT_EQ(count("= fused_batch_norm_backward("), backward) << what << text;
      EXPECT_EQ(count(fmt::format("done: fuse_norms: {} batch norms", forward)), forward > 0) << text;
      EXPECT_EQ(count(fmt::format("done: fuse_norms: {} gradients", backward)), backward > 0) << text;
    }
}

TEST(FuseNorms, Relu) {
  expect_fused(
      "new", [](NormNet& m, const Tensor& x) { return m.conv2(m.norm1(m.conv1(x)).relu()); }, 1, 1);
  expect_fused(
      "in place",
      [](NormNet& m, const Tensor& x) {
        Tensor y = m.norm1(m.conv1(x));
        const Tensor first = m.conv2(y.relu_());  // before the norm of y, which a product would leave open
        return first * m.conv2(m.norm2(y).relu());
      },
      2, 2);
}

// The shortcut's gradient is the one before the relu; gradients of both ways are added up before the next.
TEST(FuseNorms, Residual) {
  auto block = [](NormNet& m, const Tensor& x, bool in_place) {
    Tensor z = m.norm2(m.conv2(x));
    if (!in_place) return (x + z).relu();
    z += x;
    return z.relu_();
  };
  for (bool in_place : {false, true})
    expect_fused(
        in_place ? "in place" : "new",
        [=](NormNet& m, const Tensor& x) { return m.conv2(block(m, m.norm1(m.conv1(x)).relu(), in_place)); }, 2, 2);
}

// Nobody but the norm reads the gradient before the relu; x alone does not tell where that is.
TEST(FuseNorms, ResidualWithoutGradient) {
  expect_fused(
      "detached",
      [](NormNet& m, const Tensor& x) {
        Tensor y = m.conv1(x);
        return m.conv2((m.norm1(y) + y.detach()).relu());
      },
      1, 1);
}

TEST(FuseNorms, LeavesWhatOthersRead) {
  expect_fused(
      "read twice",
      [](NormNet& m, const Tensor& x) {
        Tensor y = m.norm1(m.conv1(x));
        return y.relu() + y.tanh();
      },
      0, 0);
  expect_fused(
      "the sum read twice",
      [](NormNet& m, const Tensor& x) {
        Tensor y = m.conv1(x), sum = m.norm1(y) + y;
        return sum.relu() * sum.exp();
      },
      0, 0);
  expect_fused(
      "a view of it", [](NormNet& m, const Tensor& x) { return m.norm1(m.conv1(x)).flatten(2).relu().unsqueeze(3); }, 0,
      0);
}

TEST(FuseNorms, LeavesOtherForms) {
  expect_fused(
      "another activation", [](NormNet& m, const Tensor& x) { return leaky_relu(m.norm1(m.conv1(x))); }, 0, 0);
  expect_fused(
      "one number per channel",
      [](NormNet& m, const Tensor& x) {
        return (m.norm1(m.conv1(x)) + m.conv1(x).mean({2, 3}, true)).relu();
      },
      0, 0);
  expect_fused(
      "added to another",
      [](NormNet& m, const Tensor& x) {
        Tensor z = m.conv1(x) * 2;
        z += m.norm1(m.conv1(x));
        return z.relu();
      },
      0, 0);
  expect_fused(
      "fixed statistics",
      [](NormNet& m, const Tensor& x) {
        m.norm1.eval();
        return m.norm1(m.conv1(x)).relu();
      },
      0, 0);
}

// There may be nothing before the relu's gradient.
TEST(FuseNorms, AGradientThatComesFirst) {
  NoGradGuard no_grad;
  auto f = [](const std::vector<Tensor>& t) {
    const Tensor &g = t[0], &x = t[1], &y = t[2];
    const ElementwiseGradient::Params relu{op_index(op_def<Relu>), DType::f32, {}};
    Tensor masked = call<ElementwiseGradient>(Site::current(), relu, g, y, y);
    const BatchNormBackward::Params p{true, 1e-5, kGradX, DType::f32};
    return std::vector<Tensor>{call<BatchNormBackward>(Site::current(), p, masked, x, Tensor(), t[3], t[4])[0]};
  };
  auto image = [] { return randn({2, 3, 4, 4}); };
  std::vector<Tensor> in{image(), image(), image(), randn({3}), rand({3}) + 1};
  Compiled fast = compile(f, everything());
  fast.run(in);
  EXPECT_TRUE(same_bits(fast.run(in)[0], f(in)[0]));
  EXPECT_TRUE(contains(fast.explain(), "= fused_batch_norm_backward(")) << fast.explain();
}

TEST(FuseNorms, LeavesGradientsOfOtherForms) {
  expect_fused(
      "fixed statistics",
      [](NormNet& m, const Tensor& x) {
        m.norm1.eval();
        return m.conv2(m.norm1(m.conv1(x)).relu());
      },
      0, 0);
  expect_fused(
      "neither rows nor channels innermost",
      [](NormNet& m, const Tensor& x) { return m.conv2(m.norm1(m.conv1(x).transpose(2, 3)).relu()); }, 0, 0);
}

// Elementwise ops before the relu's gradient are one pass with it, which beats storing their result; the mask from x
// needs no such choice.
TEST(FuseNorms, LeavesGradientsOfChains) {
  expect_fused(
      "after a residual",
      [](NormNet& m, const Tensor& x) {
        Tensor y = m.conv1(x);
        return m.conv2((m.norm1(y) + y).relu().tanh());
      },
      1, 0);
  expect_fused(
      "alone", [](NormNet& m, const Tensor& x) { return m.conv2(m.norm1(m.conv1(x)).relu().tanh()); }, 1, 1);
}

// What the norm reads and writes is as it was at its own place.
TEST(FuseNorms, OrderOfEffects) {
  NoGradGuard guard;
  auto same = [](const std::string& what, bool fuses, auto step) {
    RngScope random({3, 0});
    Tensor mean[2] = {zeros({4}), zeros({4})}, var[2] = {ones({4}), ones({4})}, bias[2] = {ones({4}), ones({4})};
    Tensor x = randn({3, 4, 5, 5});
    auto eager = [&, i = 0](const std::vector<Tensor>& in) { return step(in[0], mean[i], var[i], bias[i]); };
    auto fast = compile([&](const std::vector<Tensor>& in) { return step(in[0], mean[1], var[1], bias[1]); }, exact());
    for (int run = 0; run < 3; ++run) {
      std::vector<Tensor> want = eager({x}), got = fast.run({x});
      for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(same_bits(want[i], got[i])) << what << i;
      EXPECT_TRUE(same_bits(mean[0], mean[1]) && same_bits(var[0], var[1]) && same_bits(bias[0], bias[1])) << what;
    }
    EXPECT_EQ(contains(fast.explain(), "= fused_batch_norm("), fuses) << what << fast.explain();
  };
  using Tensors = std::vector<Tensor>;
  same("plain", true, [](const Tensor& x, Tensor& mean, Tensor& var, Tensor& bias) -> Tensors {
    return {batch_norm(x, mean, var, {}, bias, true).relu()};
  });
  same("statistics read before the relu", false,
       [](const Tensor& x, Tensor& mean, Tensor& var, Tensor& bias) -> Tensors {
         Tensor y = batch_norm(x, mean, var, {}, bias, true), seen = mean.exp();
         return {y.relu(), seen};
       });
  same("bias written before the relu", false, [](const Tensor& x, Tensor& mean, Tensor& var, Tensor& bias) -> Tensors {
    Tensor y = batch_norm(x, mean, var, {}, bias, true);
    bias.mul_(0.5);
    return {y.relu()};
  });
  same("residual written before the relu", false,
       [](const Tensor& x, Tensor& mean, Tensor& var, Tensor& bias) -> Tensors {
         Tensor other = x.tanh(), y = batch_norm(x, mean, var, {}, bias, true) + other;
         other.mul_(0.5);
         return {y.relu(), other};
       });
  same("residual made after the norm", true, [](const Tensor& x, Tensor& mean, Tensor& var, Tensor& bias) -> Tensors {
    Tensor y = batch_norm(x, mean, var, {}, bias, true);
    return {(y + x.cumsum(2)).relu()};
  });
  same("the norm is a result", false, [](const Tensor& x, Tensor& mean, Tensor& var, Tensor& bias) -> Tensors {
    Tensor y = batch_norm(x, mean, var, {}, bias, true);
    return {y.relu(), y};
  });
}

// On Arm's cores, gradients in f32 are faster one by one.
TEST(FuseNorms, Weighs) {
#if defined(__x86_64__)
  constexpr bool always = true;
#else
  constexpr bool always = false;
#endif
  for (bool amp : {false, true}) {
    const Maker make = training([](NormNet& m, const Tensor& x) { return m.conv2(m.norm1(m.conv1(x)).relu()); }, amp);
    const std::string text = train(make, {images(2, 9)}, true, exact()).explained;
    EXPECT_TRUE(contains(text, "= fused_batch_norm(")) << text;
    EXPECT_EQ(contains(text, "= fused_batch_norm_backward("), amp || always) << text;
    EXPECT_EQ(contains(text, "left: fuse_norms: 1 gradients"), !amp && !always) << text;
  }
}

TEST(FuseNorms, CanBeSwitchedOff) {
  CompileOptions options = exact();
  options.passes = graph::without(options.passes, "fuse_norms");
  Found off = train(training([](NormNet& m, const Tensor& x) { return m.norm1(m.conv1(x)).relu(); }, false),
                    {images(2, 9)}, true, options);
  EXPECT_TRUE(contains(off.explained, "fuse_norms: switched off"));
  EXPECT_FALSE(contains(off.explained, "= fused_batch_norm("));
}

}  // namespace
}  // namespace deft
