// What a capture records of code with a state of its own, and what happens when it runs that code again.
#include "optim/captured_call.h"

#include "optim/clip_grad.h"
#include "optim/ema.h"
#include "optim/grad_scaler.h"
#include "optim/lr_scheduler.h"
#include "optim/reduce_lr_on_plateau.h"
#include "optim_util.h"

namespace deft::optim {
namespace {

struct Told {
  std::string name;
  std::vector<Tensor> written, read;
  std::function<void(std::span<const Tensor>)> run;
};

class Recorder : public CaptureHook {
 public:
  void outside_call(const char* name, std::span<const Tensor> tensors, size_t written,
                    std::function<void(std::span<const Tensor>)> run, const Site&) override {
    ASSERT_LE(written, tensors.size());
    const auto middle = tensors.begin() + static_cast<std::ptrdiff_t>(written);
    calls.push_back({name, {tensors.begin(), middle}, {middle, tensors.end()}, std::move(run)});
  }
  void op(const OpDef&, const Tensor* const*, int, const Tensor*, const void*, const Site&) override { ++ops; }
  void before_write(const OpDef&, const Tensor* const*, int, const Site&) override { ++ops; }
  void write(const OpDef&, const Tensor* const*, int, const void*, const Site&) override { ++ops; }
  void view(const OpDef&, const Tensor&, const Tensor&, const void*, const Site&) override { ++ops; }
  void host_read(const char*, const Tensor&, const Site&) override { ++ops; }
  bool is_constant(const Tensor&) const override { return false; }
  void leaf_grad(TensorImpl&) override {}
  void backward_ran(const Node&) override {}
  bool is_only_here(const Tensor&) const override { return false; }
  size_t recorded_count() const override { return calls.size() + static_cast<size_t>(ops); }
  void detached(const Tensor&) override {}
  void copied_view(const Tensor&, const Tensor&) override {}
  std::vector<Told> calls;
  int ops = 0;  // what ran inside a call is not recorded
};

// The one call that f reports.
template <class F>
Told told_by(F&& f, int ops = 0) {
  Recorder recorder;
  {
    CaptureScope scope(recorder);
    f();
  }
  EXPECT_EQ(recorder.ops, ops);
  EXPECT_EQ(recorder.calls.size(), 1u);
  return recorder.calls.empty() ? Told{} : recorder.calls[0];
}

void expect_same(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(got[i].is_same(want[i])) << i;
}
std::vector<Tensor> join(std::vector<Tensor> a, const std::vector<Tensor>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Two parameters with gradients and, between them, one without.
struct Params {
  Tensor a = param({3}, 1), none = param({2}, 2), b = param({2}, 3);
  std::vector<Tensor> all{a, none, b}, grads, other;
  Params() {
    give_grad(a, 4), give_grad(b, 5);
    grads = {a.grad(), b.grad()};
    other = {sample({3}, 6, {f32}), sample({2}, 7, {f32})};
  }
  // A replay lends other gradients; these stay the leaves' own.
  void expect_own_gradients() const {
    expect_same({a.grad(), b.grad()}, grads);
    EXPECT_FALSE(none.grad().defined());
  }
};

TEST(CapturedCall, AStepWritesParametersAndStatesAndReadsGradients) {
  for (auto& [name, make] : all_kinds()) {
    SCOPED_TRACE(name);
    Params p, q;
    auto captured = make(p.all), plain = make(q.all);
    const Told call = told_by([&] { captured->step(); });
    plain->step();
    EXPECT_EQ(call.name, captured->name());
    expect_same(call.read, p.grads);
    std::vector<Tensor> written;
    for (size_t i : {size_t{0}, size_t{2}}) {
      written.push_back(p.all[i]);
      for (const NamedTensor& t : captured->state().tensors)
        if (t.name.starts_with(std::to_string(i) + ".")) written.push_back(t.tensor);
    }
    expect_same(call.written, written);
    call.run(join(call.written, p.other));
    p.expect_own_gradients();
    q.a.set_grad(p.other[0]), q.b.set_grad(p.other[1]);
    plain->step();
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(p.all[i], q.all[i])) << i;
  }
}

TEST(CapturedCall, GradientsThatAreGoneAreGoneAfterwards) {
  Params p;
  SGD sgd(p.all, {.lr = 1});
  const Told call = told_by([&] { sgd.step(); });
  sgd.zero_grad();
  call.run(join(call.written, p.other));
  for (const Tensor& t : p.all) EXPECT_FALSE(t.grad().defined());
}

TEST(CapturedCall, AParameterMoreIsRefused) {
  Params p;
  SGD sgd(p.all, {.lr = 1});
  const Told call = told_by([&] { sgd.step(); });
  sgd.add_param_group({param({1}, 9)}, {.lr = 1});
  expect_error<CaptureError>([&] { call.run(join(call.written, p.other)); },
                             "has 4 parameters, 3 when its step was captured");
  p.expect_own_gradients();
}

TEST(CapturedCall, ClippingAndUnscalingWriteGradients) {
  Params p;
  SGD sgd(p.all, {.lr = 1});
  GradScaler scaler({.scale = 4});
  double norm = 0;
  const std::pair<Told, std::string> calls[] = {
      {told_by([&] { norm = clip_grad_norm_(p.all, 0.5); }), "clip_grad_norm_"},
      {told_by([&] { scaler.unscale_(sgd); }), "grad_scaler.unscale_"}};
  EXPECT_GT(norm, 0.5);
  EXPECT_NEAR(grad_norm(p.all), 0.5 / 4, 1e-6);
  for (const auto& [call, name] : calls) {
    EXPECT_EQ(call.name, name);
    expect_same(call.written, p.grads);
    EXPECT_TRUE(call.read.empty());
  }
  const std::vector<double> before = values(p.grads[0]), given = values(p.other[0]);
  scaler.step(sgd), scaler.update();
  calls[1].first.run(p.other);
  p.expect_own_gradients();
  EXPECT_EQ(values(p.grads[0]), before);
  for (size_t i = 0; i < given.size(); ++i) EXPECT_EQ(values(p.other[0])[i], given[i] / 4);
}

TEST(CapturedCall, AScaledStepReadsGradients) {
  Params p;
  SGD sgd(p.all, {.lr = 1});
  GradScaler scaler({.scale = 2, .growth_interval = 1});
  ScaledStep done;
  const Told step = told_by([&] { done = scaler.step(sgd); }), update = told_by([&] { scaler.update(); });
  EXPECT_TRUE(done.stepped);
  EXPECT_EQ(step.name, "grad_scaler.step");
  expect_same(step.written, {p.a, p.b});
  expect_same(step.read, p.grads);
  EXPECT_EQ(update.name, "grad_scaler.update");
  EXPECT_TRUE(update.written.empty() && update.read.empty());
  EXPECT_EQ(scaler.current_scale(), 4);
  const Tensor before = p.a.detach().clone();
  p.other[1].fill_(INFINITY);
  step.run(join(step.written, p.other));
  update.run({});
  EXPECT_EQ(scaler.current_scale(), 2);
  EXPECT_TRUE(same_bits(p.a, before)) << "an infinite gradient skips the step";
  p.expect_own_gradients();
}

TEST(CapturedCall, TheScaleIsReadAnew) {
  Params p;
  SGD sgd(p.all, {.lr = 1});
  GradScaler scaler({.scale = 2, .growth_interval = 1}), off({.enabled = false});
  Tensor loss = ones({}), scaled;
  const Told call = told_by([&] { scaled = scaler.scale(loss); }, 1);  // and the product
  EXPECT_EQ(call.name, "grad_scaler.scale");
  ASSERT_EQ(call.written.size(), 1u);
  EXPECT_TRUE(call.read.empty());
  EXPECT_EQ(scaled.item(), 2);
  EXPECT_EQ(call.written[0].item(), 2);
  scaler.step(sgd), scaler.update();
  call.run(call.written);
  EXPECT_EQ(call.written[0].item(), 4);
  Recorder nothing;
  {
    CaptureScope scope(nothing);
    EXPECT_TRUE(off.scale(loss).is_same(loss));
    off.unscale_(sgd), off.update();
  }
  EXPECT_EQ(nothing.recorded_count(), 0u);
}

TEST(CapturedCall, AveragesAreWrittenAndParametersRead) {
  Params p;
  ExponentialMovingAverage ema(p.all, {.decay = 0.5});
  no_grad([&] { p.a.zero_(), p.b.zero_(); });
  const Told call = told_by([&] { ema.update(); });
  EXPECT_EQ(call.name, "ema.update");
  expect_same(call.written, ema.averages());
  expect_same(call.read, p.all);
  call.run(join(call.written, call.read));
  EXPECT_EQ(ema.updates(), 2);
  const std::vector<double> start = values(param({2}, 3)), now = values(ema.averages()[2]);
  for (size_t i = 0; i < start.size(); ++i) EXPECT_EQ(now[i], start[i] / 4);
}

TEST(CapturedCall, SchedulesStepAgain) {
  Params p;
  SGD sgd(p.all, {.lr = 8});
  ExponentialLR schedule(sgd, 0.5);
  const Told call = told_by([&] { schedule.step(); });
  EXPECT_EQ(call.name, "ExponentialLR");
  EXPECT_TRUE(call.written.empty() && call.read.empty());
  EXPECT_EQ(sgd.lr(), 4);
  call.run({});
  EXPECT_EQ(sgd.lr(), 2);
  EXPECT_EQ(schedule.last_epoch(), 2);
}

// A replay would not make them again.
TEST(CapturedCall, SettingsAreRefused) {
  Params p;
  SGD sgd(p.all, {.lr = 1, .momentum = 0.5});
  ReduceLROnPlateau plateau(sgd);
  Recorder recorder;
  CaptureScope scope(recorder);
  const std::string why = "inside a compiled function would run in the first call only; call it outside";
  expect_error<CaptureError>([&] { sgd.set_lr(2); }, "SGD: set_lr() " + why);
  expect_error<CaptureError>([&] { sgd.set_momentum(0.25); }, "SGD: set_momentum() " + why);
  expect_error<CaptureError>([&] { plateau.step(1); }, "ReduceLROnPlateau: step() " + why);
  EXPECT_EQ(sgd.lr(), 1);
  EXPECT_EQ(sgd.momentum(), 0.5);
  EXPECT_EQ(recorder.recorded_count(), 0u);
}

}  // namespace
}  // namespace deft::optim
