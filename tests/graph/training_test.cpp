// Whole training steps, compiled: parameters, buffers and gradients after a few steps are those of eager mode.
#include "graph/training_util.h"

#include <cmath>

#include "amp/autocast.h"
#include "base/error.h"
#include "core/checkpoint.h"
#include "core/grad_mode.h"
#include "core/graph_stats.h"
#include "core/hooks.h"
#include "optim/clip_grad.h"
#include "optim/ema.h"
#include "optim/grad_scaler.h"
#include "optim/lr_scheduler.h"

namespace deft {
namespace {

TEST(CompiledStep, EveryOptimizer) {
  for (const auto& [name, kind] : optim::all_kinds())
    expect_same_bits([&] { return plain(kind); }, {rows(), rows()}, name);
}

TEST(CompiledStep, MasterWeightsOf16BitParameters) {
  for (const auto& [name, kind] : optim::all_kinds(true)) {
    auto make = [&] {
      Training s = plain(sgd());
      s.model->to(DType::bf16);
      s.optimizer = kind(s.model->parameters());
      s.step = [m = s.model.get(), o = s.optimizer.get()](const Tensor& x, const Tensor& y) {
        Tensor loss = cross_entropy((*m)(x.to(DType::bf16)).to(DType::f32), y);
        loss.backward();
        o->step();
        o->zero_grad();
        return loss;
      };
      return s;
    };
    expect_same_bits(make, {rows()}, name);
  }
}

TEST(CompiledStep, SchedulesInsideAndOutside) {
  auto make = [] {
    Training s = plain(sgd(0.5, 0.9));
    auto schedule = std::make_shared<optim::StepLR>(*s.optimizer, 2, 0.5);
    s.step = [inner = s.step, schedule](const Tensor& x, const Tensor& y) {
      Tensor loss = inner(x, y);
      schedule->step();
      return loss;
    };
    return s;
  };
  expect_same_bits(make, {rows()});
  Training a = plain(sgd(0.5)), b = plain(sgd(0.5));
  b.model->load_state_dict(a.model->state_dict());
  auto fast = compile(b.step, exact());
  for (double lr : {0.5, 0.5, 0.1, 0.0, 2.0}) {
    Data d = rows();
    a.optimizer->set_lr(lr), b.optimizer->set_lr(lr);
    a.step(d.x, d.y), fast(d.x, d.y);
  }
  EXPECT_EQ(fast.stats().captures, 1);
  for (size_t i = 0; i < a.model->parameters().size(); ++i)
    EXPECT_TRUE(same_bits(a.model->parameters()[i], b.model->parameters()[i])) << i;
}

TEST(CompiledStep, Clipping) {
  for (double norm_type : {2.0, 1.0}) {
    auto make = [&] {
      Training s = plain(sgd(0.5));
      s.step = [m = s.model.get(), o = s.optimizer.get(), norm_type](const Tensor& x, const Tensor& y) {
        Tensor loss = cross_entropy((*m)(x), y);
        loss.backward();
        optim::clip_grad_norm_(m->parameters(), 0.3, norm_type);
        o->step();
        o->zero_grad();
        return loss;
      };
      return s;
    };
    expect_same_bits(make, {rows(), {randn({6, 12}) * 30, randint(0, 4, {6})}});
  }
  Training s = plain(sgd());
  auto by_norm = compile([&](const Tensor& x, const Tensor& y) {
    Tensor loss = cross_entropy((*s.model)(x), y);
    loss.backward();
    s.optimizer->step({.grad_scale = optim::clip_factor(optim::grad_norm(s.model->parameters()), 1)});
    return loss;
  });
  Data d = rows();
  EXPECT_TRUE(contains(message_of<CaptureError>([&] { by_norm(d.x, d.y); }), "grad_norm()"));
}

// Overflows are found at replay, the step is left out, and the scale of the next call is another.
TEST(CompiledStep, LossScaling) {
  for (bool unscale : {false, true}) {
    auto make = [&] {
      Training s = plain(sgd(0.05, 0.9));
      auto scaler = std::make_shared<optim::GradScaler>(optim::GradScalerOptions{.scale = 1024, .growth_interval = 1});
      s.step = [=, m = s.model.get(), o = s.optimizer.get()](const Tensor& x, const Tensor& y) {
        Tensor loss;
        {
          AutocastGuard amp(DType::f16);
          loss = cross_entropy((*m)(x), y);
        }
        scaler->scale(loss).backward();
        if (unscale) {
          scaler->unscale_(*o);
          optim::clip_grad_norm_(m->parameters(), 1);
        }
        scaler->step(*o);
        scaler->update();
        o->zero_grad();
        return loss;
      };
      return s;
    };
    Data bad = rows();
    bad.x.fill_(1e6);  // infinite in f16
    expect_same_bits(make, {rows(), rows(), bad, rows()}, unscale ? "unscaled" : "scaled");
  }
}

TEST(CompiledStep, Averages) {
  auto make = [] {
    Training s = plain(sgd(0.3));
    auto ema = std::make_shared<optim::ExponentialMovingAverage>(s.model->parameters(),
                                                                 optim::EMAOptions{.decay = 0.9, .warmup = true});
    s.state = ema->averages();
    s.step = [inner = s.step, ema](const Tensor& x, const Tensor& y) {
      Tensor loss = inner(x, y);
      ema->update();
      return loss + ema->averages()[0].sum() * 0;  // reads what the call wrote
    };
    s.step = [inner = s.step](const Tensor& x, const Tensor& y) { return inner(x, y).detach(); };
    return s;
  };
  expect_same_bits(make, {rows()});
}

// --- What layers do in training.

TEST(CompiledStep, DropoutDrawsOnceForBothPasses) {
  struct Dropping : nn::Module {
    nn::Linear &a = add<nn::Linear>("a", 12, 16), &b = add<nn::Linear>("b", 16, 4);
    nn::Dropout& drop = add<nn::Dropout>("drop", 0.5);
    Tensor forward(const Tensor& x) override { return b(drop(a(x).relu())); }
  };
  auto make = [] { return of(std::make_unique<Dropping>()); };
  expect_same_bits(make, {rows()});
}

TEST(CompiledStep, AttentionDropout) {
  struct Attending : nn::Module {
    nn::MultiheadAttention& attention =
        add<nn::MultiheadAttention>("attention", 12, 3, nn::MultiheadAttentionOptions{.dropout = 0.3});
    nn::Linear& head = add<nn::Linear>("head", 12, 4);
    Tensor forward(const Tensor& x) override {
      Tensor q = x.unsqueeze(0);
      return head(attention(q, q, q)).squeeze(0);
    }
  };
  auto make = [] { return of(std::make_unique<Attending>()); };
  expect_same_bits(make, {rows()});
}

struct Normed : nn::Module {
  nn::Linear &a = add<nn::Linear>("a", 12, 16), &b = add<nn::Linear>("b", 16, 4);
  nn::BatchNorm1d& norm = add<nn::BatchNorm1d>("norm", 16);
  Tensor forward(const Tensor& x) override { return b(norm(a(x)).relu()); }
};

TEST(CompiledStep, BatchNormMovesItsStatistics) {
  auto make = [] { return of(std::make_unique<Normed>()); };
  expect_same_bits(make, {rows(), rows()});
  // Also where its result has no reader.
  nn::BatchNorm1d norm(12);
  auto only = compile([&](const Tensor& x) {
    norm(x);
    return x * 2;
  });
  NoGradGuard no_grad;
  Tensor x = randn({6, 12});
  for (int i = 0; i < 3; ++i) only(x);
  EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 3);
  EXPECT_NEAR(norm.running_mean[0].item(), x.mean({0})[0].item() * (1 - std::pow(0.9, 3)), 1e-6);
}

TEST(CompiledStep, StatisticsReadByTheHostAreRefused) {
  Normed model;
  auto step = compile([&](const Tensor& x) {
    Tensor loss = model(x).sum() / (model.norm.num_batches_tracked.item() + 1);
    loss.backward();
    return loss;
  });
  EXPECT_TRUE(contains(message_of<CaptureError>([&] { step(randn({6, 12})); }), "item() reads a value of"));
}

TEST(CompiledStep, Recurrent) {
  struct Recurrent : nn::Module {
    nn::LSTM& lstm = add<nn::LSTM>("lstm", 3, 8, nn::RNNOptions{.batch_first = true});
    nn::Linear& head = add<nn::Linear>("head", 8, 4);
    Tensor forward(const Tensor& x) override { return head(lstm(x.reshape({-1, 4, 3})).output.select(1, 3)); }
  };
  auto make = [] { return of(std::make_unique<Recurrent>()); };
  expect_same_bits(make, {rows()});
  auto with_autocast = [&] {
    Training s = make();
    s.step = [step = s.step](const Tensor& x, const Tensor& y) {
      AutocastGuard autocast(DType::bf16);
      return step(x, y);
    };
    return s;
  };
  expect_same_bits(with_autocast, {rows()}, "autocast");
}

// A value that backward reads and an op in place overwrites.
TEST(CompiledStep, OverwrittenValuesThatBackwardReads) {
  auto make = [] {
    Training s = plain(sgd());
    s.step = [m = static_cast<Net*>(s.model.get()), o = s.optimizer.get()](const Tensor& x, const Tensor& y) {
      Tensor h = m->first(x);
      h.mul_(h.sigmoid());  // the gradient of the sigmoid's side reads the old h
      h.narrow(1, 0, 8).mul_(2);
      Tensor parts = cat({h.narrow(1, 8, 8), h.narrow(1, 0, 8)}, 1) + h.narrow(1, 4, 8).sum() + h.narrow(1, 2, 3).sum();
      Tensor loss = cross_entropy(m->second(parts), y);
      loss.backward();
      o->step();
      o->zero_grad();
      return loss;
    };
    return s;
  };
  expect_same_bits(make, {rows()});
}

// --- Gradients.

TEST(CompiledStep, SeveralBackwardPassesAndZeros) {
  auto make = [] {
    Training s = plain(sgd());
    s.step = [m = s.model.get(), o = s.optimizer.get()](const Tensor& x, const Tensor& y) {
      Tensor sum = zeros({});
      for (int part = 0; part < 3; ++part) {
        Tensor loss = cross_entropy((*m)(x.narrow(0, part * 2, 2)), y.narrow(0, part * 2, 2)) / 3;
        loss.backward();
        sum += loss.detach();
      }
      o->step();
      o->zero_grad();
      return sum;
    };
    return s;
  };
  expect_same_bits(make, {rows()});
}

// .grad of zeros is there from the second call on: another plan, and then no more.
TEST(CompiledStep, GradientsThatStay) {
  auto make = [] {
    Training s = plain(sgd(0.1, 0.9));
    s.step = [m = s.model.get(), o = s.optimizer.get()](const Tensor& x, const Tensor& y) {
      o->zero_grad(false);
      Tensor loss = cross_entropy((*m)(x), y);
      loss.backward();
      o->step();
      return loss;
    };
    return s;
  };
  std::vector<Data> data{rows()};
  Found eager = train(make, data, false, {}), fast = train(make, data, true, exact());
  EXPECT_EQ(fast.stats.captures, 2);
  EXPECT_EQ(fast.stats.replays, kSteps - 2);
  EXPECT_TRUE(contains(fast.explained, "has a gradient; it had none")) << fast.explained;
  ASSERT_EQ(eager.state.size(), fast.state.size());
  for (size_t i = 0; i < eager.state.size(); ++i) EXPECT_TRUE(same_bits(eager.state[i], fast.state[i])) << i;
}

// Accumulation over calls: two plans, whatever tensors the gradients are.
TEST(CompiledStep, BackwardAlone) {
  Training a = plain(sgd()), b = plain(sgd());
  b.model->load_state_dict(a.model->state_dict());
  auto pass = [](Training& s) {
    return [&s](const Tensor& x, const Tensor& y) {
      Tensor loss = cross_entropy((*s.model)(x), y);
      loss.backward();
      return loss;
    };
  };
  auto fast = compile(pass(b), exact());
  for (int step = 0; step < 4; ++step) {
    for (int part = 0; part < 3; ++part) {
      Data d = rows();
      Tensor wanted = pass(a)(d.x, d.y), found = fast(d.x, d.y);
      EXPECT_TRUE(same_bits(wanted.detach(), found));
      EXPECT_FALSE(found.requires_grad());
    }
    std::vector<Tensor> held;
    for (size_t i = 0; i < a.model->parameters().size(); ++i) {
      EXPECT_TRUE(same_bits(a.model->parameters()[i].grad(), b.model->parameters()[i].grad())) << i;
      held.push_back(b.model->parameters()[i].grad());
    }
    for (Training* s : {&a, &b}) s->optimizer->step(), s->optimizer->zero_grad();
    Data d = rows();
    std::vector<Tensor> copies;
    for (const Tensor& t : held) copies.push_back(t.clone());
    pass(a)(d.x, d.y), fast(d.x, d.y);
    for (size_t i = 0; i < held.size(); ++i) EXPECT_TRUE(same_bits(held[i], copies[i])) << "a gradient was overwritten";
    for (Training* s : {&a, &b}) s->optimizer->zero_grad();
  }
  EXPECT_EQ(fast.stats().captures, 2) << fast.explain();
}

TEST(CompiledStep, InputsThatRequireGrad) {
  Tensor w = randn({12});
  auto f = compile([&](const Tensor& x) {
    Tensor loss = (x * w).square().sum();
    loss.backward();
    return loss;
  });
  for (int i = 0; i < 3; ++i) {
    Tensor x = randn({3, 12}).requires_grad_(), copy = x.detach().clone().requires_grad_();
    f(x);
    (copy * w).square().sum().backward();
    EXPECT_TRUE(same_bits(x.grad(), copy.grad()));
  }
  EXPECT_EQ(f.stats().captures, 1);
  EXPECT_THROW(f(randn({3, 12})), GradError);  // nothing requires grad: backward() itself refuses
  Tensor with_history = randn({3, 12}).requires_grad_() * 2;
  EXPECT_TRUE(contains(message_of<CaptureError>([&] { f(with_history); }), "input 0"));
}

TEST(CompiledStep, FrozenParameters) {
  auto make = [] {
    Training s = plain(sgd());
    static_cast<Net*>(s.model.get())->first.weight.requires_grad_(false);
    return s;
  };
  expect_same_bits(make, {rows()});
  RngScope random({5, 0});
  Training s = plain(sgd());
  auto fast = compile(s.step, exact());
  Data d = rows();
  fast(d.x, d.y), fast(d.x, d.y);
  Tensor& w = static_cast<Net*>(s.model.get())->first.weight;
  w.requires_grad_(false);
  Tensor before = w.clone();
  fast(d.x, d.y);
  EXPECT_EQ(fast.misses().back(), "a constant [16, 12] f32 requires grad no more");
  EXPECT_TRUE(same_bits(w, before));
  w.requires_grad_();
  fast(d.x, d.y);
  EXPECT_EQ(fast.stats().captures, 2);  // the first plan is still there
  EXPECT_FALSE(same_bits(w.detach(), before));
}

TEST(CompiledStep, CheckpointsComputeAgain) {
  auto make = [](bool checkpointed, double dropped) {
    return [=] {
      struct Deep : nn::Module {
        std::vector<nn::Linear*> layers;
        nn::Linear& head = add<nn::Linear>("head", 12, 4);
        bool again = false;
        double dropped = 0;
        Deep() {
          for (int i = 0; i < 8; ++i) layers.push_back(&add<nn::Linear>("layer" + std::to_string(i), 12, 12));
        }
        Tensor block(const Tensor& x, size_t first) {
          Tensor h = x;
          for (size_t i = first; i < first + 2; ++i) h = dropout(tanh((*layers[i])(h)), dropped, true);
          return h;
        }
        Tensor forward(const Tensor& x) override {
          Tensor h = x;
          for (size_t i = 0; i < layers.size(); i += 2)
            h = again ? checkpoint([this, i](const Tensors& t) { return Tensors{block(t[0], i)}; }, {h})[0]
                      : block(h, i);
          return head(h);
        }
      };
      auto model = std::make_unique<Deep>();
      model->again = checkpointed;
      model->dropped = dropped;
      return of(std::move(model));
    };
  };
  std::vector<Data> data{rows(512)};
  expect_same_bits(make(true, 0.2), data);
  auto arena = [](const Found& f) { return std::stoll(f.explained.substr(f.explained.find("arena of ") + 9)); };
  Found with = train(make(true, 0), data, true, {}), without = train(make(false, 0), data, true, {});
  EXPECT_LT(arena(with), arena(without) * 3 / 4);  // what is computed again is not kept
}

TEST(CompiledStep, Hooks) {
  Tensor w = ones({3}).requires_grad_();
  int calls = 0;
  auto f = compile([&](const Tensor& x) {
    Tensor y = x * w;
    y.register_hook([](const Tensor& g) { return g * 3; });
    Tensor loss = y.sum();
    loss.backward();
    return loss;
  });
  Tensor x = randn({3});
  for (int i = 0; i < 3; ++i) {
    w.zero_grad();
    f(x);
    EXPECT_TRUE(same_bits(w.grad(), x * 3));
  }
  EXPECT_EQ(f.stats().captures, 1);
  auto counting = compile([&](const Tensor& t) {
    Tensor y = t * w;
    y.register_hook([&](const Tensor&) {
      ++calls;
      return Tensor();
    });
    Tensor loss = y.sum();
    loss.backward();
    return loss;
  });
  EXPECT_TRUE(contains(message_of<CaptureError>([&] { counting(x); }), "a hook on the gradient of mul"));
  w.zero_grad();
  HookHandle handle = register_node_hook(w, [&](std::vector<Tensor>&) { ++calls; });
  w.zero_grad();
  EXPECT_TRUE(contains(message_of<CaptureError>([&] {
                         compile([&](const Tensor& t) {
                           Tensor loss = (t * w).sum();
                           loss.backward();
                           return loss;
                         })(x);
                       }),
                       "a hook on the gradient of leaf"));
  remove_node_hook(w, handle);
}

TEST(CompiledStep, ResultsHaveNoHistory) {
  Tensor w = ones({3}).requires_grad_();
  auto open = compile([&](const Tensor& x) { return x * w; });
  EXPECT_TRUE(contains(message_of<CaptureError>([&] { open(ones({3})); }), "return its detach()"));
  auto closed = compile([&](const Tensor& x) { return (x * w).detach(); });
  EXPECT_TRUE(same_bits(closed(ones({3})), closed(ones({3}))));
  Tensor outside = w * 2;
  auto uses = compile([&](const Tensor& x) { return (x * outside).detach(); });
  EXPECT_TRUE(contains(message_of<CaptureError>([&] { uses(ones({3})); }), "did not make is the result of mul"));
  // Also a result that backward() went through.
  auto both = compile([&](const std::vector<Tensor>& x) {
    Tensor y = x[0] * w, loss = y.square().sum();
    loss.backward();
    return std::vector<Tensor>{loss, y};
  });
  for (int i = 0; i < 2; ++i) {
    w.zero_grad();
    std::vector<Tensor> found = both.run({ones({3})});
    EXPECT_FALSE(found[0].requires_grad() || found[1].requires_grad());
    EXPECT_EQ(found[0].item(), 3);
  }
}

TEST(CompiledStep, NothingIsLeftBehind) {
  Training s = plain(sgd());
  GraphStats before = graph_stats();
  auto fast = compile(s.step);
  Data d = rows();
  for (int i = 0; i < 3; ++i) {
    fast(d.x, d.y);
    EXPECT_EQ(graph_stats().live_nodes, before.live_nodes) << i;
    EXPECT_EQ(graph_stats().saved_bytes, before.saved_bytes) << i;
    for (const Tensor& p : s.model->parameters()) EXPECT_FALSE(p.grad().defined());
  }
#ifndef DEFT_ASAN  // which uses no memory again
  int64_t allocations = system_allocations();
  for (int i = 0; i < 5; ++i) fast(d.x, d.y);
  EXPECT_EQ(system_allocations(), allocations);
#endif
}

TEST(CompiledStep, HostReadsAreRefused) {
  Training s = plain(sgd());
  Data d = rows();
  auto reads = compile([&](const Tensor& x, const Tensor& y) {
    Tensor loss = s.step(x, y);
    loss.item();
    return loss;
  });
  EXPECT_TRUE(contains(message_of<CaptureError>([&] { reads(d.x, d.y); }), "item()"));
  auto reads_weight = compile([&](const Tensor& x, const Tensor& y) {
    double first = s.model->parameters()[1][0].detach().item();
    Tensor loss = s.step(x, y);
    return loss.detach() * first;
  });
  EXPECT_TRUE(contains(message_of<CaptureError>([&] { reads_weight(d.x, d.y); }), "item()"));
  // A constant that is never written is guarded.
  Tensor scale = full({1}, 2);
  auto scaled = compile([&](const Tensor& x) { return x * scale.item(); });
  NoGradGuard no_grad;
  scaled(d.x);
  scale.fill_(3);
  EXPECT_TRUE(same_bits(scaled(d.x), d.x * 3));
  EXPECT_TRUE(contains(scaled.misses().back(), "was written"));
}

TEST(CompiledStep, ShadowsCompareWhatIsWritten) {
  Normed model;
  bool lie = false;
  auto pass = compile(
      [&](const Tensor& x, const Tensor& y) {
        Tensor loss = cross_entropy(model(dropout(x, 0.3, true)), y);
        (lie ? loss * 2 : loss).backward();
        return loss;
      },
      {.shadow = 1});
  Data d = rows();
  for (int i = 0; i < 4; ++i) {
    pass(d.x, d.y);
    EXPECT_EQ(model.norm.num_batches_tracked.item<int64_t>(), i + 1);
  }
  EXPECT_EQ(pass.stats().captures, 2);
  EXPECT_EQ(pass.stats().shadows, 2);
  lie = true;
  EXPECT_TRUE(contains(message_of<InternalError>([&] { pass(d.x, d.y); }), "differs"));
  Training s = plain(sgd());
  auto step = compile(s.step, {.shadow = 1});
  for (int i = 0; i < 3; ++i) step(d.x, d.y);
  EXPECT_EQ(step.stats().shadows, 0);
  EXPECT_TRUE(contains(step.explain(), "left: shadow: the plan calls code"));
}

TEST(CompiledStep, AnomaliesAreSought) {
  Training s = plain(sgd());
  auto fast = compile(s.step);
  Data d = rows();
  fast(d.x, d.y), fast(d.x, d.y);
  AnomalyGuard anomaly;
  d.x.fill_(NAN);
  EXPECT_THROW(fast(d.x, d.y), GradError);
  EXPECT_EQ(fast.stats().replays, 1);
}

}  // namespace
}  // namespace deft
