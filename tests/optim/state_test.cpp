// Stopping and going on: the same bits as without the stop.
#include "optim/lr_scheduler.h"
#include "optim_util.h"

namespace deft::optim {
namespace {

std::vector<Tensor> some_params(DType dtype = f32) {
  std::vector<Tensor> params{param({5}, 1, dtype), param({2, 3, 4, 3}, 2, dtype), param({33}, 3, dtype)};
  params[1] = params[1].detach().contiguous(MemoryFormat::channels_last).requires_grad_();
  return params;
}
// Not all of them at every step.
void give_grads(const std::vector<Tensor>& params, uint64_t step) {
  for (size_t i = 0; i < params.size(); ++i) {
    params[i].zero_grad();
    if (step % 3 != i) give_grad(params[i], 10 * step + i);
  }
}
State cloned(const State& s) {
  State copy = s;
  for (NamedTensor& t : copy.tensors) t.tensor = t.tensor.clone();
  return copy;
}

TEST(OptimizerState, RoundTripGoesOnBitForBit) {
  for (DType dtype : {f32, f64, bf16}) {
    for (auto& [name, make] : all_kinds(true)) {
      SCOPED_TRACE(name);
      std::vector<Tensor> params = some_params(dtype), later;
      auto whole = make(params);
      State state;
      for (uint64_t step = 0; step < 10; ++step) {
        if (step == 5) {
          state = cloned(whole->state());
          for (const Tensor& p : params) later.push_back(p.detach().clone().requires_grad_());
        }
        give_grads(params, step);
        whole->step();
      }
      auto resumed = make(later);
      resumed->set_lr(123);  // options come from the state
      resumed->load_state(state);
      for (uint64_t step = 5; step < 10; ++step) {
        give_grads(later, step);
        resumed->step();
      }
      for (size_t i = 0; i < params.size(); ++i) EXPECT_TRUE(same_bits(params[i], later[i])) << i << name_of(dtype);
      const State a = whole->state(), b = resumed->state();
      EXPECT_EQ(a.values, b.values);
      ASSERT_EQ(a.tensors.size(), b.tensors.size());
      for (const NamedTensor& t : a.tensors) EXPECT_TRUE(same_bits(t.tensor, b.tensor(t.name))) << t.name;
    }
  }
}

TEST(OptimizerState, NamesAndSharing) {
  Tensor p = param({3}, 1), q = param({2}, 2);
  Adam adam({p, q}, {.lr = 0.25});
  give_grad(q, 3);
  adam.step();
  const State s = adam.state();
  EXPECT_EQ(s.get<std::string>("optimizer"), "Adam");
  EXPECT_EQ(s.get<double>("groups.0.lr"), 0.25);
  EXPECT_EQ(s.get<int64_t>("1.step"), 1);
  EXPECT_FALSE(s.has("0.step"));
  ASSERT_EQ(s.tensors.size(), 2u);
  EXPECT_EQ(s.tensors[0].name, "1.exp_avg");
  const Tensor before = s.tensors[0].tensor.clone();
  adam.step();
  EXPECT_FALSE(same_bits(before, s.tensors[0].tensor)) << "shares memory";
}

// The state of before stays when the new one does not fit.
TEST(OptimizerState, RefusesAnotherOptimizersState) {
  Tensor p = param({3}, 1), q = param({4}, 1), r = param({3}, 2);
  Adam adam({p}, {.lr = 0.5}), other_shape({q}), two(std::vector<Tensor>{r, q});
  SGD sgd({p}, {.lr = 0.1, .momentum = 0.9});
  for (const Tensor& t : {p, q, r}) give_grad(t, 4);
  adam.step(), other_shape.step(), two.step(), sgd.step();
  const State before = cloned(adam.state());
  expect_error<ValueError>([&] { adam.load_state(sgd.state()); }, "this is the state of SGD");
  expect_error<ValueError>([&] { adam.load_state(other_shape.state()); }, "\"0.exp_avg\" is [4]");
  expect_error<ValueError>([&] { adam.load_state(two.state()); }, "2 parameters in the state, 1 in the optimizer");
  State missing = adam.state();
  missing.values.erase("groups.0.beta2");
  missing.values["groups.0.lr"] = 7.0;
  expect_error<ValueError>([&] { adam.load_state(missing); }, "groups.0.beta2");
  Adam groups(std::vector<Adam::Group>{{{p}, {}}, {{q}, {}}});
  expect_error<ValueError>([&] { groups.load_state(before); }, "1 groups, the optimizer 2");
  EXPECT_EQ(adam.state().values, before.values);
  EXPECT_TRUE(same_bits(adam.state().tensor("0.exp_avg"), before.tensor("0.exp_avg")));
}

TEST(OptimizerState, EmptyStateForgetsWhatWasThere) {
  Tensor p = param({3}, 1);
  SGD sgd({p}, {.lr = 0.1, .momentum = 0.9});
  const State fresh = sgd.state();
  give_grad(p, 2);
  sgd.step();
  sgd.load_state(fresh);
  EXPECT_TRUE(sgd.state().tensors.empty());
}

TEST(OptimizerState, InitialRateSurvives) {
  Tensor p = param({3}, 1);
  SGD sgd({p}, {.lr = 0.8}), later({p}, {.lr = 5});
  ExponentialLR schedule(sgd, 0.5);
  schedule.step();
  later.load_state(sgd.state());
  EXPECT_EQ(later.lr(), 0.4);
  EXPECT_EQ(later.initial_lr(0), 0.8);
}

}  // namespace
}  // namespace deft::optim
