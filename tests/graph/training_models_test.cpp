// A training step of every built-in model, small, in f32 and under autocast.
#include "amp/autocast.h"
#include "base/error.h"
#include "graph/training_util.h"
#include "models/bert.h"
#include "models/cnn.h"
#include "models/gpt2.h"
#include "models/mlp.h"
#include "models/resnet.h"
#include "models/transformer_xl.h"

namespace deft {
namespace {

template <class M, class... Args>
Maker training(Step (*loss)(M&), bool amp, Args... args) {
  return [=] {
    Training s;
    auto model = std::make_unique<M>(args...);
    model->train();
    s.optimizer = sgd(0.01)(model->parameters());
    s.step = [l = loss(*model), o = s.optimizer.get(), amp](const Tensor& x, const Tensor& y) {
      Tensor value;
      {
        AutocastGuard guard(amp ? DType::bf16 : DType::f32);
        value = l(x, y);
      }
      value.backward();
      o->step();
      o->zero_grad();
      return value;
    };
    s.model = std::move(model);
    return s;
  };
}
template <class M>
Step classify(M& m) {
  return [&m](const Tensor& x, const Tensor& y) { return cross_entropy(m(x), y); };
}
template <class M>
Step next_token(M& m) {
  return [&m](const Tensor& x, const Tensor& y) { return cross_entropy(m(x).flatten(0, 1), y.flatten()); };
}

void check_model(const std::string& name, const std::function<Maker(bool)>& make, const Data& data) {
  for (bool amp : {false, true}) {
    std::string what = name + (amp ? " bf16 " : " f32 ");
    expect_same_bits(make(amp), {data}, what);
    // Epilogues round less often: a few roundings per value of a sum, so a small part of the way.
    expect_close_state(make(amp), {data}, amp ? 0x1p-3 : 0x1p-10, what);
  }
}

TEST(CompiledModels, Mlp) {
  check_model(
      "mlp",
      [](bool amp) {
        return training<models::Mlp>(&classify, amp, std::vector<int64_t>{12, 16, 16, 4});
      },
      rows());
}
TEST(CompiledModels, Cnn) {
  check_model(
      "cnn", [](bool amp) { return training<models::Cnn>(&classify, amp, models::CnnOptions{.width = 8}); },
      images(4, 28));
}
// A net that keeps its images in NCHW: plans convert them to NHWC, batch norms in training with them.
struct NchwNet : nn::Module {
  nn::Conv2d& first = add<nn::Conv2d>("first", 1, 32, 3, nn::ConvOptions{.padding = 1});
  nn::BatchNorm2d& norm = add<nn::BatchNorm2d>("norm", 32);
  nn::Conv2d& second = add<nn::Conv2d>("second", 32, 32, 3, nn::ConvOptions{.padding = 1});
  nn::BatchNorm2d& last = add<nn::BatchNorm2d>("last", 32);
  nn::Linear& head = add<nn::Linear>("head", 32, 10);
  Tensor forward(const Tensor& x) override { return head(last(second(norm(first(x)).relu())).relu().mean({2, 3})); }
};
TEST(CompiledModels, NchwNet) {
  check_model(
      "NCHW", [](bool amp) { return training<NchwNet>(&classify, amp); }, images(4, 28));
}
TEST(CompiledModels, ResNet) {
  models::ResNetOptions o{.blocks = {1, 1, 1, 1}, .channels = 1, .classes = 10, .width = 8, .small_input = true};
  for (bool bottleneck : {false, true}) {
    o.bottleneck = bottleneck;
    check_model(
        "resnet", [&](bool amp) { return training<models::ResNet>(&classify, amp, o); }, images(2, 32));
  }
}
TEST(CompiledModels, Bert) {
  models::BertOptions o{.vocabulary = 50, .hidden = 24, .layers = 2, .heads = 3, .intermediate = 32, .positions = 16};
  Data tokens{randint(0, 50, {2, 9}), randint(0, 50, {2, 9})};
  check_model(
      "bert", [&](bool amp) { return training<models::BertForMaskedLM>(&next_token, amp, o); }, tokens);
  check_model("bert classes",
              [&](bool amp) { return training<models::BertForSequenceClassification>(&classify, amp, int64_t{4}, o); },
              {tokens.x, randint(0, 4, {2})});
}
TEST(CompiledModels, Gpt2) {
  models::Gpt2Options o{.vocabulary = 50, .positions = 16, .hidden = 24, .layers = 2, .heads = 3};
  check_model("gpt2", [&](bool amp) { return training<models::Gpt2>(&next_token, amp, o); },
              {randint(0, 50, {2, 9}), randint(0, 50, {2, 9})});
}
TEST(CompiledModels, TransformerXL) {
  models::TransformerXLOptions o{.vocabulary = 40,
                                 .cutoffs = {},
                                 .hidden = 24,
                                 .layers = 2,
                                 .heads = 3,
                                 .head_size = 8,
                                 .intermediate = 32,
                                 .memory = 6,
                                 .attention_dropout = 0.1};
  Step (*loss)(models::TransformerXL&) = [](models::TransformerXL& m) -> Step {
    return [&m](const Tensor& x, const Tensor& y) {
      models::TransformerXL::Memory memory;
      m.encode(x, memory);
      return m.loss(x, y, memory).mean();
    };
  };
  Data tokens{randint(0, 40, {2, 5}), randint(0, 40, {2, 5})};
  check_model(
      "transformer xl", [&](bool amp) { return training<models::TransformerXL>(loss, amp, o); }, tokens);
  // Which words are rare is a matter of values: clusters cannot be captured, and say so.
  o.cutoffs = {8, 20};
  Training clusters = training<models::TransformerXL>(loss, false, o)();
  EXPECT_TRUE(contains(message_of<CaptureError>([&] { compile(clusters.step)(tokens.x, tokens.y); }), "nonzero"));
}

}  // namespace
}  // namespace deft
