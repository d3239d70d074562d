// Projections whose weights are trained become one matmul, and so do their gradients.
#include <random>

#include "amp/autocast.h"
#include "core/rounded_copy.h"
#include "graph/training_util.h"
#include "optim/clip_grad.h"

namespace deft {
namespace {

enum class Place { after_norm, before_norm };  // of what the projections read: with a path around them, or without

struct Block : nn::Module {
  Place place;
  std::function<void()> between;  // the first projection and the others
  bool transposed = false;        // values first
  bool copied = false;            // heads, so that their gradients are copied as well
  nn::Linear& first = add<nn::Linear>("first", 12, 64);
  nn::Linear &q, &k, &v;
  nn::LayerNorm& norm = add<nn::LayerNorm>("norm", 64);
  nn::Linear& last;
  Block(Place p, bool bias, int64_t values)
      : place(p),
        q(add<nn::Linear>("q", 64, 64, bias)),
        k(add<nn::Linear>("k", 64, 64, bias)),
        v(add<nn::Linear>("v", 64, values, bias)),
        last(add<nn::Linear>("last", p == Place::after_norm ? 64 : values, 4)) {}
  Tensor heads(const Tensor& x) const {
    Tensor y = x.view({x.size(0), x.size(1), 4, -1}).transpose(1, 2);
    return copied ? y.contiguous() : y;
  }
  Tensor forward(const Tensor& x) override {
    Tensor h = first(x).view({-1, 3, 64});
    Tensor in = place == Place::before_norm ? norm(h) : h;
    Tensor parts[3];
    nn::Linear* layers[] = {&q, &k, &v};
    for (size_t i = 0; i < 3; ++i) {
      if (i == 1 && between) between();
      const size_t at = transposed ? 2 - i : i;
      parts[at] = heads((*layers[at])(in));
    }
    Tensor y = scaled_dot_product_attention(parts[0], parts[1], parts[2]).transpose(1, 2);
    y = y.reshape({y.size(0), 3, -1});
    return last((place == Place::after_norm ? norm(h + y) : y).sum({1}));
  }
};

// Three rows of x for each of y.
Data sequences(int64_t n) { return {randn({3 * n, 12}), randint(0, 4, {n})}; }

struct Case {
  Place place = Place::after_norm;
  bool bias = true;
  int64_t values = 64;
  DType type = DType::f32;
  bool copied = false;
};
Training block(const Case& c, const optim::Maker& kind = sgd(1)) {
  Training t = of(std::make_unique<Block>(c.place, c.bias, c.values), kind);
  dynamic_cast<Block&>(*t.model).copied = c.copied;
  t.step = [inner = t.step, type = c.type](const Tensor& x, const Tensor& y) {
    AutocastGuard autocast(type);
    return inner(x, y);
  };
  return t;
}
Block& model_of(const Training& t) { return dynamic_cast<Block&>(*t.model); }

CompileOptions merging() {
  CompileOptions o;
  o.passes.cost_model = false;  // CPUs do not gain by it
  return o;
}
CompileOptions not_merging() { return {.passes = graph::without(merging().passes, "merge_siblings")}; }

// How far a step of each takes the weights, from the same start.
struct Steps {
  std::vector<Tensor> change;
  std::string explained;
};
Steps step(const Case& c, const CompileOptions& options, const std::function<void(Training&)>& prepare = {}) {
  RngScope random({5, 0});
  Training t = block(c);
  if (prepare) prepare(t);
  Data warm = sequences(4), d = sequences(4);
  auto fast = compile([&](const Tensor& x, const Tensor& y) { return t.step(x, y); }, options);
  for (int i = 0; i < 2; ++i) fast(warm.x, warm.y);
  std::vector<Tensor> before;
  for (const Tensor& p : t.model->parameters()) before.push_back(p.detach().clone());
  fast(d.x, d.y);
  EXPECT_GE(fast.stats().replays, 1);
  Steps s;
  for (size_t i = 0; i < before.size(); ++i) s.change.push_back(t.model->parameters()[i].detach() - before[i]);
  s.explained = fast.explain();
  return s;
}
void expect_close(const Steps& a, const Steps& b, double part) {
  double longest = 0;
  for (const Tensor& t : b.change) longest = std::max(longest, t.norm().item());
  for (size_t i = 0; i < a.change.size(); ++i) {
    // The bias of the keys changes nothing: its gradient is what rounding leaves.
    const double length = std::max(b.change[i].norm().item(), 0.1 * longest);
    const double apart = (a.change[i] - b.change[i]).norm().item();
    EXPECT_LE(apart, part * length) << "parameter " << i << "\n" << a.explained;
  }
}
size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (DType type : {DType::f32, DType::bf16})
    for (Place place : {Place::after_norm, Place::before_norm})
      for (bool bias : {true, false})
        for (int64_t values : {64, 32})
          for (bool copied : {false, true})
            if (place == Place::before_norm || values == 64) all.push_back({place, bias, values, type, copied});
  return all;
}

TEST(MergeGradients, EveryForm) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(testing::Message() << name_of(c.type) << " place " << static_cast<int>(c.place) << " bias " << c.bias
                                    << " values " << c.values << " copied " << c.copied);
    const Steps merged = step(c, merging()), apart = step(c, not_merging());
    expect_close(merged, apart, c.type == DType::f32 ? 1e-5 : 0.02);
    EXPECT_TRUE(contains(merged.explained, "merge_siblings: 3 matmuls into 1")) << merged.explained;
    EXPECT_TRUE(contains(merged.explained, "the gradients of 1 of these")) << merged.explained;
    EXPECT_FALSE(contains(apart.explained, "done: merge_siblings"));
    auto matmuls = [](const Steps& s) {
      return count(s.explained, "= matmul(") + count(s.explained, "= linear(") + count(s.explained, "= fused_linear(");
    };
    EXPECT_EQ(matmuls(apart) - matmuls(merged), 6u) << merged.explained;  // two of three, three times
    EXPECT_EQ(count(apart.explained, "= sum(") - count(merged.explained, "= sum("), c.bias ? 2u : 0u);
  }
}

