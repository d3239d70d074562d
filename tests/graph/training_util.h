// What the tests of compiled training share: the same training twice, eager and compiled, and comparisons.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "graph/compile.h"
#include "nn/nn.h"
#include "ops/all_ops.h"
#include "optim/optim_util.h"

namespace deft {

using optim::same_bits;
using Step = std::function<Tensor(const Tensor&, const Tensor&)>;

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

// Only passes that promise the same bits.
inline CompileOptions exact() {
  return {.passes = graph::without(
              {}, "fold_batch_norm,fuse_epilogues,fuse_casts,assign_layout,fuse_attention,merge_siblings,pack_rows")};
}

// A model with all that trains it, made the same way each time.
struct Training {
  std::unique_ptr<nn::Module> model;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::vector<Tensor> state;  // compared beside the model's
  Step step;
};
using Maker = std::function<Training()>;

inline std::vector<Tensor> state_of(const Training& s) {
  std::vector<Tensor> all = s.state;
  for (const NamedTensor& t : s.model->state_dict()) all.push_back(t.tensor);
  for (const Tensor& p : s.model->parameters())
    if (p.grad().defined()) all.push_back(p.grad());
  if (s.optimizer)
    for (const NamedTensor& t : s.optimizer->state().tensors) all.push_back(t.tensor);
  return all;
}

inline constexpr int kSteps = 5;

struct Data {
  Tensor x, y;
};
inline Data images(int64_t n, int64_t side) { return {randn({n, 1, side, side}), randint(0, 10, {n})}; }
inline Data rows(int64_t n = 6) { return {randn({n, 12}), randint(0, 4, {n})}; }

struct Found {
  std::vector<Tensor> losses, state, start;
  CompileStats stats;
  std::string explained;
};
inline Found train(const Maker& make, const std::vector<Data>& data, bool compiled, const CompileOptions& options) {
  RngScope random({11, 0});
  Training s = make();
  Found found;
  for (const Tensor& t : state_of(s)) found.start.push_back(t.detach().clone());
  auto fast = compile([&](const Tensor& x, const Tensor& y) { return s.step(x, y); }, options);
  for (int i = 0; i < kSteps; ++i) {
    const Data& d = data[static_cast<size_t>(i) % data.size()];
    found.losses.push_back((compiled ? fast(d.x, d.y) : s.step(d.x, d.y)).detach().clone());
  }
  for (const Tensor& t : state_of(s)) found.state.push_back(t.detach().clone());
  found.stats = fast.stats();
  found.explained = fast.explain();
  return found;
}

inline void expect_same_bits(const Maker& make, const std::vector<Data>& data, const std::string& what = "") {
  Found eager = train(make, data, false, {}), fast = train(make, data, true, exact());
  EXPECT_EQ(fast.stats.captures, 1) << what << fast.explained;
  EXPECT_EQ(fast.stats.replays, kSteps - 1) << what;
  ASSERT_EQ(eager.state.size(), fast.state.size()) << what;
  bool moved = false;
  for (size_t i = 0; i < eager.losses.size(); ++i) EXPECT_TRUE(same_bits(eager.losses[i], fast.losses[i])) << what << i;
  for (size_t i = 0; i < eager.state.size(); ++i) {
    EXPECT_TRUE(same_bits(eager.state[i], fast.state[i])) << what << ", tensor " << i;
    moved |= i < eager.start.size() && !same_bits(eager.start[i], eager.state[i]);
  }
  EXPECT_TRUE(moved) << what;
}

// All passes: parameters differ by less than `part` of the way that the model's went.
inline void expect_close_state(const Maker& make, const std::vector<Data>& data, double part, const std::string& what) {
  Found eager = train(make, data, false, {}), fast = train(make, data, true, {});
  EXPECT_EQ(fast.stats.captures, 1) << what;
  ASSERT_EQ(eager.state.size(), fast.state.size()) << what;
  double moved = 0;
  auto distance = [](const Tensor& a, const Tensor& b) {
    return a.numel() ? (a.to(DType::f64) - b.to(DType::f64)).abs().amax().item() : 0;
  };
  for (size_t i = 0; i < eager.state.size(); ++i) moved = std::max(moved, distance(eager.state[i], eager.start[i]));
  EXPECT_GT(moved, 0) << what;
  for (size_t i = 0; i < eager.state.size(); ++i) {
    double error = distance(eager.state[i], fast.state[i]);
    EXPECT_TRUE(error <= part * moved) << what << ", tensor " << i << ": " << error << " of " << moved;
  }
}

// --- A small network, and the usual step.

struct Net : nn::Module {
  nn::Linear &first = add<nn::Linear>("first", 12, 16), &second = add<nn::Linear>("second", 16, 4);
  Tensor forward(const Tensor& x) override { return second(gelu(first(x)).relu()); }
};

inline Step usual_step(nn::Module& model, optim::Optimizer& optimizer) {
  return [m = &model, o = &optimizer](const Tensor& x, const Tensor& y) {
    Tensor loss = cross_entropy((*m)(x), y);
    loss.backward();
    o->step();
    o->zero_grad();
    return loss;
  };
}
inline optim::Maker sgd(double lr = 0.1, double momentum = 0) {
  return [=](const std::vector<Tensor>& p) {
    return std::make_unique<optim::SGD>(p, optim::SGDOptions{.lr = lr, .momentum = momentum});
  };
}
inline Training of(std::unique_ptr<nn::Module> model, const optim::Maker& kind = sgd()) {
  Training t{std::move(model), nullptr, {}, {}};
  t.optimizer = kind(t.model->parameters());
  t.step = usual_step(*t.model, *t.optimizer);
  return t;
}
inline Training plain(const optim::Maker& kind) { return of(std::make_unique<Net>(), kind); }

}  // namespace deft
