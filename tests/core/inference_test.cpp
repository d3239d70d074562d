// inference_mode: what is made inside, what may be done with it outside.
#include "core_util.h"

namespace deft {
namespace {

TEST(Inference, SetsGradModeOffAndNotTheReverse) {
  {
    InferenceModeGuard guard;
    EXPECT_FALSE(is_grad_enabled());
    EXPECT_TRUE(is_inference_mode_enabled());
  }
  NoGradGuard guard;
  EXPECT_FALSE(is_inference_mode_enabled());
}

TEST(Inference, FalseTurnsGradModeOn) {
  {
    NoGradGuard off;
    InferenceModeGuard leave(false);
    EXPECT_TRUE(is_grad_enabled()) << "as in PyTorch, even inside no_grad";
    EXPECT_FALSE(is_inference_mode_enabled());
    Tensor x = leaf({2});
    EXPECT_TRUE((x * x).requires_grad());
  }
  InferenceModeGuard on;
  {
    InferenceModeGuard leave(false);
    EXPECT_FALSE(is_inference_mode_enabled());
    EXPECT_TRUE(is_grad_enabled());
    Tensor t = zeros({2});
    EXPECT_FALSE(t.is_inference());
  }
  EXPECT_TRUE(is_inference_mode_enabled());
  EXPECT_FALSE(is_grad_enabled());
  inference_mode(false, [] { EXPECT_FALSE(is_inference_mode_enabled()); });
}

TEST(Inference, NewTensorsHaveNoVersionAndNoViewTracking) {
  InferenceModeGuard guard;
  Tensor x = zeros({4}), y = x + 1, v = y.view({2, 2}), c = y.clone();
  for (const Tensor& t : {x, y, v, c}) {
    EXPECT_TRUE(t.is_inference());
    EXPECT_FALSE(t.is_view());
    EXPECT_THROW(t.version(), InferenceError);
    EXPECT_EQ(t.grad_fn(), nullptr);
  }
  v.add_(1);
  EXPECT_VALUES(y, 2, 2, 2, 2);
}

TEST(Inference, ViewOfANormalTensorStaysNormal) {
  Tensor x = zeros({4});
  Tensor v = inference_mode([&] { return x.view({2, 2}); });
  EXPECT_FALSE(v.is_inference());
  EXPECT_TRUE(v.is_view());
  inference_mode([&] { v.add_(1); });
  EXPECT_EQ(x.version(), 1u) << "and its writes count";
  EXPECT_EQ(v.version(), 1u);
}

TEST(Inference, OutsideReadingIsFine) {
  Tensor t = inference_mode([] { return sample({3}); });
  Tensor w = leaf({3}, 2);
  EXPECT_FALSE((t + 1).is_inference());
  EXPECT_FALSE((t * 2).requires_grad());
  (t + w).sum().backward();
  EXPECT_VALUES(w.grad(), 1, 1, 1);
}

TEST(Inference, OutsideSavingWritingAndRequiringGradAreErrors) {
  Tensor t = inference_mode([] { return sample({4}); });
  Tensor w = leaf({4}, 2);
  EXPECT_THROW(t * w, InferenceError) << "in forward, not later";
  EXPECT_THROW(t.add_(1), InferenceError);
  EXPECT_THROW(t.view({2, 2}).zero_(), InferenceError);
  EXPECT_THROW(t.detach().zero_(), InferenceError);
  EXPECT_THROW(no_grad([&] { t.add_(1); }), InferenceError);
  EXPECT_THROW(t.requires_grad_(), InferenceError);
  EXPECT_NO_THROW(t.requires_grad_(false));
  Alive before;
  EXPECT_THROW(t * w, InferenceError);
  EXPECT_EQ(Alive(), before);
}

TEST(Inference, CloneOutsideIsNormal) {
  Tensor t = inference_mode([] { return sample({3}); });
  Tensor c = t.clone(), w = leaf({3}, 2);
  EXPECT_FALSE(c.is_inference());
  EXPECT_EQ(c.version(), 0u);
  c.add_(1);
  EXPECT_EQ(c.version(), 1u);
  (c * w).sum().backward();
  expect_close(w.grad(), c);
  EXPECT_TRUE(inference_mode([&] { return c.clone(); }).is_inference());
}

TEST(Inference, NeverCarriesAGradFn) {
  Tensor w = leaf({3});
  Tensor y = w * w;
  inference_mode([&] {
    Tensor a = y * 2, b = y.view({3, 1}), c = y.detach();
    EXPECT_EQ(a.grad_fn(), nullptr);
    EXPECT_TRUE(a.is_inference());
    EXPECT_FALSE(a.requires_grad());
    EXPECT_FALSE(b.requires_grad());
    EXPECT_EQ(b.grad_fn(), nullptr);
    EXPECT_FALSE(c.requires_grad());
  });
  // A normal tensor may be written inside; it keeps its history.
  inference_mode([&] { y.mul_(2); });
  EXPECT_TRUE(y.requires_grad());
  EXPECT_THROW(w.set_grad(inference_mode([] { return zeros({3}, DType::f64); })), InferenceError);
}

TEST(Inference, RequiresGradOfNormalTensorsCanBeSetInside) {
  Tensor w = zeros({2});
  inference_mode([&] { w.requires_grad_(); });
  EXPECT_TRUE(w.requires_grad());
}

}  // namespace
}  // namespace deft