TEST(MergeGradients, EagerAgrees) {
  for (Place place : {Place::after_norm, Place::before_norm}) {
    const Maker make = [&] { return block({.place = place}, sgd(0.01, 0.9)); };
    RngScope random({7, 0});
    const Data d = sequences(4);
    Found eager = train(make, {d}, false, {}), fast = train(make, {d}, true, merging());
    EXPECT_EQ(fast.stats.captures, 1);
    for (size_t i = 0; i < eager.losses.size(); ++i) EXPECT_NEAR(eager.losses[i].item(), fast.losses[i].item(), 1e-4);
    EXPECT_TRUE(contains(fast.explained, "the gradients of 1 of these")) << fast.explained;
  }
}

// CPUs do not gain by it, and say so.
TEST(MergeGradients, OnlyWhereItPays) {
  const Steps s = step({}, {});
  EXPECT_TRUE(contains(s.explained, "as fast one by one where weights are trained")) << s.explained;
}

TEST(MergeGradients, WhatMustStay) {
  using Prepare = std::function<void(Training&)>;
  const std::pair<const char*, Prepare> cases[] = {
      // A weight is frozen; a projection is, whose gradient of the input comes in between.
      {"not of one form", [](Training& t) { model_of(t).k.weight.requires_grad_(false); }},
      {"not summed one after the other",
       [](Training& t) {
         for (const Tensor& p : model_of(t).k.parameters()) p.requires_grad_(false);
       }},
      // Weights that change within the call.
      {"written in between",
       [](Training& t) {
         model_of(t).between = [m = &model_of(t)] {
           NoGradGuard off;
           m->k.weight.mul_(0.5);
         };
       }},
      // The gradients go to the caller.
      {"not of one form",
       [](Training& t) {
         t.step = [m = t.model.get(), o = t.optimizer.get()](const Tensor& x, const Tensor& y) {
           Tensor loss = cross_entropy((*m)(x), y);
           o->zero_grad();
           loss.backward();
           o->step();
           return loss;
         };
       }},
  };
  for (const auto& [why, prepare] : cases) {
    for (DType type : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(why);
      const Case c{.type = type};
      const Steps merged = step(c, merging(), prepare), apart = step(c, not_merging(), prepare);
      expect_close(merged, apart, type == DType::f32 ? 1e-5 : 0.02);
      EXPECT_FALSE(contains(merged.explained, "of these")) << merged.explained;
      EXPECT_TRUE(contains(merged.explained, why)) << merged.explained;
    }
  }
}

