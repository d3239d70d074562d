// Programs as users write them, with nothing wrong: no rule may say anything about them. Loaders have no workers here:
// on a busy machine a loop does wait for those, and D020 would be right to say so.
#include <gtest/gtest.h>

#include <unistd.h>
#include <filesystem>

#include "deft/deft.h"
#include "doctor/rule_util.h"

namespace deft {
namespace {

using test::Lint;

// No finding at all, and the program came to its end.
template <class F>
void expect_clean(F&& program) {
  manual_seed(1);
  std::string failure = "it did not end";
  Lint found = test::lint([&] {
    try {
      program();
      failure.clear();
    } catch (const std::exception& e) {
      failure = e.what();
    }
  });
  EXPECT_EQ(failure, "");
  EXPECT_SILENT(found);
}

constexpr int64_t kClasses = 4;

// Points around one centre for each class.
struct Points {
  Tensor x, y;
};
Points points(int64_t n, int64_t features = 16) {
  Tensor y = remainder(arange(n), kClasses).to(DType::i64);
  Tensor centres = randn({kClasses, features}) * 2;
  return {embedding(y, centres) + randn({n, features}) * 0.5, y};
}
std::shared_ptr<data::TensorDataset> dataset_of(const Points& p) {
  return std::make_shared<data::TensorDataset>(NamedTensors{{"x", p.x}, {"y", p.y}});
}

class Classifier : public nn::Module {
 public:
  explicit Classifier(int64_t features = 16, int64_t hidden = 64)
      : first_(add<nn::Linear>("first", features, hidden)),
        norm_(add<nn::BatchNorm1d>("norm", hidden)),
        dropout_(add<nn::Dropout>("dropout", 0.1)),
        last_(add<nn::Linear>("last", hidden, kClasses)) {}
  Tensor forward(const Tensor& x) override { return last_(dropout_(relu(norm_(first_(x))))); }

 private:
  nn::Linear& first_;
  nn::BatchNorm1d& norm_;
  nn::Dropout& dropout_;
  nn::Linear& last_;
};

TEST(CleanPrograms, AClassifierWithAdamWAndValidation) {
  expect_clean([] {
    const Points train = points(512), held_out = points(128);
    data::DataLoader loader(dataset_of(train), {.batch_size = 32, .shuffle = true, .workers = 0});
    data::DataLoader validation(dataset_of(held_out), {.batch_size = 64, .workers = 0});
    Classifier model;
    optim::AdamW adam(model.parameters(), {.lr = 1e-2, .weight_decay = 0.01});
    double first = 0, last = 0;
    for (int epoch = 0; epoch < 3; ++epoch) {
      model.train();
      double total = 0;
      for (data::Batch& batch : loader) {
        adam.zero_grad();
        Tensor loss = cross_entropy(model(batch["x"]), batch["y"]);
        loss.backward();
        adam.step();
        total += loss.item<double>();
      }
      (epoch == 0 ? first : last) = total;
      model.eval();
      NoGradGuard off;
      double right = 0, sum = 0;
      for (data::Batch& batch : validation) {
        Tensor logits = model(batch["x"]);
        sum += cross_entropy(logits, batch["y"]).item<double>();
        right += logits.argmax(1).eq(batch["y"]).sum().item<double>();
      }
      EXPECT_TRUE(std::isfinite(sum) && right >= 0);
    }
    EXPECT_LT(last, first);
  });
}

TEST(CleanPrograms, AutocastWithAGradScaler) {
  expect_clean([] {
    const Points data = points(256);
    Classifier model;
    optim::SGD sgd(model.parameters(), {.lr = 0.05, .momentum = 0.9});
    optim::GradScaler scaler({.scale = 256, .growth_interval = 10});
    double first = 0, last = 0;
    for (int step = 0; step < 32; ++step) {
      const int64_t at = step % 8 * 32;
      Tensor loss;
      {
        AutocastGuard autocast;
        loss = cross_entropy(model(data.x.narrow(0, at, 32)), data.y.narrow(0, at, 32));
      }
      sgd.zero_grad();
      scaler.scale(loss).backward();
      scaler.unscale_(sgd);
      optim::clip_grad_norm_(model.parameters(), 1.0);
      scaler.step(sgd);
      scaler.update();
      (step == 0 ? first : last) = loss.item<double>();
    }
    EXPECT_LT(last, first);
  });
}

TEST(CleanPrograms, AccumulatedAndClippedGradients) {
  expect_clean([] {
    const Points all = points(512);
    data::DataLoader loader(dataset_of(all), {.batch_size = 16, .shuffle = true, .workers = 0});
    Classifier model;
    optim::AdamW adam(model.parameters(), {.lr = 1e-2});
    constexpr int kParts = 4;
    double sum = 0;
    for (int epoch = 0; epoch < 2; ++epoch) {
      int part = 0;
      for (data::Batch& batch : loader) {
        Tensor loss = cross_entropy(model(batch["x"]), batch["y"]) / kParts;
        loss.backward();
        sum += loss.item<double>();
        if (++part % kParts) continue;
        optim::clip_grad_norm_(model.parameters(), 1.0);
        adam.step();
        adam.zero_grad();
      }
    }
    EXPECT_TRUE(std::isfinite(sum));
  });
}

class LanguageModel : public nn::Module {
 public:
  LanguageModel(int64_t words, int64_t width)
      : embedding_(add<nn::Embedding>("embedding", words, width)),
        lstm_(add<nn::LSTM>("lstm", width, width)),
        head_(add<nn::Linear>("head", width, words)) {}
  // [steps, batch] -> logits; the state goes on.
  Tensor run(const Tensor& tokens, Tensor& hidden, Tensor& cell) {
    nn::LSTMResult r = lstm_(embedding_(tokens), hidden, cell);
    hidden = r.hidden;
    cell = r.cell;
    return head_(r.output);
  }

