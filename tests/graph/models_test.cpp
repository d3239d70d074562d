// Every built-in model compiled, in every mode: against itself uncompiled and against f64.
//
// Three bounds. Passes that promise the same bits: the same bits. All passes, against eager mode: each instruction of
// the captured graph rounds its result, and a pass may leave that rounding out or do it elsewhere, so the two are at
// most (instructions) x eps x (largest value) apart, eps being that of the type in which matmuls are computed. All
// passes, against the model in f64: not more than 1.5 times eager mode's own error, and one rounding of the largest
// value.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>

#include "amp/autocast.h"
#include "core/grad_mode.h"
#include "graph/capture.h"
#include "graph/compile.h"
#include "graph/executable.h"
#include "models/bert.h"
#include "models/cnn.h"
#include "models/gpt2.h"
#include "models/mlp.h"
#include "models/resnet.h"
#include "models/transformer_xl.h"
#include "nn/nn.h"
#include "ops/all_ops.h"

namespace deft {
namespace {

using Tensors = std::vector<Tensor>;

struct Model {
  const char* name;
  std::function<std::unique_ptr<nn::Module>()> make;
  std::function<Tensors(nn::Module&, const Tensors&)> run;
  std::function<Tensors()> inputs;  // other ones at each call
  bool images = false;
};

template <class M, class... Args>
std::unique_ptr<nn::Module> made(Args&&... args) {
  auto m = std::make_unique<M>(std::forward<Args>(args)...);
  // Statistics and factors that are not those of a new model.
  for (auto& [name, t] : m->state_dict()) {
    Tensor x = t;
    NoGradGuard no_grad;
    if (name.find("running_mean") != name.npos) uniform_(x, -0.5, 0.5);
    if (name.find("running_var") != name.npos) uniform_(x, 0.5, 2);
  }
  return m;
}
Tensors forward(nn::Module& m, const Tensors& x) { return {m(x[0])}; }
std::function<Tensors()> tokens(int64_t vocabulary, int64_t rows, int64_t length) {
  return [=] { return Tensors{randint(0, vocabulary, {rows, length})}; };
}
std::function<Tensors()> numbers(const Shape& sizes) {
  return [=] { return Tensors{randn(sizes)}; };
}

const models::BertOptions kBert{
    .vocabulary = 60, .hidden = 32, .layers = 2, .heads = 4, .intermediate = 64, .positions = 32};

std::vector<Model> all_models() {
  models::ResNetOptions bottlenecks{.blocks = {1, 1, 1, 1}, .classes = 10, .width = 8};
  models::Gpt2Options gpt{.vocabulary = 60, .positions = 32, .hidden = 32, .layers = 2, .heads = 4};
  models::TransformerXLOptions xl{.vocabulary = 90,
                                  .cutoffs = {40, 60},
                                  .hidden = 32,
                                  .layers = 2,
                                  .heads = 4,
                                  .head_size = 8,
                                  .intermediate = 64,
                                  .memory = 8,
                                  .div_val = 2};
  auto masked = [](nn::Module& m, const Tensors& x) {
    return Tensors{dynamic_cast<models::BertForMaskedLM&>(m).logits(x[0], x[1], x[2])};
  };
  auto masked_inputs = [] {
    return Tensors{randint(0, 60, {2, 12}), randint(0, 2, {2, 12}), randint(0, 8, {2, 12}) > 0};
  };
  auto lstm = [](nn::Module& m, const Tensors& x) {
    nn::LSTMResult r = dynamic_cast<nn::LSTM&>(m)(x[0], x[1], x[2]);
    return Tensors{r.output, r.hidden, r.cell};
  };
  auto lstm_inputs = [] { return Tensors{randn({5, 3, 8}), randn({4, 3, 16}), randn({4, 3, 16})}; };
  return {
      {"Mlp",
       [] {
         return made<models::Mlp>(std::vector<int64_t>{20, 40, 40, 7});
       },
       forward, numbers({3, 20})},
      {"Mlp, one row",
       [] {
         return made<models::Mlp>(std::vector<int64_t>{64, 64, 64, 10});
       },
       forward, numbers({1, 64})},
      {"Cnn", [] { return made<models::Cnn>(models::CnnOptions{.width = 8}); }, forward, numbers({2, 1, 28, 28}), true},
      {"ResNet with bottlenecks", [=] { return made<models::ResNet>(bottlenecks); }, forward, numbers({2, 3, 64, 64}),
       true},
      {"Bert", [] { return made<models::BertForSequenceClassification>(3, kBert); }, forward, tokens(60, 2, 12)},
      {"Bert with a mask", [] { return made<models::BertForMaskedLM>(kBert); }, masked, masked_inputs},
      {"Gpt2", [=] { return made<models::Gpt2>(gpt); }, forward, tokens(60, 2, 12)},
      {"TransformerXL", [=] { return made<models::TransformerXL>(xl); }, forward, tokens(90, 2, 12)},
      {"LSTM", [] { return made<nn::LSTM>(8, 16, nn::RNNOptions{.num_layers = 2, .bidirectional = true}); }, lstm,
       lstm_inputs},
      {"GRU", [] { return made<nn::GRU>(8, 16, nn::RNNOptions{.num_layers = 2, .dropout = 0.25}); }, forward,
       numbers({5, 3, 8})},
  };
}

enum class Mode { f32, autocast, bf16, channels_last };
const char* name_of(Mode m) {
  constexpr const char* names[] = {"f32", "autocast bf16", "bf16 weights", "channels_last"};
  return names[static_cast<int>(m)];
}
DType type_of(Mode m) { return m == Mode::bf16 ? DType::bf16 : DType::f32; }
double eps_of(Mode m) { return epsilon_of(m == Mode::f32 || m == Mode::channels_last ? DType::f32 : DType::bf16); }

Tensors as(const Tensors& list, DType dtype, Mode mode = Mode::f32) {
  Tensors out;
  for (const Tensor& t : list) {
    Tensor x = is_floating(t.dtype()) ? t.to(dtype) : t;
    out.push_back(mode == Mode::channels_last && x.dim() == 4 ? x.contiguous(MemoryFormat::channels_last) : x);
  }
  return out;
}

std::unique_ptr<nn::Module> make(const Model& model, Mode mode, bool wide = false) {
  RngScope rng({17, 0});
  std::unique_ptr<nn::Module> m = model.make();
  m->to(type_of(mode));
  if (mode == Mode::channels_last) m->to(MemoryFormat::channels_last);
  if (wide) m->to(DType::f64);
  m->eval();
  return m;
}

bool same(const Tensor& a, const Tensor& b) {
  Tensor x = a.contiguous(), y = b.contiguous();
  return a.sizes() == b.sizes() && a.dtype() == b.dtype() &&
         std::memcmp(x.data_ptr(), y.data_ptr(), static_cast<size_t>(x.numel()) * x.element_size()) == 0;
}
double largest(const Tensor& t) { return t.to(DType::f64).abs().amax().item(); }
double distance(const Tensor& a, const Tensor& b) { return largest(a.to(DType::f64) - b.to(DType::f64)); }

Compiled compiled(const Model& model, nn::Module& m, const graph::PassOptions& passes) {
  return compile([&model, &m](const Tensors& x) { return model.run(m, x); },
                 {.passes = passes, .state = [&m] { return m.fingerprint(); }});
}
const graph::PassOptions kSameBits = graph::without({},
                                                    "fold_batch_norm,fuse_epilogues,fuse_sums,fuse_casts,assign_layout,"
                                                    "fuse_attention,narrow_early,merge_siblings,pack_rows");

// Guards as a mode wants them.
struct Modes {
  Modes(Mode mode, bool in_inference) : inference(in_inference) {
    if (mode == Mode::autocast) autocast.emplace(DType::bf16);
  }
  InferenceModeGuard inference;
  NoGradGuard no_grad;
  std::optional<AutocastGuard> autocast;
};

void check(const Model& model, Mode mode, bool in_inference) {
  SCOPED_TRACE(std::string(model.name) + ", " + name_of(mode) + (in_inference ? ", inference_mode" : ", no_grad"));
  std::unique_ptr<nn::Module> m = make(model, mode), wide = make(model, mode, true);
  Compiled exact = compiled(model, *m, kSameBits), fast = compiled(model, *m, {});
  RngScope rng({23, 0});
  double instructions = 0;
  for (int call = 0; call < 3; ++call) {
    Tensors x = as(model.inputs(), type_of(mode), mode), wanted, found, reference;
    {
      Modes modes(mode, in_inference);
      if (!call) {
        auto run = [&](const Tensors& in) { return model.run(*m, in); };
        instructions = static_cast<double>(graph::capture(run, x).graph.instructions.size());
      }
      wanted = model.run(*m, x);
      Tensors bits = exact.run(x);
      found = fast.run(x);
      for (size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(same(bits[i], wanted[i])) << "call " << call;
    }
    {
      NoGradGuard no_grad;
      reference = model.run(*wide, as(x, DType::f64));
    }
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      double eps = eps_of(mode), size = std::max(1.0, largest(reference[i]));
      EXPECT_LE(distance(found[i], wanted[i]), instructions * eps * size) << "call " << call;
      EXPECT_LE(distance(found[i], reference[i]), 1.5 * distance(wanted[i], reference[i]) + eps * size)
          << "call " << call;
    }
  }
  EXPECT_EQ(fast.stats().captures, 1);
  EXPECT_EQ(fast.stats().replays, 2);
}

class CompiledModel : public ::testing::TestWithParam<size_t> {
 protected:
  const std::vector<Model> all_ = all_models();
  const Model& model() const { return all_[GetParam()]; }
};

TEST_P(CompiledModel, InEveryMode) {
  for (Mode mode : {Mode::f32, Mode::autocast, Mode::bf16, Mode::channels_last})
    for (bool in_inference : {false, true})
      if (mode != Mode::channels_last || model().images) check(model(), mode, in_inference);
}

// Dropout draws what eager mode would, and statistics move as they would; nothing else changes.
TEST_P(CompiledModel, InTrainModeWithoutGradients) {
  for (bool all_passes : {false, true}) {
    SCOPED_TRACE(std::string(model().name) + (all_passes ? ", all passes" : ", same bits"));
    std::unique_ptr<nn::Module> m = make(model(), Mode::f32), twin = make(model(), Mode::f32);
    m->train();
    twin->train();
    Compiled fast = compiled(model(), *m, all_passes ? graph::PassOptions{} : kSameBits);
    RngScope outer({29, 0});
    NoGradGuard no_grad;
    for (uint64_t call = 0; call < 3; ++call) {
      Tensors x = model().inputs(), wanted, found;
      {
        RngScope rng({31, call});
        wanted = model().run(*twin, x);
      }
      {
        RngScope rng({31, call});
        found = fast.run(x);
      }
      for (size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_TRUE(all_passes || same(found[i], wanted[i])) << "call " << call;
        EXPECT_LE(distance(found[i], wanted[i]), 500 * epsilon_of(DType::f32) * std::max(1.0, largest(wanted[i])));
      }
    }
    EXPECT_EQ(fast.stats().replays, 2);
    auto state = m->state_dict(), expected = twin->state_dict();
    for (size_t i = 0; i < state.size(); ++i) {
      const Tensor &a = state[i].tensor, &b = expected[i].tensor;
      EXPECT_TRUE(all_passes || same(a, b)) << state[i].name;
      EXPECT_LE(distance(a, b), 500 * epsilon_of(DType::f32) * std::max(1.0, largest(b))) << state[i].name;
    }
  }
}

// Milliseconds that each part of a compilation takes. For people: DEFT_COMPILE_TIMES=1.
void print_times(const char* name, nn::Module& m, const Tensor& x) {
  m.eval();
  InferenceModeGuard inference;
  auto run = [&](const Tensors& in) { return forward(m, in); };
  auto now = [] {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  for (const char* state : {"cold", "warm"}) {
    double start = now();
    graph::Captured captured = graph::capture(run, {x});
    double after_capture = now();
    std::vector<graph::Dependency> dependencies;
    graph::Notes notes;
    size_t instructions = captured.graph.instructions.size();
    graph::run_passes(captured.graph, {}, dependencies, notes);
    double after_passes = now();
    graph::Executable plan(std::move(captured.graph));
    double built = now();
    double eager = now();
    run({x});
    eager = now() - eager;
    std::cout << fmt::format(
        "{}, {}: {} instructions; capture {:.1f} ms (the function itself {:.1f}), passes {:.1f}, plan {:.1f}\n", name,
        state, instructions, after_capture - start, eager, after_passes - after_capture, built - after_passes);
  }
}
TEST(CompileTime, OfLargeModels) {
  if (!std::getenv("DEFT_COMPILE_TIMES")) GTEST_SKIP() << "set DEFT_COMPILE_TIMES=1 to see them";
  models::ResNet resnet(models::resnet50_options());
  print_times("ResNet-50", resnet, randn({1, 3, 224, 224}));
  models::Bert bert(models::bert_base_options());
  print_times("BERT-base", bert, randint(0, 30000, {1, 128}));
}

INSTANTIATE_TEST_SUITE_P(Models, CompiledModel, ::testing::Range(size_t{0}, size_t{10}));

}  // namespace
}  // namespace deft