// Copies that are kept already, one by one or in another order, are not taken for those of this plan.
TEST(MergeGradients, OtherPlansKeepOtherCopies) {
  for (bool merged : {true, false}) {
    SCOPED_TRACE(merged);
    const Case c{.type = DType::bf16};
    Training t = block(c, sgd(0.02)), other = block(c, sgd(0.02));
    other.model->load_state_dict(t.model->state_dict());
    Data d = sequences(4);
    auto before =
        compile([&](const Tensor& x, const Tensor& y) { return t.step(x, y); }, merged ? merging() : not_merging());
    for (int i = 0; i < 2; ++i) before(d.x, d.y);
    for (int i = 0; i < 2; ++i) other.step(d.x, d.y);
    model_of(t).transposed = model_of(other).transposed = true;
    auto after = compile([&](const Tensor& x, const Tensor& y) { return t.step(x, y); }, merging());
    for (int i = 0; i < 3; ++i) EXPECT_NEAR(after(d.x, d.y).item(), other.step(d.x, d.y).item(), 0.02);
    EXPECT_TRUE(contains(after.explain(), "the gradients of 1 of these"));
  }
}

// Casts that share a buffer are kept from step to step as others are.
TEST(MergeGradients, KeepsCasts) {
  Training t = block({.type = DType::bf16}, sgd(0.1));
  Data d = sequences(4), other = sequences(2);
  auto fast = compile([&](const Tensor& x, const Tensor& y) { return t.step(x, y); }, merging());
  for (int i = 0; i < 2; ++i) fast(d.x, d.y);
  EXPECT_TRUE(contains(fast.explain(), "the gradients of 1 of these")) << fast.explain();
  auto copies = [&] {
    std::vector<std::shared_ptr<const Tensor>> found;
    for (nn::Linear* l : {&model_of(t).q, &model_of(t).k, &model_of(t).v}) {
      found.push_back(find_rounded_copy(l->weight));
      EXPECT_TRUE(found.back() && same_bits(*found.back(), l->weight.detach().to(DType::bf16)));
    }
    return found;
  };
  const auto first = copies();
  const char* begin = static_cast<const char*>(first[0]->data_ptr());
  EXPECT_EQ(static_cast<const char*>(first[2]->data_ptr()) - begin, 2 * 64 * 64 * 2);
  for (int i = 0; i < 2; ++i) fast(other.x, other.y);  // a second plan, on the same copies
  EXPECT_EQ(fast.stats().captures, 2);
  EXPECT_EQ(copies(), first);
  {
    NoGradGuard off;
    model_of(t).k.weight.mul_(2);  // no longer rounded
  }
  EXPECT_FALSE(find_rounded_copy(model_of(t).k.weight));
  fast(d.x, d.y);
  EXPECT_EQ(copies(), first);
}

// --- Blocks drawn at random: projections of one or two inputs, shared, frozen, left out, with gradients that others
// read, too.
struct Drawn : nn::Module {
  enum What { attention, product, gated };
  What what;
  bool residual, twice, dropout, wants_norm;
  int64_t inputs[3];  // which one each projection reads
  nn::Linear& first = add<nn::Linear>("first", 12, 64);
  std::vector<nn::Linear*> layers;
  size_t uses[3];  // which layer each projection is
  nn::LayerNorm& norm = add<nn::LayerNorm>("norm", 64);
  nn::Linear& last = add<nn::Linear>("last", 64, 4);