 private:
  nn::Embedding& embedding_;
  nn::LSTM& lstm_;
  nn::Linear& head_;
};

TEST(CleanPrograms, AnLstmWhoseStateIsCarriedOverSteps) {
  expect_clean([] {
    constexpr int64_t kWords = 11, kLength = 12, kRows = 8, kPieces = 24;
    Tensor stream = remainder(arange(kLength * kPieces + 1), kWords).to(DType::i64).unsqueeze(1).expand({-1, kRows});
    LanguageModel model(kWords, 24);
    optim::AdamW adam(model.parameters(), {.lr = 1e-2});
    Tensor hidden = zeros({1, kRows, 24}), cell = zeros({1, kRows, 24});
    double first = 0, last = 0;
    for (int64_t piece = 0; piece < kPieces; ++piece) {
      Tensor in = stream.narrow(0, piece * kLength, kLength), out = stream.narrow(0, piece * kLength + 1, kLength);
      hidden = hidden.detach();
      cell = cell.detach();
      Tensor logits = model.run(in, hidden, cell);
      Tensor loss = cross_entropy(logits.reshape({-1, kWords}), out.reshape({-1}));
      adam.zero_grad();
      loss.backward();
      optim::clip_grad_norm_(model.parameters(), 5.0);
      adam.step();
      (piece == 0 ? first : last) = loss.item<double>();
    }
    EXPECT_LT(last, first);
  });
}

class Transfer : public nn::Module {
 public:
  Transfer() : body(add<Classifier>("body")), head(add<nn::Linear>("head", kClasses, 2)) {}
  Tensor forward(const Tensor& x) override { return head(relu(body(x))); }
  Classifier& body;
  nn::Linear& head;
};

TEST(CleanPrograms, AHeadOnAFrozenBody) {
  expect_clean([] {
    const Points data = points(256);
    Tensor target = remainder(data.y, 2);
    Transfer model;
    model.body.freeze();
    model.train();
    optim::AdamW adam(model.head.parameters(), {.lr = 1e-2, .weight_decay = 0.1});
    double first = 0, last = 0;
    for (int step = 0; step < 32; ++step) {
      const int64_t at = step % 8 * 32;
      Tensor loss = cross_entropy(model(data.x.narrow(0, at, 32)), target.narrow(0, at, 32));
      adam.zero_grad();
      loss.backward();
      adam.step();
      (step == 0 ? first : last) = loss.item<double>();
    }
    EXPECT_LT(last, first);
  });
}

class Net : public nn::Module {
 public:
  Net(int64_t in, int64_t out) : a_(add<nn::Linear>("a", in, 32)), b_(add<nn::Linear>("b", 32, out)) {}
  Tensor forward(const Tensor& x) override { return b_(leaky_relu(a_(x), 0.2)); }

