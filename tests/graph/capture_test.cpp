// What a capture holds while it runs: no more than the function itself would, and nothing is mistaken for something
// that was there before.
#include "graph/capture.h"

#include "core/grad_mode.h"
#include "graph/executable.h"
#include "graph/training_util.h"
#include "runtime/memory.h"

namespace deft {
namespace {

constexpr int64_t kSide = 512;  // a megabyte in f32

template <class F>
int64_t peak_of(F f) {
  MemoryScope scope;
  f();
  return scope.peak_growth();
}

TEST(Capture, GivesUpWhatTheFunctionGaveUp) {
  NoGradGuard no_grad;
  auto f = [](const std::vector<Tensor>& x) {
    Tensor y = x[0];
    for (int i = 0; i < 40; ++i) y = (y * 2).tanh() + y.t();
    return std::vector<Tensor>{y};
  };
  const std::vector<Tensor> x = {randn({kSide, kSide})};
  const int64_t eager = peak_of([&] { f(x); }), captured = peak_of([&] { graph::capture(f, x); });
  EXPECT_GE(eager, 2 << 20);
  EXPECT_LE(captured, eager + (4 << 20));
}

// Memory that backward needs stays as long as it does.
TEST(Capture, GivesUpWhatBackwardUsedUp) {
  nn::Linear layer(kSide, kSide);
  auto f = [&](const std::vector<Tensor>& x) {
    Tensor y = x[0];
    for (int i = 0; i < 12; ++i) y = gelu(layer(y)) + y * 0.5;
    Tensor loss = y.sum();
    loss.backward();
    layer.zero_grad();
    return std::vector<Tensor>{loss};
  };
  const std::vector<Tensor> x = {randn({kSide, kSide})};
  f(x);
  const int64_t eager = peak_of([&] { f(x); }), captured = peak_of([&] { graph::capture(f, x); });
  EXPECT_GE(eager, 24 << 20);
  EXPECT_LE(captured, eager + eager / 4);
}

// The same addresses again and again, under views, writes and histories.
TEST(Capture, TellsTensorsApartThatLieInTheSamePlace) {
  nn::Linear layer(kSide, kSide);
  auto step = [&](const Tensor& x, const Tensor&) {
    Tensor y = x, sum = zeros({kSide, kSide});
    for (int i = 0; i < 6; ++i) {
      y = layer(y).tanh();
      Tensor part = (y.detach() * 3).t();
      part.add_(static_cast<double>(i));
      sum.add_(part.narrow(0, 0, kSide));
      (y * 7).relu();  // a branch that no backward reaches
    }
    Tensor loss = y.sum() + sum.mean();
    loss.backward();
    return loss;
  };
  auto fast = compile(step, exact());
  for (int i = 0; i < 3; ++i) {
    Tensor x = randn({kSide, kSide});
    layer.zero_grad();
    Tensor want = step(x, x).detach(), gradient = layer.parameters()[0].grad().clone();
    layer.zero_grad();
    EXPECT_TRUE(same_bits(fast(x, x).detach(), want)) << i;
    EXPECT_TRUE(same_bits(layer.parameters()[0].grad(), gradient)) << i;
  }
  EXPECT_EQ(fast.stats().captures, 1) << fast.explain();
}

}  // namespace
}  // namespace deft
