// Twenty steps of every optimizer against PyTorch's in f64 (tools/fixtures/optim.py), in every way a step is computed.
#include "optim_util.h"

namespace deft::optim {
namespace {

const std::vector<std::vector<int64_t>> kSizes = {{1}, {7}, {3, 5}, {2, 3, 4, 5}, {65}};

struct Case {
  const char* name;
  Maker make;
};

template <class Options>
Case of(const char* name, Options options) {
  return {name,
          [options](const std::vector<Tensor>& p) { return std::make_unique<GroupedOptimizer<Options>>(p, options); }};
}

std::vector<Case> cases() {
  return {
      of("sgd", SGDOptions{.lr = 0.1}),
      of("sgd_decay", SGDOptions{.lr = 0.1, .weight_decay = 0.05}),
      of("sgd_momentum", SGDOptions{.lr = 0.1, .momentum = 0.9}),
      of("sgd_dampening", SGDOptions{.lr = 0.1, .momentum = 0.8, .dampening = 0.3, .weight_decay = 0.01}),
      of("sgd_nesterov", SGDOptions{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}),
      of("sgd_maximize", SGDOptions{.lr = 0.1, .momentum = 0.5, .maximize = true}),
      of("adam", AdamOptions{.lr = 0.01}),
      of("adam_decay", AdamOptions{.lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1}),
      of("adam_amsgrad", AdamOptions{.lr = 0.02, .beta1 = 0.7, .beta2 = 0.9, .amsgrad = true}),
      of("adam_maximize", AdamOptions{.lr = 0.01, .weight_decay = 0.02, .maximize = true}),
      of("adamw", AdamWOptions{.lr = 0.01}),
      of("adamw_decay", AdamWOptions{.lr = 0.02, .beta1 = 0.3, .beta2 = 0.98, .weight_decay = 0.3}),
      of("adamw_amsgrad", AdamWOptions{.lr = 0.02, .beta1 = 0.9, .beta2 = 0.9, .weight_decay = 0.1, .amsgrad = true}),
      of("rmsprop", RMSpropOptions{.lr = 0.01}),
      of("rmsprop_momentum", RMSpropOptions{.lr = 0.005, .alpha = 0.9, .weight_decay = 0.02, .momentum = 0.8}),
      of("rmsprop_centered", RMSpropOptions{.lr = 0.01, .alpha = 0.95, .eps = 1e-4, .centered = true}),
      of("rmsprop_all",
         RMSpropOptions{.lr = 0.01, .alpha = 0.8, .eps = 1e-3, .momentum = 0.5, .centered = true, .maximize = true}),
      of("adagrad", AdagradOptions{.lr = 0.1}),
      of("adagrad_decay",
         AdagradOptions{
             .lr = 0.1, .lr_decay = 0.05, .weight_decay = 0.02, .initial_accumulator_value = 0.3, .eps = 1e-6}),
      of("lamb", LAMBOptions{.lr = 0.01}),
      of("lamb_decay", LAMBOptions{.lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-4, .weight_decay = 0.1}),
  };
}

enum class Layout { row_major, strided, channels_last };

// A leaf with these values that lies in memory as asked.
Tensor placed(const Tensor& values, Layout layout) {
  if (layout == Layout::channels_last && values.dim() == 4) return values.contiguous(MemoryFormat::channels_last);
  if (layout != Layout::strided) return values.clone();
  std::vector<int64_t> wide(values.sizes().begin(), values.sizes().end());
  wide.push_back(2);
  Tensor every_second = zeros(wide, values.dtype()).select(-1, 1).detach();
  every_second.copy_(values);
  return every_second;
}

struct Run {
  DType dtype = f32;
  Layout layout = Layout::row_major;
  double grad_scale = 1;
};

void expect_parameters(const std::vector<Tensor>& params, const Tensor& want, int64_t step, const Run& how) {
  std::vector<double> got;
  for (const Tensor& p : params)
    for (double x : p.to_vector<double>()) got.push_back(x);
  const std::vector<double> wanted = want.to_vector<double>();
  ASSERT_EQ(got.size(), wanted.size());
  // A step rounds the parameter once and a handful of terms that are not larger than it plus one.
  const double tolerance = static_cast<double>(step) * 4 * (how.dtype == f64 ? 0x1p-53 : 0x1p-24);
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(got[i] - wanted[i]);
    ASSERT_TRUE(error <= tolerance * (1 + std::abs(wanted[i])))
        << "step " << step << ", element " << i << ": " << got[i] << ", expected " << wanted[i];
  }
}

void expect_as_pytorch(const Case& c, const Run& how) {
  SCOPED_TRACE(c.name);
  static const State expected = fixture("optim_steps");
  const Tensor start = expected.tensor("start").to(how.dtype), grads = expected.tensor("grads").to(how.dtype);
  const auto present = expected.tensor("present").to_vector<int64_t>();
  const auto checkpoints = expected.tensor("steps").to_vector<int64_t>();
  auto part = [&](const Tensor& all, size_t i) {
    int64_t begin = 0;
    for (size_t k = 0; k < i; ++k) begin += checked_numel(Shape(IntList(kSizes[k])), f32);
    return all.narrow(0, begin, checked_numel(Shape(IntList(kSizes[i])), f32)).view(kSizes[i]);
  };
  std::vector<Tensor> params;
  for (size_t i = 0; i < kSizes.size(); ++i) params.push_back(placed(part(start, i), how.layout).requires_grad_());
  const auto optimizer = c.make(params);
  size_t next = 0;
  for (int64_t step = 1; step <= 20; ++step) {
    for (size_t i = 0; i < params.size(); ++i) {
      Tensor g = placed(part(grads[step - 1], i), how.layout) / how.grad_scale;
      params[i].set_grad(present[static_cast<size_t>(step - 1) * kSizes.size() + i] ? g : Tensor());
    }
    optimizer->step({.grad_scale = how.grad_scale});
    if (step != checkpoints[next]) continue;
    expect_parameters(params, expected.tensor(c.name)[static_cast<int64_t>(next++)], step, how);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Formulas, FusedStepsEqualPyTorch) {
  for (const Case& c : cases()) expect_as_pytorch(c, {});
}
TEST(Formulas, ComposedStepsInF64EqualPyTorch) {
  for (const Case& c : cases()) expect_as_pytorch(c, {.dtype = f64});
}
TEST(Formulas, ComposedStepsOfStridedParametersEqualPyTorch) {
  for (const Case& c : cases()) expect_as_pytorch(c, {.layout = Layout::strided});
}
TEST(Formulas, StepsInChannelsLastEqualPyTorch) {
  for (const Case& c : cases()) expect_as_pytorch(c, {.layout = Layout::channels_last});
}
TEST(Formulas, GradScaleIsFusedIn) {
  for (const Case& c : cases()) {
    expect_as_pytorch(c, {.grad_scale = 0.25});
    expect_as_pytorch(c, {.dtype = f64, .grad_scale = 0.25});
  }
}

}  // namespace
}  // namespace deft::optim