 private:
  nn::Linear &a_, &b_;
};

TEST(CleanPrograms, AGanWithTwoOptimizers) {
  expect_clean([] {
    Net generator(8, 2), critic(2, 1);
    optim::AdamW of_generator(generator.parameters(), {.lr = 1e-3}), of_critic(critic.parameters(), {.lr = 1e-3});
    const Tensor real_label = ones({32, 1}), fake_label = zeros({32, 1});
    for (int step = 0; step < 40; ++step) {
      Tensor real = randn({32, 2}) * 0.1 + 1, fake = generator(randn({32, 8}));
      of_critic.zero_grad();
      Tensor loss = binary_cross_entropy_with_logits(critic(real), real_label) +
                    binary_cross_entropy_with_logits(critic(fake.detach()), fake_label);
      loss.backward();
      of_critic.step();

      of_generator.zero_grad();
      Tensor fooled = binary_cross_entropy_with_logits(critic(fake), real_label);
      fooled.backward();
      of_generator.step();
      EXPECT_TRUE(std::isfinite(loss.item<double>() + fooled.item<double>()));
    }
  });
}

TEST(CleanPrograms, AServerThatAnswersRequests) {
  expect_clean([] {
    Classifier model;
    model.eval();
    int64_t answered = 0;
    for (int request = 0; request < 200; ++request) {
      InferenceModeGuard guard;
      Tensor rows = randn({1 + request % 3, 16});
      Tensor p = softmax(model(rows), 1);
      const std::vector<int64_t> answers = p.argmax(1).to_vector<int64_t>();
      answered += static_cast<int64_t>(answers.size());
    }
    EXPECT_EQ(answered, 399);
  });
}

TEST(CleanPrograms, ACompiledTrainingStep) {
  expect_clean([] {
    const Points data = points(256);
    Net model(16, kClasses);
    optim::SGD sgd(model.parameters(), {.lr = 0.05});
    Compiled step = compile([&](const Tensor& x, const Tensor& y) {
      Tensor loss = cross_entropy(model(x), y);
      loss.backward();
      sgd.step();
      sgd.zero_grad();
      return loss;
    });
    double first = 0, last = 0;
    for (int i = 0; i < 40; ++i) {
      const int64_t at = i % 8 * 32;
      Tensor loss = step(data.x.narrow(0, at, 32).contiguous(), data.y.narrow(0, at, 32).contiguous());
      (i == 0 ? first : last) = loss.item<double>();
    }
    EXPECT_LT(last, first);
    EXPECT_GT(step.stats().replays, 30);
  });
}

TEST(CleanPrograms, AveragesAScheduleAndAResume) {
  const std::string folder =
      (std::filesystem::temp_directory_path() / ("deft-clean-" + std::to_string(getpid()))).string();
  expect_clean([&] {
    const Points all = points(256);
    auto train = [&](int64_t steps) {
      Classifier model;
      optim::AdamW adam(model.parameters(), {.lr = 1e-2});
      optim::CosineAnnealingLR schedule(adam, 64);
      optim::ExponentialMovingAverage ema(model.parameters(), {.decay = 0.9});
      io::CheckpointFolder checkpoints(folder);
      int64_t step = 0;
      if (auto found = checkpoints.newest()) {
        const State& s = found->checkpoint.state;
        model.load_state_dict(s.part("model").tensors);
        adam.load_state(s.part("adam"));
        schedule.load_state(s.part("schedule"));
        ema.load_state(s.part("ema"));
        step = found->checkpoint.info.step;
      }
      double loss_now = 0;
      for (const int64_t end = step + steps; step < end; ++step) {
        const int64_t at = step % 8 * 32;
        Tensor loss = cross_entropy(model(all.x.narrow(0, at, 32)), all.y.narrow(0, at, 32));
        adam.zero_grad();
        loss.backward();
        adam.step();
        schedule.step();
        ema.update();
        loss_now = loss.item<double>();
      }
      State s;
      s.add("model", {.tensors = model.state_dict(), .values = {}});
      s.add("adam", adam.state());
      s.add("schedule", schedule.state());
      s.add("ema", ema.state());
      checkpoints.save(s, {.step = step, .config = "classifier"});

      nn::EvalGuard eval(model);
      NoGradGuard off;
      auto averaged = ema.swap_in();
      Tensor logits = model(all.x);
      EXPECT_TRUE(std::isfinite(cross_entropy(logits, all.y).item<double>()));
      return loss_now;
    };
    const double first = train(16), last = train(24);
    EXPECT_LT(last, first);
  });
  std::filesystem::remove_all(folder);
}

class Tagger : public nn::Module {
 public:
  explicit Tagger(int64_t words)
      : embedding_(add<nn::Embedding>("embedding", words, 32)),
        encoder_(add<nn::TransformerEncoder>(
            "encoder", 32, 4, 2, nn::TransformerOptions{.dim_feedforward = 64, .dropout = 0.1, .batch_first = true})),
        head_(add<nn::Linear>("head", 32, 2)) {}
  Tensor tag(const Tensor& tokens, const Tensor& hidden_keys) {
    return head_(encoder_(embedding_(tokens), {.key_padding_mask = hidden_keys}));
  }

