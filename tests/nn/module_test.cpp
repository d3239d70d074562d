// Module: names, state, modes, freezing, tied tensors.
#include "nn/module.h"

#include "nn/activation.h"
#include "nn/containers.h"
#include "nn/conv.h"
#include "nn/dropout.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn_util.h"

namespace deft::nn {
namespace {

struct Block : Module {
  Linear& fc = add<Linear>("fc", 4, 4);
  BatchNorm1d& norm = add<BatchNorm1d>("norm", 4);
  Dropout& drop = add<Dropout>("drop", 0.5);
  Tensor forward(const Tensor& x) override { return drop(norm(fc(x))); }
};
struct Net : Module {
  Block& front = add<Block>("front");
  Linear& out = add<Linear>("out", 4, 2);
  Tensor& scale = parameter("scale", ones({2}));
  Tensor& steps = buffer("steps", zeros({}, DType::i64));
  Tensor& cache = buffer("cache", zeros({3}), false);
  Tensor forward(const Tensor& x) override { return out(front(x)) * scale; }
};
// The output reads the embedding's table.
struct Tied : Module {
  Linear& in = add<Linear>("in", 4, 4, false);
  Linear& out = add<Linear>("out", 4, 4, false);
  Tied() { out.weight = in.weight; }
  Tensor forward(const Tensor& x) override { return out(in(x)); }
};

std::vector<std::string> names_of(const NamedTensors& list) {
  std::vector<std::string> names;
  for (const NamedTensor& t : list) names.push_back(t.name);
  return names;
}
using Names = std::vector<std::string>;

TEST(Module, ListsWhatItHolds) {
  Net net;
  EXPECT_EQ(names_of(net.named_parameters()), (Names{"scale", "front.fc.weight", "front.fc.bias", "front.norm.weight",
                                                     "front.norm.bias", "out.weight", "out.bias"}));
  EXPECT_EQ(names_of(net.named_buffers()), (Names{"steps", "cache", "front.norm.running_mean", "front.norm.running_var",
                                                  "front.norm.num_batches_tracked"}));
  EXPECT_EQ(net.parameter_count(), 2 + 16 + 4 + 4 + 4 + 8 + 2);
  EXPECT_EQ(net.parameters().size(), 7u);
  Names modules;
  for (auto& [name, m] : net.named_modules()) modules.push_back(name);
  EXPECT_EQ(modules, (Names{"", "front", "front.fc", "front.norm", "front.drop", "out"}));
  EXPECT_EQ(net.to_string(),
            "Net\n  front: Block\n    fc: Linear(in=4, out=4)\n    norm: BatchNorm1d(4)\n    drop: Dropout(p=0.5)\n"
            "  out: Linear(in=4, out=2)");
  for (const NamedTensor& p : net.named_parameters()) {
    EXPECT_TRUE(p.tensor.requires_grad()) << p.name;
    EXPECT_EQ(p.tensor.memory_category(), MemoryCategory::parameter) << p.name;
  }
}

TEST(Module, AppliesToChildrenFirst) {
  Net net;
  Names seen;
  net.apply([&](Module& m) { seen.push_back(m.describe()); });
  EXPECT_EQ(seen,
            (Names{"Linear(in=4, out=4)", "BatchNorm1d(4)", "Dropout(p=0.5)", "Block", "Linear(in=4, out=2)", "Net"}));
}

TEST(Module, RefusesWrongParts) {
  struct Twice : Module {
    Twice() {
      parameter("a", ones({1}));
      buffer("a", ones({1}));
    }
  };
  expect_error<ValueError>([] { Twice(); }, "the name \"a\" is taken");
  struct Dotted : Module {
    Dotted() { parameter("a.b", ones({1})); }
  };
  expect_error<ValueError>([] { Dotted(); }, "\"a.b\" cannot be a name");
  struct WithHistory : Module {
    WithHistory() { parameter("a", ones({1}, with_grad()) * 2); }
  };
  expect_error<ValueError>([] { WithHistory(); }, "the parameter \"a\" is the result of mul");
  struct Open : Module {
    using Module::add_child;
  };
  auto a = std::make_shared<Open>(), b = std::make_shared<Open>();
  a->add_child("b", b);
  expect_error<ValueError>([&] { b->add_child("a", a); }, "contains its parent");
  expect_error<ValueError>([&] { b->add_child("c", nullptr); }, "the child \"c\" is null");
  expect_error<UnsupportedError>([&] { (*a)(ones({1})); }, "Open: has no forward() of one tensor");
}

TEST(Module, ErrorsNameTheLineThatCallsALayer) {
  Linear layer(3, 2);
  Tensor x = leaf({2, 3}).to(DType::f32);
  Tensor y = layer(x);
  int line = __LINE__ - 1;
  EXPECT_EQ(y.grad_fn()->site.line(), static_cast<unsigned>(line));
  // In a module of the user's it is the line inside, also when a layer calls it.
  struct Inner : Module {
    Linear& fc = add<Linear>("fc", 3, 2);
    int line = 0;
    Tensor forward(const Tensor& in) override {
      line = __LINE__ + 1;
      return fc(in);
    }
  };
  Sequential net;
  Inner& inner = net.add<Inner>();
  Tensor z = net(x);
  EXPECT_EQ(z.grad_fn()->site.line(), static_cast<unsigned>(inner.line));
}

TEST(Module, BuiltInsideInferenceModeItCanTrain) {
  auto net = inference_mode([] { return std::make_unique<Net>(); });
  for (const NamedTensor& t : net->state_dict()) EXPECT_FALSE(t.tensor.is_inference()) << t.name;
  (*net)(sample({3, 4}, 1, DType::f32)).sum().backward();
  EXPECT_TRUE(net->out.weight.grad().defined());
}

// --- State

TEST(Module, StateSharesMemoryAndLeavesOutWhatIsNotPersistent) {
  Net net;
  NamedTensors state = net.state_dict();
  EXPECT_EQ(names_of(state), (Names{"scale", "steps", "front.fc.weight", "front.fc.bias", "front.norm.weight",
                                    "front.norm.bias", "front.norm.running_mean", "front.norm.running_var",
                                    "front.norm.num_batches_tracked", "out.weight", "out.bias"}));
  for (const NamedTensor& t : state) EXPECT_FALSE(t.tensor.requires_grad()) << t.name;
  EXPECT_TRUE(find_tensor(state, "out.weight")->shares_storage_with(net.out.weight));
}

TEST(Module, LoadsAStateInPlace) {
  Net from, to;
  from.to(DType::f64);  // converted on the way
  Tensor weight = to.out.weight;
  uint32_t version = weight.version();
  LoadReport report = to.load_state_dict(from.state_dict());
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.to_string(), "");
  EXPECT_TRUE(to.out.weight.is_same(weight));
  EXPECT_EQ(weight.version(), version + 1);
  EXPECT_TRUE(weight.requires_grad() && weight.is_leaf());
  EXPECT_EQ(weight.dtype(), DType::f32);
  EXPECT_EQ(values(to.out.weight), values(from.out.weight.to(DType::f32)));
  EXPECT_EQ(values(to.front.fc.bias), values(from.front.fc.bias.to(DType::f32)));
}

TEST(Module, AGraphNoticesThatItsWeightsWereLoadedOver) {
  Linear layer(2, 2);
  Tensor y = layer(layer(leaf({1, 2}).to(DType::f32)));
  layer.load_state_dict(Linear(2, 2).state_dict());
  EXPECT_THROW(y.sum().backward(), InplaceError);
}

TEST(Module, StrictLoadingTellsTheWholeDifferenceAndWritesNothing) {
  Net net;
  std::vector<double> before = values(net.out.bias);
  NamedTensors state = Net().state_dict();
  state.erase(state.begin());       // scale
  state.erase(state.begin() + 1);   // front.fc.weight
  state.back().tensor = ones({5});  // out.bias
  state.push_back({"head.weight", ones({1})});
  state.push_back({"head.bias", ones({1})});
  std::string text = message_of<ValueError>([&] { net.load_state_dict(state); });
  EXPECT_NE(text.find("the state does not fit Net; nothing was loaded"), std::string::npos) << text;
  EXPECT_NE(text.find("missing: scale\nmissing: front.fc.weight\nunexpected: head.weight\nunexpected: head.bias\n"
                      "of another shape: out.bias: [5] in the state, [2] in the module"),
            std::string::npos)
      << text;
  EXPECT_EQ(values(net.out.bias), before);
  EXPECT_NE(values(net.out.weight), values(*find_tensor(state, "out.weight")));

  LoadReport report = net.load_state_dict(state, false);
  EXPECT_EQ(report.missing, (Names{"scale", "front.fc.weight"}));
  EXPECT_EQ(report.unexpected, (Names{"head.weight", "head.bias"}));
  EXPECT_EQ(report.mismatched.size(), 1u);
  EXPECT_EQ(values(net.out.bias), before);
  EXPECT_EQ(values(net.out.weight), values(*find_tensor(state, "out.weight")));
}

TEST(Module, ANameGivenTwiceIsUnexpected) {
  Linear layer(2, 2, false);
  NamedTensors state{{"weight", ones({2, 2})}, {"weight", zeros({2, 2})}};
  expect_error<ValueError>([&] { layer.load_state_dict(state); }, "unexpected: weight (a second time)");
}

// --- Tied tensors

TEST(Module, TiedTensorsAreListedOnceAndStayTied) {
  Tied net;
  EXPECT_EQ(names_of(net.named_parameters()), (Names{"in.weight"}));
  EXPECT_EQ(net.parameter_count(), 16);
  net.to(DType::f64);
  EXPECT_TRUE(net.in.weight.is_same(net.out.weight));
  EXPECT_EQ(net.in.weight.dtype(), DType::f64);
  EXPECT_TRUE(net.in.weight.requires_grad());
  net(sample({2, 4})).sum().backward();
  EXPECT_TRUE(net.in.weight.grad().is_same(net.out.weight.grad()));
}

TEST(Module, TiedTensorsAreInTheStateUnderBothNamesAndNeedOne) {
  Tied net;
  EXPECT_EQ(names_of(net.state_dict()), (Names{"in.weight", "out.weight"}));
  EXPECT_TRUE(net.load_state_dict({{"out.weight", ones({4, 4})}}).ok());
  EXPECT_EQ(net.in.weight.detach().amin().item(), 1);
  EXPECT_TRUE(net.load_state_dict(Tied().state_dict()).ok());
  expect_error<ValueError>([&] { net.load_state_dict({}); }, "missing: in.weight\nmissing: out.weight");
}

TEST(Module, ASharedModuleCountsOnce) {
  Sequential net;
  auto shared = std::make_shared<Linear>(2, 2);
  net.append(shared);
  net.append(shared);
  EXPECT_EQ(net.parameter_count(), 6);
  EXPECT_EQ(net.named_modules().size(), 2u);
  EXPECT_EQ(net.state_dict().size(), 4u);
  net.to(DType::f64);
  EXPECT_EQ(shared->weight.dtype(), DType::f64);
}

TEST(Module, ToKeepsGradientsAndWhatNeedNotMove) {
  Net net;
  net(sample({3, 4}, 1, DType::f32)).sum().backward();
  std::vector<double> grad = values(net.out.bias.grad());
  Tensor steps = net.steps, bias = net.out.bias;
  net.to(DType::f32);
  EXPECT_TRUE(net.out.bias.is_same(bias));
  net.to(DType::f64);
  EXPECT_EQ(values(net.out.bias.grad()), grad);
  EXPECT_EQ(net.out.bias.grad().dtype(), DType::f64);
  EXPECT_TRUE(net.steps.is_same(steps)) << "integers stay";
  EXPECT_EQ(net.front.norm.running_var.dtype(), DType::f64);
  EXPECT_EQ(net.out.bias.memory_category(), MemoryCategory::parameter);
  expect_error<DTypeError>([&] { net.to(DType::i64); }, "to() takes a floating type, found i64");
}

TEST(Module, ToIsAllOrNothing) {
  for (int64_t n = 0;; ++n) {
    Net net;
    fail_allocation_after(n);
    bool failed = false;
    try {
      net.to(DType::f64);
    } catch (const OutOfMemoryError&) {
      failed = true;
    }
    fail_allocation_after(-1);
    for (const NamedTensor& p : net.named_parameters())
      EXPECT_EQ(p.tensor.dtype(), failed ? DType::f32 : DType::f64) << p.name << " after allocation " << n;
    if (!failed) break;
    ASSERT_LT(n, 100);
  }
}

TEST(Module, AFrozenModuleThatMovesStaysFrozen) {
  Net net;
  net.freeze();
  net.to(DType::f64);
  EXPECT_FALSE(net.out.weight.requires_grad());
  EXPECT_EQ(net.out.weight.memory_category(), MemoryCategory::parameter);
  net.unfreeze();
  EXPECT_TRUE(net.out.weight.requires_grad());
}

// --- Modes

TEST(Module, TrainAndEvalReachEverySubmodule) {
  Net net;
  EXPECT_TRUE(net.is_training());
  net.eval();
  for (auto& [name, m] : net.named_modules()) EXPECT_FALSE(m->is_training()) << name;
  net.train();
  for (auto& [name, m] : net.named_modules()) EXPECT_TRUE(m->is_training()) << name;
}

// Also of modules that hold nothing but such modules.
TEST(Module, FingerprintsChangeWithTheModeOfAnySubmodule) {
  Sequential plain;
  auto& inner = plain.add<Dropout>(0.5);
  const uint64_t trains = plain.fingerprint();
  plain.eval();
  const uint64_t rests = plain.fingerprint();
  EXPECT_NE(trains, rests);
  inner.train();
  EXPECT_NE(plain.fingerprint(), trains);
  EXPECT_NE(plain.fingerprint(), rests);
}

TEST(Module, EvalGuardRestoresEachFlag) {
  Net net;
  net.front.norm.eval();
  {
    EvalGuard guard(net);
    for (auto& [name, m] : net.named_modules()) EXPECT_FALSE(m->is_training()) << name;
    {
      EvalGuard inner(net.front);
      net.front.train();  // whatever is done inside
    }
    EXPECT_FALSE(net.front.is_training());
  }
  for (auto& [name, m] : net.named_modules()) EXPECT_EQ(m->is_training(), name != "front.norm") << name;
}

TEST(Module, EvalGuardAndExceptions) {
  Net net;
  try {
    EvalGuard guard(net);
    throw ValueError("out");
  } catch (const ValueError&) {
  }
  EXPECT_TRUE(net.front.drop.is_training());
}

TEST(Module, EvalGuardDoesNotWakeWhatWasFrozenInside) {
  Net net;
  {
    EvalGuard guard(net);
    net.front.freeze();
  }
  EXPECT_FALSE(net.front.norm.is_training());
  EXPECT_TRUE(net.is_training());
  net.front.unfreeze();
  EXPECT_TRUE(net.front.norm.is_training()) << "the guard is not what train() asked for";
}

// --- Freezing

TEST(Module, FrozenMeansFrozen) {
  Net net;
  Tensor x = sample({3, 4}, 1, DType::f32);
  net(x).sum().backward();
  ASSERT_TRUE(net.front.fc.weight.grad().defined());
  net.front.freeze();
  net.train();
  EXPECT_TRUE(net.is_training() && net.out.is_training());
  EXPECT_TRUE(net.front.is_frozen() && net.front.norm.is_frozen());
  for (Module* m : std::initializer_list<Module*>{&net.front, &net.front.norm, &net.front.drop})
    EXPECT_FALSE(m->is_training());
  for (const Tensor& p : net.front.parameters()) {
    EXPECT_FALSE(p.requires_grad());
    EXPECT_FALSE(p.grad().defined()) << "a left-over gradient would let an optimizer move it";
    EXPECT_EQ(p.memory_category(), MemoryCategory::parameter);
  }
  EXPECT_TRUE(net.out.weight.grad().defined()) << "others keep theirs";
  std::vector<double> mean = values(net.front.norm.running_mean);
  int64_t batches = net.front.norm.num_batches_tracked.item<int64_t>();
  Tensor y = net(x);
  EXPECT_EQ(values(net(x)), values(y)) << "dropout is off";
  EXPECT_EQ(values(net.front.norm.running_mean), mean);
  EXPECT_EQ(net.front.norm.num_batches_tracked.item<int64_t>(), batches);
}

TEST(Module, UnfreezeTakesTheModeOfTheLastCall) {
  Net net;
  net.front.freeze();
  net.eval();
  net.front.unfreeze();
  EXPECT_FALSE(net.front.is_training());
  net.front.freeze();
  net.train();
  net.front.unfreeze();
  EXPECT_TRUE(net.front.is_training() && net.front.norm.is_training());
  for (const Tensor& p : net.front.parameters()) EXPECT_TRUE(p.requires_grad());
}

TEST(Module, UnfreezeLeavesAloneWhatDidNotTrainBefore) {
  Net net;
  net.front.fc.bias.requires_grad_(false);
  net.freeze();
  net.freeze();
  net.unfreeze();
  EXPECT_FALSE(net.front.fc.bias.requires_grad());
  EXPECT_TRUE(net.front.fc.weight.requires_grad());
}

TEST(Module, APartOfAFrozenModuleMayTrain) {
  Net net;
  net.freeze();
  net.front.norm.unfreeze();
  net.train();
  EXPECT_TRUE(net.front.norm.is_training());
  EXPECT_FALSE(net.front.drop.is_training());
  net(sample({3, 4}, 1, DType::f32)).sum().backward();
  EXPECT_TRUE(net.front.norm.weight.grad().defined());
  EXPECT_FALSE(net.front.fc.weight.grad().defined());
}

TEST(Module, FreezingTheFrontCutsBackwardThere) {
  Sequential net;
  for (int i = 0; i < 5; ++i) {
    net.add<Linear>(4, 4);
    net.add<ReLU>();
  }
  Tensor x = sample({3, 4}, 1, DType::f32);
  EXPECT_EQ(nodes_made_by([&] { return net(x); }), 10);
  for (size_t i = 0; i < 6; ++i) net[i].freeze();
  int64_t saved = graph_stats().saved_bytes;
  EXPECT_EQ(nodes_made_by([&] { return net(x); }), 4);
  Tensor front = x;
  for (size_t i = 0; i < 6; ++i) front = net[i](front);
  EXPECT_FALSE(front.requires_grad());
  EXPECT_EQ(graph_stats().saved_bytes, saved) << "and saves nothing";
  net.freeze();
  EXPECT_EQ(nodes_made_by([&] { return net(x); }), 0);
}

TEST(Module, ZeroGrad) {
  Net net;
  net(sample({3, 4}, 1, DType::f32)).sum().backward();
  net.zero_grad(false);
  EXPECT_EQ(net.out.weight.grad().abs().amax().item(), 0);
  net.zero_grad();
  EXPECT_FALSE(net.out.weight.grad().defined());
}

TEST(Module, LeavesNothing) {
  Tensor x = sample({3, 4}, 1, DType::f32);
  {
    Net warm;
    warm(x).sum().backward();
  }
  expect_leaves_nothing([&] {
    Net net;
    net(x).sum().backward();
    net.to(DType::f64);
    net.load_state_dict(Net().state_dict());
  });
}

// --- State (core/state.h)

TEST(State, ValuesByNameAndType) {
  State s;
  s.values["epoch"] = int64_t{3};
  s.values["name"] = std::string("adam");
  EXPECT_EQ(s.get<int64_t>("epoch"), 3);
  EXPECT_EQ(s.get<double>("epoch"), 3.0);
  EXPECT_TRUE(s.has("name") && !s.has("rate"));
  expect_error<ValueError>([&] { s.get<double>("name"); }, "the value \"name\" is a string, expected a double");
  expect_error<ValueError>([&] { s.get<double>("rate"); }, "there is no value \"rate\"");
  expect_error<ValueError>([&] { s.tensor("w"); }, "there is no tensor \"w\"");
}

TEST(State, Parts) {
  State inner, all;
  inner.values["step"] = 2.5;
  inner.tensors.push_back({"w", ones({2})});
  all.add("optimizer", inner);
  all.add("optimizer2", inner);
  EXPECT_EQ(all.tensor("optimizer.w").numel(), 2);
  State part = all.part("optimizer");
  EXPECT_EQ(part.get<double>("step"), 2.5);
  ASSERT_EQ(part.tensors.size(), 1u);
  EXPECT_EQ(part.tensors[0].name, "w");
}

}  // namespace
}  // namespace deft::nn
