// Every cell of the table of switches: records, versions and views, usable later. The fourth row (module.eval()) is
// nn's.
#include "core_util.h"

namespace deft {
namespace {

enum class Mode { usual, no_grad, inference };
template <class F>
auto in_mode(Mode mode, F&& f) {
  if (mode == Mode::no_grad) return no_grad(f);
  if (mode == Mode::inference) return inference_mode(f);
  return f();
}

TEST(Switches, RecordsGraph) {
  Tensor x = leaf({3}), constant = sample({3}, 2);
  for (Mode mode : {Mode::usual, Mode::no_grad, Mode::inference}) {
    Alive before;
    Tensor y = in_mode(mode, [&] { return x * x; });
    Alive after;
    bool recorded = mode == Mode::usual;
    EXPECT_EQ(y.requires_grad(), recorded);
    EXPECT_EQ(y.grad_fn() != nullptr, recorded);
    EXPECT_EQ(after.nodes - before.nodes, recorded ? 1 : 0);
    EXPECT_EQ(after.saved - before.saved, 0) << "x is a parameter: saving it costs nothing";
    Tensor z = in_mode(mode, [&] { return constant * constant; });
    EXPECT_FALSE(z.requires_grad());
    EXPECT_EQ(z.grad_fn(), nullptr);
  }
}

TEST(Switches, NothingIsSavedWithoutGrad) {
  Tensor x = leaf({100});
  for (Mode mode : {Mode::no_grad, Mode::inference}) {
    Alive before;
    in_mode(mode, [&] { return ((x * 2).exp() * x).tanh(); });
    EXPECT_EQ(Alive(), before);
  }
  Alive before;
  Tensor y = ((x * 2).exp() * x).tanh();
  EXPECT_GT(Alive().saved, before.saved);
}

TEST(Switches, VersionsAndViewTracking) {
  for (Mode mode : {Mode::usual, Mode::no_grad, Mode::inference}) {
    bool tracked = mode != Mode::inference;
    Tensor made = in_mode(mode, [&] { return zeros({4}); });
    EXPECT_EQ(made.is_inference(), !tracked);
    Tensor view = in_mode(mode, [&] { return made.view({2, 2}); });
    EXPECT_EQ(view.is_view(), tracked);
    EXPECT_EQ(view.is_inference(), !tracked);
    in_mode(mode, [&] { return view.add_(1); });
    EXPECT_VALUES(made, 1, 1, 1, 1);
    if (tracked) {
      EXPECT_EQ(made.version(), 1u);
      EXPECT_EQ(view.version(), 1u);
    } else {
      EXPECT_THROW(made.version(), InferenceError);
      EXPECT_THROW(view.version(), InferenceError);
    }
  }
}

TEST(Switches, WritesToNormalTensorsCountInEveryMode) {
  for (Mode mode : {Mode::usual, Mode::no_grad, Mode::inference}) {
    Tensor x = zeros({4});
    in_mode(mode, [&] { return x.add_(1); });
    EXPECT_EQ(x.version(), 1u);
  }
}

TEST(Switches, UsableLater) {
  Tensor w = leaf({3}, 5);
  for (Mode mode : {Mode::usual, Mode::no_grad}) {
    Tensor c = in_mode(mode, [&] { return w.detach() * 2; });
    Tensor y = (c * w).sum();
    y.backward();
    expect_close(w.grad(), c);
    w.zero_grad();
  }
  Tensor c = inference_mode([&] { return w.detach() * 2; });
  EXPECT_THROW(c * w, InferenceError);
  EXPECT_NO_THROW(c + w) << "nothing of c is saved here";
  EXPECT_NO_THROW(c * w.detach()) << "reading is fine";
}

TEST(Switches, AreIndependentOfEachOther) {
  InferenceModeGuard inference;
  EXPECT_TRUE(is_inference_mode_enabled());
  EXPECT_FALSE(is_grad_enabled());
  {
    NoGradGuard no_grad_guard;
    EXPECT_TRUE(is_inference_mode_enabled());
    Tensor t = zeros({1});
    EXPECT_TRUE(t.is_inference());
  }
  {
    EnableGradGuard enable;  // has no effect on recording inside inference_mode
    Tensor w = ones({1}, with_grad());
    Tensor y = w * w;
    EXPECT_FALSE(y.requires_grad());
    EXPECT_EQ(y.grad_fn(), nullptr);
  }
}

TEST(Switches, FactoriesWithExplicitRequiresGrad) {
  Tensor a = no_grad([] { return zeros({2}, with_grad()); });
  EXPECT_TRUE(a.requires_grad());
  Tensor b = inference_mode([] { return zeros({2}, with_grad()); });
  EXPECT_TRUE(b.requires_grad());
  EXPECT_FALSE(b.is_inference()) << "a parameter made while inference mode is on is a normal tensor";
  (b * b).sum().backward();
  EXPECT_VALUES(b.grad(), 0, 0);
}

TEST(Switches, IntegersCannotRequireGrad) {
  EXPECT_THROW(zeros({2}, with_grad(DType::i64)), GradError);
  EXPECT_THROW(zeros({2}, DType::boolean).requires_grad_(), GradError);
  EXPECT_NO_THROW(zeros({2}, DType::i32).requires_grad_(false));
}

}  // namespace
}  // namespace deft