 private:
  nn::Embedding& embedding_;
  nn::TransformerEncoder& encoder_;
  nn::Linear& head_;
};

struct Sentences : data::Dataset {
  std::vector<int64_t> lengths;
  std::vector<data::Field> all{{.name = "tokens", .dtype = DType::i64, .shape = {-1}},
                               {.name = "tags", .dtype = DType::i64, .shape = {-1}, .pad = -100}};
  Sentences() {
    for (int64_t i = 0; i < 256; ++i) lengths.push_back(i % 5 ? 5 + i % 4 : 30 + i % 3);
  }
  int64_t size() const override { return static_cast<int64_t>(lengths.size()); }
  const std::vector<data::Field>& fields() const override { return all; }
  void get(int64_t index, data::SampleWriter& out) const override {
    const int64_t n = lengths[static_cast<size_t>(index)];
    int64_t *tokens = out.varying<int64_t>(0, {n}), *tags = out.varying<int64_t>(1, {n});
    for (int64_t i = 0; i < n; ++i) {
      tokens[i] = (index * 7 + i * 3) % 20;
      tags[i] = tokens[i] % 2;
    }
  }
};

TEST(CleanPrograms, ATransformerOnBucketsWithMasks) {
  expect_clean([] {
    auto sentences = std::make_shared<Sentences>();
    auto buckets = std::make_shared<data::BucketSampler>(sentences->lengths,
                                                         data::BucketOptions{.rows = 16, .boundaries = {8, 32}});
    data::DataLoader loader(sentences, {.batch_sampler = buckets, .workers = 0});
    Tagger model(20);
    optim::AdamW adam(model.parameters(), {.lr = 3e-3});
    double first = 0, last = 0;
    for (int epoch = 0; epoch < 3; ++epoch) {
      double total = 0;
      for (data::Batch& batch : loader) {
        Tensor mask = data::padding_mask(batch.lengths("tokens"));
        Tensor logits = model.tag(batch["tokens"], data::hidden_keys(mask));
        Tensor loss = cross_entropy(logits.reshape({-1, 2}), batch["tags"].reshape({-1}));
        adam.zero_grad();
        loss.backward();
        adam.step();
        total += loss.item<double>();
      }
      (epoch == 0 ? first : last) = total;
    }
    EXPECT_LT(last, first);
  });
}

TEST(CleanPrograms, ABertThatComputesItsLayersAgain) {
  expect_clean([] {
    models::BertForSequenceClassification model(
        2, {.vocabulary = 40, .hidden = 32, .layers = 2, .heads = 2, .intermediate = 64, .positions = 16});
    optim::AdamW adam(model.parameters(), {.lr = 1e-3});
    for (int step = 0; step < 12; ++step) {
      Tensor tokens = randint(0, 40, {8, 16}), labels = remainder(tokens.select(1, 0), 2);
      Tensor logits = checkpoint([&](const Tensors& in) { return Tensors{model.logits(in[0])}; }, {tokens})[0];
      Tensor loss = cross_entropy(logits, labels);
      adam.zero_grad();
      loss.backward();
      adam.step();
      EXPECT_TRUE(std::isfinite(loss.item<double>()));
    }
  });
}

struct Swish : Function<Swish> {
  static Tensor forward(FunctionContext& ctx, const Tensor& x) {
    ctx.save_for_backward({x});
    return x * sigmoid(x);
  }
  static Tensors backward(FunctionContext& ctx, const Tensors& grads) {
    Tensor x = ctx.saved()[0], s = sigmoid(x);
    return {grads[0] * (s + x * s * (1 - s))};
  }
};

class Critic : public nn::Module {
 public:
  Critic() : a_(add<nn::Linear>("a", 2, 32)), b_(add<nn::Linear>("b", 32, 1)) {}
  Tensor forward(const Tensor& x) override { return b_(Swish::apply(a_(x))); }