  explicit Drawn(std::mt19937& random) {
    auto one_of = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint32_t>(n)); };
    what = static_cast<What>(one_of(3));
    residual = one_of(2), twice = one_of(4) == 0, dropout = one_of(4) == 0, wants_norm = one_of(2);
    for (int64_t& i : inputs) i = one_of(5) == 0;
    const bool bias = one_of(2), other_bias = one_of(6) == 0;
    for (size_t i = 0; i < 3; ++i) {
      layers.push_back(&add<nn::Linear>("l" + std::to_string(i), 64, 64, i == 1 && other_bias ? !bias : bias));
      uses[i] = one_of(8) == 0 ? static_cast<size_t>(one_of(static_cast<int64_t>(i) + 1)) : i;
      if (one_of(8) == 0) layers[i]->weight.requires_grad_(false);
    }
  }
  static Tensor heads(const Tensor& x) { return x.view({x.size(0), x.size(1), 4, -1}).transpose(1, 2); }
  Tensor mixed(const Tensor (&p)[3]) const {
    if (what == product) return matmul(matmul(p[0], p[1].transpose(1, 2)), p[2]) / 64;
    if (what == gated) return p[0].sigmoid() * p[1] + p[2];
    Tensor y = scaled_dot_product_attention(heads(p[0]), heads(p[1]), heads(p[2]), {}, dropout ? 0.2 : 0);
    return y.transpose(1, 2).reshape(p[0].sizes());
  }
  Tensor block(const Tensor& h) {
    Tensor in = wants_norm ? norm(h) : h, other = in * 0.5;
    Tensor p[3];
    for (size_t i = 0; i < 3; ++i) p[i] = (*layers[uses[i]])(inputs[i] ? other : in);
    Tensor y = mixed(p);
    return residual ? y + in : y;
  }
  Tensor forward(const Tensor& x) override {
    Tensor h = block(first(x).view({-1, 3, 64}));
    if (twice) h = block(h);
    return last(h.sum({1}));
  }
};

TEST(MergeGradients, RandomBlocks) {
  int merged = 0, gradients = 0, sums = 0;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    std::mt19937 random(seed);
    const DType type = random() % 2 ? DType::bf16 : DType::f32;
    const bool clipped = random() % 4 == 0;
    const uint32_t drawn = random();
    const Maker make = [&] {
      std::mt19937 again(drawn);
      Training t = of(std::make_unique<Drawn>(again), sgd(0.02, 0.9));
      t.step = [m = t.model.get(), o = t.optimizer.get(), type, clipped](const Tensor& x, const Tensor& y) {
        AutocastGuard autocast(type);
        Tensor loss = cross_entropy((*m)(x), y);
        loss.backward();
        if (clipped) optim::clip_grad_norm_(m->parameters(), 0.5);
        o->step();
        o->zero_grad();
        return loss;
      };
      return t;
    };
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RngScope data({seed, 1});
    const Data d = sequences(4);
    const Found apart = train(make, {d}, true, not_merging()), fast = train(make, {d}, true, merging());
    merged += contains(fast.explained, "done: merge_siblings");
    gradients += contains(fast.explained, "of these");
    sums += contains(fast.explained, "sums into matmuls");
    double moved = 0;
    for (size_t i = 0; i < apart.start.size(); ++i)
      moved = std::max(moved, (apart.state[i] - apart.start[i]).abs().amax().item());
    for (size_t i = 0; i < apart.state.size(); ++i) {
      const double error = (apart.state[i] - fast.state[i]).abs().amax().item();
      ASSERT_LE(error, (type == DType::f32 ? 1e-3 : 0.3) * moved) << "tensor " << i << "\n" << fast.explained;
    }
  }
  EXPECT_GT(merged, 60);
  EXPECT_GT(gradients, 15);
  EXPECT_GT(sums, 30);
}

}  // namespace
}  // namespace deft
