// Whole texts of what goes wrong most often: both sites, what was found, what to do. A user meets these words.
#include "core/function.h"
#include "core/hooks.h"
#include "core_util.h"
#include "runtime/device_plugin.h"

namespace deft {
namespace {

// Sites are compared by line, so lines must stay as they are.
// clang-format off
std::string at(int line) { return "error_texts_test.cpp:" + std::to_string(line); }
#define LINE at(__LINE__)
// Runs a statement and checks the whole text of its error.
#define EXPECT_TEXT(E, statement, ...) EXPECT_EQ(message_of<E>([&] { statement; }), __VA_ARGS__)

TEST(ErrorText, WriteToASavedInput) {
  Tensor w = leaf({3}), x = sample({3}, 2);
  Tensor y = w * x; std::string saved = LINE;
  x.add_(1); std::string written = LINE;
  EXPECT_TEXT(InplaceError, y.sum().backward(),
              "mul: input 1 [3] f64, saved for backward at " + saved + ", was changed in place by add at " + written +
                  " (saved version 0, now 1); clone() it before the write, or write out of place");
}

TEST(ErrorText, WriteToASavedOutputUnderNoGrad) {
  Tensor w = leaf({3});
  Tensor y = w.exp(); std::string saved = LINE;
  Tensor loss = y.sum();
  NoGradGuard off;
  y.view({3, 1}).mul_(2); std::string written = LINE;
  EXPECT_TEXT(InplaceError, loss.backward(),
              "exp: output 0 [3] f64, saved for backward at " + saved + ", was changed in place by mul at " + written +
                  " (saved version 0, now 1); clone() it before the write, or write out of place");
}

TEST(ErrorText, NoGraphBecauseOfNoGradInForce) {
  Tensor w = leaf({3});
  NoGradGuard off; std::string guard = LINE;
  Tensor loss = (w * w).sum();
  std::string called = at(__LINE__ + 1);
  EXPECT_TEXT(GradError, loss.backward(),
              "backward: the tensor [] f64 has no graph: it was made with gradients off, turned off at " + guard + " (called at " +
                  called + ")");
}

TEST(ErrorText, NoGraphBecauseOfAGuardThatIsGone) {
  Tensor w = leaf({3}), loss;
  std::string guard;
  {
    NoGradGuard off; guard = LINE;
    loss = (w * w).sum();
  }
  std::string called = at(__LINE__ + 1);
  EXPECT_TEXT(GradError, loss.backward(),
              "backward: the tensor [] f64 has no graph: it was made with gradients off, turned off at " + guard + " (called at " +
                  called + ")");
}

TEST(ErrorText, NoGraphBecauseOfAStickySwitch) {
  GradModeGuard restore(true);
  set_grad_enabled(false); std::string where = LINE;
  Tensor w = leaf({3});
  Tensor loss = (w * w).sum();
  set_grad_enabled(true);
  std::string called = at(__LINE__ + 1);
  EXPECT_TEXT(GradError, grad({loss}, {w}),
              "grad: the tensor [] f64 has no graph: it was made with gradients off, turned off at " + where + " (called at " + called +
                  ")");
}

TEST(ErrorText, NoGraphBecauseOfInferenceMode) {
  Tensor w = leaf({3}), loss;
  NoGradGuard outer;  // not the one to name
  std::string guard;
  {
    InferenceModeGuard inference; guard = LINE;
    loss = (w * w).sum();
  }
  std::string called = at(__LINE__ + 1);
  EXPECT_TEXT(GradError, loss.backward(),
              "backward: the tensor [] f64 has no graph: it was made inside inference_mode, entered at " + guard + " (called at " +
                  called + ")");
}

TEST(ErrorText, NoGraphBecauseNothingRequiresGrad) {
  Tensor loss = (sample({3}) * 2).sum();
  std::string called = at(__LINE__ + 1);
  EXPECT_TEXT(GradError, loss.backward(),
              "backward: the tensor [] f64 has no graph: no input of the op that made it requires grad; call requires_grad_() on the "
              "tensors to be trained (called at " + called + ")");
}

TEST(ErrorText, NoGraphBecauseOfDetach) {
  Tensor loss = leaf({3}).sum().detach(); std::string cut = LINE;
  std::string called = at(__LINE__ + 1);
  EXPECT_TEXT(GradError, loss.backward(),
              "backward: the tensor [] f64 has no graph: it was cut off by detach() at " + cut + " (called at " + called + ")");
}

TEST(ErrorText, NoGraphBecauseOfAViewUnderNoGrad) {
  Tensor y = leaf({1, 1}) * 1;
  NoGradGuard off;
  Tensor v = y.view({}); std::string made = LINE;
  std::string called = at(__LINE__ + 1);
  EXPECT_TEXT(GradError, v.backward(),
              "backward: the tensor [] f64 has no graph: it is a view made at " + made + " with gradients off (called at " + called + ")");
}

TEST(ErrorText, NoGraphForIntegers) {
  Tensor n = arange(3).sum();
  std::string called = at(__LINE__ + 1);
  EXPECT_TEXT(GradError, n.backward(),
              "backward: the tensor [] i64 has no graph: only floating tensors have gradients (called at " + called + ")");
}

TEST(ErrorText, InferenceTensorSaved) {
  Tensor w = leaf({3}), cached = inference_mode([] { return sample({3}); });
  std::string where = at(__LINE__ + 1);
  EXPECT_TEXT(InferenceError, w * cached,
              "mul: a tensor [3] f64 made inside inference_mode cannot be saved for backward (forward at " + where +
                  "); clone() it outside inference_mode, or make it under no_grad instead");
}

TEST(ErrorText, InferenceTensorWrittenOutside) {
  Tensor total = inference_mode([] { return zeros({}); });
  std::string where = at(__LINE__ + 1);
  EXPECT_TEXT(InferenceError, total /= 3,
              "div: a tensor [] f32 made inside inference_mode cannot be written in place outside of it (at " + where +
                  "); clone() it first");
}

TEST(ErrorText, RequiresGradOnAnInferenceTensor) {
  Tensor t = inference_mode([] { return zeros({2}); });
  std::string where = at(__LINE__ + 1);
  EXPECT_TEXT(InferenceError, t.requires_grad_(),
              "requires_grad_: a tensor [2] f32 made inside inference_mode cannot require grad (at " + where + "); clone() it outside");
}

TEST(ErrorText, SecondBackward) {
  Tensor x = leaf({2});
  Tensor y = x.exp(); std::string where = LINE;
  Tensor loss = y.sum();
  loss.backward();
  EXPECT_TEXT(GradError, loss.backward(),
              "exp: its saved tensors were freed by an earlier backward (forward at " + where +
                  "); pass retain_graph = true to that one, or run the forward pass again");
}

TEST(ErrorText, ShapeMismatch) {
  EXPECT_TEXT(ShapeError, zeros({2, 3}) + zeros({2, 4}),
              "add: shapes [2, 3] and [2, 4] do not broadcast: sizes 3 and 4 differ at dimension -1 and neither is 1");
}

TEST(ErrorText, WrongType) {
  EXPECT_TEXT(DTypeError, zeros({2}, DType::f64).data<float>(), "data: the tensor holds f64, not f32; convert it with to()");
  Tensor n = zeros({2}, DType::i64);
  EXPECT_TEXT(DTypeError, n.add_(zeros({2})),
              "add: the result is f32 and cannot be written in place into [2] i64; use the out-of-place form");
}

TEST(ErrorText, MissingDevice) {
  const Device none{DeviceType::cuda, 99};
  if (!cuda_plugin()) {
    const PluginReport plugin = cuda_plugin_report();
    EXPECT_TEXT(DeviceError, zeros({2}, {DType::f32, none}),
                "empty: there is no device cuda:99; devices present: cpu, since " + plugin.path + " could not be loaded: " + plugin.why_not);
  } else if (device_count(DeviceType::cuda) == 0) {
    EXPECT_TEXT(DeviceError, zeros({2}, {DType::f32, none}), "empty: there is no device cuda:99; devices present: cpu; use one of them");
  } else {
    EXPECT_THROW(zeros({2}, {DType::f32, none}), DeviceError);
  }
}

TEST(ErrorText, NotAScalar) {
  Tensor y = leaf({2, 3}) * 1;
  EXPECT_TEXT(GradError, y.backward(),
              "backward: the tensor [2, 3] f64 is not a scalar; pass a gradient of its shape, or reduce it with sum() or mean()");
  EXPECT_TEXT(ShapeError, y.backward(zeros({3, 2}, DType::f64)),
              "backward: the gradient given has shape [3, 2], the tensor has [2, 3]");
}

TEST(ErrorText, LeafWritten) {
  Tensor w = leaf({3});
  std::string where = at(__LINE__ + 1);
  EXPECT_TEXT(InplaceError, w -= 1,
              "sub: a leaf [3] f64 that requires grad is written in place at " + where + "; do it inside a NoGradGuard, or on a clone()");
}

TEST(ErrorText, ViewOfALeafWritten) {
  Tensor w = leaf({3, 3});
  Tensor row = w[0]; std::string made = LINE;
  std::string where = at(__LINE__ + 1);
  EXPECT_TEXT(InplaceError, row.zero_(),
              "fill_: a view (made at " + made + ") of a leaf that requires grad is written in place at " + where +
                  "; do it inside a NoGradGuard, or on a clone()");
}

TEST(ErrorText, ViewUnderNoGradWritten) {
  Tensor y = leaf({3, 3}) * 1, row;
  std::string made;
  {
    NoGradGuard off;
    row = y[0]; made = LINE;
  }
  std::string where = at(__LINE__ + 1);
  EXPECT_TEXT(InplaceError, row.mul_(2),
              "mul: a view made at " + made + " under no_grad is written at " + where +
                  " with gradients on; make the view and the write in the same mode");
}

TEST(ErrorText, MultiOutputViewWritten) {
  Tensor y = leaf({4}) * 1;
  Tensor half = y.split(2)[0]; std::string made = LINE;
  std::string where = at(__LINE__ + 1);
  EXPECT_TEXT(InplaceError, half.mul_(2),
              "mul: one of several views made together at " + made + " (split, chunk or unbind) is written in place at " + where +
                  " with gradients on; use narrow() or select(), or write out of place");
}

TEST(ErrorText, IntegersRequireGrad) {
  EXPECT_TEXT(GradError, zeros({2}, DType::i64).requires_grad_(),
              "requires_grad_: only floating tensors can require grad, found [2] i64");
}

TEST(ErrorText, HookOfTheWrongShape) {
  Tensor x = leaf({2});
  Tensor y = x * 1; std::string where = LINE;
  y.register_hook([](const Tensor&) { return zeros({3}, DType::f64); });
  EXPECT_TEXT(GradError, y.sum().backward(),
              "mul: a hook returned a gradient [3] f64, expected [2] f64 (forward at " + where + ")");
}

struct TwoInputs : Function<TwoInputs> {
  static Tensor forward(FunctionContext&, const Tensor& a, const Tensor& b) { return a + b; }
  static Tensors backward(FunctionContext&, const Tensors& grads) { return {grads[0], grads[0], grads[0]}; }
};
TEST(ErrorText, CustomFunctionWithWrongNumberOfGradients) {
  Tensor x = leaf({2});
  Tensor y = TwoInputs::apply(x, x); std::string where = LINE;
  EXPECT_TEXT(GradError, y.sum().backward(),
              "TwoInputs: backward() returned 3 gradients for 2 tensor arguments (forward at " + where +
                  "); return one for each, undefined ones for zero");
}

struct Grows : Function<Grows> {
  static Tensor forward(FunctionContext&, const Tensor& x) { return x.sum(); }
  static Tensors backward(FunctionContext&, const Tensors& grads) { return {grads[0].expand({5})}; }
};
TEST(ErrorText, CustomFunctionWithWrongShape) {
  Tensor x = leaf({2});
  Tensor y = Grows::apply(x); std::string where = LINE;
  EXPECT_TEXT(GradError, y.backward(),
              "Grows: its gradient for input 0 has shape [5], expected [2] (forward at " + where + ")");
}

TEST(ErrorText, AnomalyInBackward) {
  Tensor x = zeros({2}, with_grad());
  Tensor y = x / x.detach(); std::string where = LINE;
  Tensor loss = (y * 0).sum();
  AnomalyGuard anomaly;
  EXPECT_TEXT(GradError, loss.backward(), "div: its gradient for input 0 holds NaN; its forward pass was at " + where);
}

TEST(ErrorText, AnomalyInForward) {
  AnomalyGuard anomaly;
  Tensor zero = zeros({2});
  std::string where = at(__LINE__ + 1);
  EXPECT_TEXT(GradError, zero / zero,
              "div: made the first NaN in the forward pass at " + where + " (result [2] f32); check its inputs");
}

// Not of an op that was given one, whichever of its inputs.
TEST(ErrorText, AnomalyOfTheFirstOpOnly) {
  AnomalyGuard anomaly;
  Tensor nan = full({2}, NAN), one = ones({2});
  EXPECT_NO_THROW(nan + one);
  EXPECT_NO_THROW(one + nan);
  EXPECT_NO_THROW(nan.exp());
  EXPECT_THROW((one - one) / (one - one), GradError);
  EXPECT_THROW((one * -1).sqrt(), GradError);
}

TEST(ErrorText, GradOfUnusedInput) {
  Tensor x = leaf({2}), unused = leaf({3}, 2);
  EXPECT_TEXT(GradError, grad({x.sum()}, {x, unused}),
              "grad: input 1 [3] f64 does not take part in the outputs; pass allow_unused = true if that is intended");
  EXPECT_TEXT(GradError, grad({x.sum()}, {sample({3})}),
              "grad: input 0 [3] f64 does not require grad; call requires_grad_() on it before the forward pass");
}

TEST(ErrorText, HookWithoutGradient) {
  Tensor x = sample({2});
  std::string where = at(__LINE__ + 1);
  EXPECT_TEXT(GradError, register_node_hook(x, [](std::vector<Tensor>&) {}),
              "register_node_hook: the tensor [2] f64 does not require grad, so no gradient will come (at " + where + ")");
}

}  // namespace
}  // namespace deft