 private:
  nn::Linear &a_, &b_;
};

TEST(CleanPrograms, AGradientPenaltyThroughACustomFunction) {
  expect_clean([] {
    Critic critic;
    optim::Adam adam(critic.parameters(), {.lr = 1e-3, .beta1 = 0.5});
    int64_t seen = 0;
    for (int step = 0; step < 30; ++step) {
      Tensor real = randn({32, 2}) + 1, fake = randn({32, 2});
      Tensor mixed = (real * 0.5 + fake * 0.5).requires_grad_();
      Tensor scores = critic(mixed);
      scores.register_hook([&](const Tensor& g) {
        ++seen;
        return g;
      });
      Tensor slope = grad({scores.sum()}, {mixed}, {}, {.create_graph = true})[0];
      Tensor penalty = (slope.square().sum({1}).sqrt() - 1).square().mean();
      Tensor loss = critic(fake).mean() - critic(real).mean() + penalty * 10;
      adam.zero_grad();
      loss.backward();
      adam.step();
      EXPECT_TRUE(std::isfinite(loss.item<double>()));
    }
    EXPECT_GE(seen, 30);
  });
}

TEST(CleanPrograms, AnEpochInBatchesAndAStreamInChunks) {
  expect_clean([] {
    models::Cnn model({.channels = 1, .classes = 4, .width = 8});
    const Tensor pictures = randn({96, 1, 16, 16});
    model.eval();
    {
      NoGradGuard off;
      for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(model(pictures.narrow(0, i * 8, 8)).size(1), 4);
    }
    for (int chunk = 0; chunk < 12; ++chunk) {
      NoGradGuard off;
      EXPECT_EQ(model(randn({4, 1, 16, 16})).size(0), 4);
    }
  });
}

}  // namespace
}  // namespace deft
