// The parts of optimizer updates that optimizers do not reach: 16-bit gradients of f32 parameters, mixed layouts,
// checks. Formulas are compared with PyTorch's in tests/optim.
#include "ops/optimizer_update.h"
#include "ops/tensor_lists.h"

#include "core/core_util.h"

namespace deft {
namespace {

std::vector<float> step_of(const UpdateTensor& t) {
  AdamUpdate u{};
  u.lr = 0.1, u.weight_decay = 0.1, u.decoupled = true;
  adam_update(std::span(&t, 1), u);
  return t.param.to_vector<float>();
}
UpdateTensor fresh(const Tensor& p, const Tensor& g) {
  return {p, g, {optimizer_state(p), optimizer_state(p), {}}, {}};
}

TEST(OptimizerUpdate, Bf16GradientsOfF32Parameters) {
  const Tensor g = sample({37}, 2, {bf16});
  Tensor a = sample({37}, 1, {f32}), b = a.clone();
  EXPECT_EQ(step_of(fresh(a, g)), step_of(fresh(b, g.to(f32))));
}

TEST(OptimizerUpdate, GradientsInAnotherOrder) {
  const Tensor values = sample({2, 3, 4, 5}, 1, {f32}), g = sample({2, 3, 4, 5}, 2, {f32});
  Tensor plain = values.clone();
  const std::vector<float> want = step_of(fresh(plain, g));
  for (bool param_last : {false, true}) {
    for (bool grad_last : {false, true}) {
      auto order = [](bool last) { return last ? MemoryFormat::channels_last : MemoryFormat::contiguous; };
      UpdateTensor t = fresh(values.clone(order(param_last)), g.clone(order(grad_last)));
      EXPECT_EQ(t.state[0].is_contiguous(MemoryFormat::channels_last), param_last);
      EXPECT_EQ(step_of(t), want) << param_last << grad_last;
    }
  }
  // A transposed gradient, and a parameter with holes.
  Tensor holes = zeros({2, 3, 4, 10}).slice(3, {0, {}, 2}), transposed = g.permute({3, 2, 1, 0}).contiguous();
  holes.copy_(values);
  const std::vector<float> composed = step_of(fresh(holes, transposed.permute({3, 2, 1, 0})));
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(composed[i], want[i], 4 * 0x1p-24 * (1 + std::abs(want[i])));
}

TEST(OptimizerUpdate, ManyTensorsAtOnceAreTheSameAsOneByOne) {
  std::vector<UpdateTensor> together, alone;
  for (auto* list : {&together, &alone}) {
    list->push_back(fresh(sample({5}, 1, {f32}), sample({5}, 4, {f32})));
    list->push_back(fresh(sample({6}, 2, {f64}), sample({6}, 5, {f64})));
    list->push_back(fresh(sample({0}, 3, {f32}), sample({0}, 6, {f32})));
    list->push_back(fresh(sample({7}, 3, {bf16}), sample({7}, 6, {bf16})));
  }
  LambUpdate u{};
  u.lr = 0.1;
  lamb_update(together, u);
  for (size_t i = 0; i < alone.size(); ++i) {
    lamb_update(std::span(&alone[i], 1), u);
    EXPECT_EQ(together[i].param.to_vector<double>(), alone[i].param.to_vector<double>()) << i;
  }
}

TEST(OptimizerUpdate, VersionsOfAllThatIsWritten) {
  UpdateTensor t = fresh(sample({5}, 1, {f32}), sample({5}, 2, {f32}));
  const uint32_t param = t.param.version(), state = t.state[1].version(), grad = t.grad.version();
  step_of(t);
  EXPECT_EQ(t.param.version(), param + 1);
  EXPECT_EQ(t.state[1].version(), state + 1);
  EXPECT_EQ(t.grad.version(), grad);
}

TEST(OptimizerUpdate, ClipsAllTogether) {
  const Tensor a = full({3}, 2.0), b = full({4}, 2.0, f64);
  const uint32_t version = a.version();
  EXPECT_NEAR(clip_norm_(std::vector{a, b}, 100), std::sqrt(28.0), 1e-6);
  EXPECT_EQ(a.version(), version);
  EXPECT_NEAR(clip_norm_(std::vector{a, b}, 1), std::sqrt(28.0), 1e-6);
  EXPECT_NEAR(total_norm(std::vector{a, b}), 1, 1e-6);
  expect_error<ValueError>([&] { clip_norm_(std::vector{a}, -1); }, "must not be negative, found -1");
  EXPECT_EQ(clip_norm_({}, 1), 0);
}

TEST(OptimizerUpdate, FindsTheFirstThatIsNotFinite) {
  for (double bad : {INFINITY, -INFINITY, NAN}) {
    std::vector<Tensor> list{ones({3}), zeros({0}), ones({2, 2}, f16), ones({5}, bf16), ones({4}, f64)};
    EXPECT_EQ(first_not_finite(list), -1);
    list[4].select(0, 3).fill_(bad);
    EXPECT_EQ(first_not_finite(list), 4);
    list[2].select(0, 1).select(0, 1).fill_(bad);
    EXPECT_EQ(first_not_finite(list), 2);
    EXPECT_EQ(unscale_tensors_(list, 0.5), 2);
    EXPECT_VALUES(list[0], 0.5, 0.5, 0.5);
    EXPECT_EQ(list[3].select(0, 4).item(), 0.5);
    EXPECT_EQ(list[4].select(0, 0).item(), 0.5);
  }
  EXPECT_EQ(first_not_finite({}), -1);
}

TEST(OptimizerUpdate, LerpTowardsOtherTypes) {
  const std::vector<Tensor> to{zeros({2}), ones({2}, f64)}, from{full({2}, 4.0, bf16), full({2}, 3.0, f64)};
  const uint32_t version = to[0].version();
  lerp_tensors_(to, from, 0.25);
  EXPECT_VALUES(to[0], 1, 1);
  EXPECT_VALUES(to[1], 1.5, 1.5);
  EXPECT_EQ(to[0].version(), version + 1);
  expect_error<ValueError>([&] { lerp_tensors_(to, std::span(from).first(1), 0.5); }, "found 2 tensors and 1");
  expect_error<ShapeError>([&] { lerp_tensors_(std::span(to).first(1), std::vector{ones({3})}, 0.5); }, "tensor 0 is");
}

TEST(OptimizerUpdate, RefusesWhatDoesNotFit) {
  const Tensor p = sample({5}, 1, {f32}), g = sample({5}, 2, {f32});
  expect_error<ValueError>([&] { step_of({p, g, {}, {}}); }, "adamw: a state of a parameter [5] f32 is undefined");
  expect_error<ShapeError>([&] { step_of(fresh(p, sample({4}, 1, {f32}))); }, "the gradient is [4]");
  expect_error<ValueError>([&] { step_of(fresh(p, {})); }, "undefined");
  expect_error<DTypeError>([&] { step_of(fresh(p, ones({5}, i64))); }, "expected floating types");
  UpdateTensor wrong = fresh(p, g);
  wrong.state[1] = zeros({5}, f64);
  expect_error<ValueError>([&] { step_of(wrong); }, "make it with optimizer_state()");
  Tensor made_inside = inference_mode([&] { return sample({5}, 1, {f32}); });
  expect_error<InferenceError>([&] { step_of(fresh(made_inside, g)); }, "inference_mode");
  EXPECT_EQ(p.to_vector<float>(), sample({5}, 1, {f32}).to_vector<float>());
}

}  // namespace
}  // namespace deft
