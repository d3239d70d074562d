// Checkpointing: the same gradients, bit for bit, with nothing saved but the inputs.
#include "core/checkpoint.h"

#include <thread>

#include "core/hooks.h"
#include "core_util.h"

namespace deft {
namespace {

// Zeros and ones from the generator, as dropout would draw them.
Tensor random_mask(const Tensor& like) {
  PhiloxState draw = generator().next_draw();
  Tensor m = zeros(like.sizes(), DType::f64);
  for (int64_t i = 0; i < m.numel(); ++i) m.data<double>()[i] = philox(draw, static_cast<uint64_t>(i))[0] & 1;
  return m;
}

struct Net {
  Tensor w1 = leaf({64}, 1), w2 = leaf({64}, 2);
  Tensors block(const Tensors& in) const {
    Tensor h = (in[0] * w1).tanh();
    h = h * random_mask(h);
    h = (h * w2 + w1).exp();
    return {h.tanh() * in[0]};
  }
  Tensor stack(const Tensor& x, int depth, bool checkpointed) const {
    Tensors h = {x};
    for (int i = 0; i < depth; ++i)
      h = checkpointed ? checkpoint([this](const Tensors& in) { return block(in); }, h) : block(h);
    return h[0];
  }
  std::vector<std::vector<double>> gradients(const Tensor& loss, const Tensor& x) const {
    for (const Tensor& t : {w1, w2, x}) t.zero_grad();
    loss.backward();
    return {values(w1.grad()), values(w2.grad()), values(x.grad())};
  }
};

TEST(Checkpoint, GradientsAreEqualBitForBit) {
  Net net;
  Tensor x = leaf({8, 64}, 3);
  manual_seed(7);
  auto plain = net.gradients(net.stack(x, 4, false).sum(), x);
  PhiloxState after = rng_state();
  manual_seed(7);
  Tensor y = net.stack(x, 4, true);
  EXPECT_EQ(rng_state().offset, after.offset);
  auto again = net.gradients(y.sum(), x);
  EXPECT_EQ(again, plain);
  EXPECT_EQ(rng_state().offset, after.offset) << "the second run draws from its own generator";
}

TEST(Checkpoint, SavesOnlyTheInputs) {
  Net net;
  Tensor x = leaf({8, 64}, 3);
  constexpr int kDepth = 6;
  constexpr int64_t kBytes = 8 * 64 * 8;
  Alive before;
  int64_t plain, kept;
  {
    Tensor y = net.stack(x, kDepth, false);
    plain = Alive().saved - before.saved;
  }
  Tensor y = net.stack(x, kDepth, true);
  kept = Alive().saved - before.saved;
  EXPECT_EQ(kept, (kDepth - 1) * kBytes) << "the inputs of all blocks but the first, which is a leaf";
  EXPECT_GT(plain, 4 * kept);
  MemoryScope scope;
  y.sum().backward();
  EXPECT_LT(scope.peak_bytes(MemoryCategory::saved), before.saved + plain / 2) << "one block at a time";
  EXPECT_EQ(Alive().saved, before.saved);
}

TEST(Checkpoint, Nested) {
  Net net;
  Tensor x = leaf({8, 64}, 3);
  auto pair = [&](const Tensors& in, bool on) {
    auto two = [&net, on](const Tensors& t) {  // runs again in backward: owns what it needs
      Tensors h = on ? checkpoint([&](const Tensors& u) { return net.block(u); }, t) : net.block(t);
      return on ? checkpoint([&](const Tensors& u) { return net.block(u); }, h) : net.block(h);
    };
    return on ? checkpoint(two, in) : two(in);
  };
  auto run = [&](bool on) {
    manual_seed(3);
    Tensors h = pair(pair({x}, on), on);
    if (on) {
      EXPECT_EQ(graph_stats().saved_bytes, 8 * 64 * 8) << "only what lies between the outer two";
    }
    return net.gradients(h[0].sum(), x);
  };
  EXPECT_EQ(run(false), run(true));
  EXPECT_EQ(graph_stats().saved_bytes, 0);
}

TEST(Checkpoint, DoubleBackward) {
  Net net;
  Tensor x = leaf({64}, 3);
  auto run = [&](bool on) {
    manual_seed(3);
    Tensor y = net.stack(x, 2, on);
    Tensor g = grad({y.sum()}, {x}, {}, {.create_graph = true})[0];
    auto second = grad({(g * g).sum()}, {x, net.w1, net.w2});
    return std::vector{values(g), values(second[0]), values(second[1]), values(second[2])};
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(Checkpoint, WithoutGradIsAPlainCall) {
  Tensor x = leaf({4});
  int calls = 0;
  auto f = [&](const Tensors& in) {
    ++calls;
    return Tensors{in[0] * in[0]};
  };
  Alive before;
  Tensor y = no_grad([&] { return checkpoint(f, {x})[0]; });
  EXPECT_FALSE(y.requires_grad());
  EXPECT_TRUE(inference_mode([&] { return checkpoint(f, {x})[0]; }).is_inference());
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(Alive().nodes, before.nodes);
  Tensor z = checkpoint(f, {sample({4})})[0];
  EXPECT_FALSE(z.requires_grad());
  EXPECT_EQ(calls, 3);
}

TEST(Checkpoint, RunsAgainOnlyOnceAndOnlyIfNeeded) {
  Tensor x = leaf({4});
  int calls = 0;
  auto f = [&](const Tensors& in) {
    ++calls;
    EXPECT_TRUE(is_grad_enabled()) << "the same modes as in the first run";
    return Tensors{(in[0] * 2).exp().tanh()};
  };
  Tensor y = checkpoint(f, {x})[0];
  no_grad([&] { y.sum(); });
  Tensor loss = y.sum();
  loss.backward({.retain_graph = true});
  EXPECT_EQ(calls, 2);
  loss.backward();
  EXPECT_EQ(calls, 2);
  auto linear = [&](const Tensors& in) {
    ++calls;
    return Tensors{in[0] + in[0]};
  };
  checkpoint(linear, {x})[0].sum().backward();
  EXPECT_EQ(calls, 3) << "nothing was to be saved";
}

TEST(Checkpoint, SeveralInputsAndOutputsAndUndefined) {
  Tensor a = leaf({3}), b = sample({3}, 2), c = leaf({3}, 3) * 2;
  c.retain_grad();
  auto f = [](const Tensors& in) {
    EXPECT_FALSE(in[3].defined());
    return Tensors{in[0] * in[1], (in[2] * in[0]).exp()};
  };
  Tensors y = checkpoint(f, {a, b, c, Tensor()});
  (y[0] + y[1]).sum().backward();
  Tensor e = (a.detach() * c.detach()).exp();
  expect_close(a.grad(), b + c.detach() * e);
  expect_close(c.grad(), a.detach() * e);
}

TEST(Checkpoint, BackwardOnAnotherThread) {
  Net net;
  Tensor x = leaf({64}, 3);
  manual_seed(5);
  auto plain = net.gradients(net.stack(x, 3, false).sum(), x);
  manual_seed(5);
  Tensor loss = net.stack(x, 3, true).sum();
  std::vector<std::vector<double>> other;
  std::thread([&] { other = net.gradients(loss, x); }).join();
  EXPECT_EQ(other, plain);
}

TEST(Checkpoint, HooksInsideRunOnce) {
  Tensor x = leaf({3});
  int calls = 0;
  auto f = [&](const Tensors& in) {
    Tensor h = in[0].exp();
    h.register_hook([&](const Tensor& g) {
      ++calls;
      return g * 2;
    });
    return Tensors{h.tanh()};
  };
  checkpoint(f, {x})[0].sum().backward();
  EXPECT_EQ(calls, 1);
}

TEST(Checkpoint, ChangedInputIsAnError) {
  Tensor x = leaf({3}), h = x * 2;
  Tensor y = checkpoint([](const Tensors& in) { return Tensors{in[0].exp().tanh()}; }, {h})[0].sum();
  no_grad([&] { h.add_(1); });
  expect_error<InplaceError>([&] { y.backward(); }, "checkpoint: input 0 [3] f64 of the call at checkpoint_test.cpp:");
}

TEST(Checkpoint, DifferentSecondRunIsAnError) {
  Tensor x = leaf({3});
  int calls = 0;
  auto more = [&](const Tensors& in) {
    Tensor h = in[0].exp();
    return Tensors{++calls == 1 ? h : h.exp()};
  };
  Tensor y = checkpoint(more, {x})[0].sum();
  expect_error<GradError>([&] { y.backward(); }, "it must do the same both times");
  calls = 0;
  auto fewer = [&](const Tensors& in) {
    Tensor h = in[0].exp();
    return Tensors{++calls == 1 ? h.exp() : h};
  };
  Tensor z = checkpoint(fewer, {x})[0].sum();
  expect_error<GradError>([&] { z.backward(); },
                          "saved 1 tensors when it ran again in backward and 2 in the first run");
  calls = 0;
  auto shorter = [&](const Tensors& in) { return Tensors{(++calls == 1 ? in[0] + 0 : in[0].narrow(0, 0, 2)).exp()}; };
  Tensor w = checkpoint(shorter, {x})[0].sum();
  expect_error<GradError>([&] { w.backward(); }, "was [3] f64 in the first run and is [2] f64");
}

TEST(Checkpoint, ExceptionsLeaveNothing) {
  expect_leaves_nothing([] {
    Tensor x = leaf({64});
    int calls = 0;
    auto f = [&](const Tensors& in) {
      Tensor h = in[0].exp().tanh();
      if (++calls == 2) throw std::runtime_error("second run");
      return Tensors{h * h};
    };
    Tensor y = checkpoint(f, {x})[0].sum();
    EXPECT_THROW(y.backward({.retain_graph = true}), std::runtime_error);
    EXPECT_TRUE(is_grad_enabled());
    y.backward();  // the third run works
    EXPECT_EQ(calls, 3);
    calls = 1;
    EXPECT_THROW(checkpoint(f, {x}), std::runtime_error);
  });
}

TEST(Checkpoint, DroppedWithoutBackward) {
  expect_leaves_nothing([] {
    Net net;
    Tensor y = net.stack(leaf({64}, 3), 3, true);
  });
}

}  // namespace
}  // namespace deft
