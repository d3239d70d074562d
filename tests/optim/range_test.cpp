// Steps of every optimizer over parameters and gradients of all magnitudes, against the same optimizer in f64, whose
// range has room for what overflows or vanishes on the way in the other types.
#include <fmt/format.h>

#include "ops/range_util.h"
#include "optim/adagrad.h"
#include "optim/adam.h"
#include "optim/lamb.h"
#include "optim/rmsprop.h"
#include "optim/sgd.h"

namespace deft::optim {
namespace {

using namespace deft::testing;

// Of one sign each, so that decay and gradient do not cancel.
std::vector<double> magnitudes(DType t, int most = 1024) {
  Format f = format_of(t);
  f.most = std::min(f.most, most);  // numbers below 2^(most + 1)
  std::vector<double> x = {0, 1, 0.3, 17, largest_of(f), largest_of(f) / 3, smallest_of(f)};
  for (int e = f.least; e < f.most; e += std::max(1, f.most / 12)) x.push_back(std::ldexp(1.4375, e));
  if (most < 1024) std::erase_if(x, [&](double v) { return v != 0 && v < std::ldexp(1.0, -most); });
  return rounded(x, t);
}

struct Numbers {
  std::vector<double> param;
  std::vector<std::vector<double>> state;
};
template <class O>
Numbers steps_of(const O& options, const std::vector<double>& p, const std::vector<double>& g, DType t, DType gradients,
                 bool wide, Device device, int steps) {
  const DType used = wide ? DType::f64 : t;
  Tensor param = tensor(p).to(t).to(used).to(device).clone().requires_grad_();
  GroupedOptimizer<O> optimizer({param}, options);
  for (int i = 0; i < steps; ++i) {
    param.set_grad(tensor(g).to(gradients).to(used).to(device));
    optimizer.step({.grad_scale = 0.25});
  }
  Numbers n{numbers_of(param), {}};
  for (const auto& entry : optimizer.state().tensors)
    if (entry.tensor.numel() == param.numel() && entry.name.find("master") == std::string::npos)
      n.state.push_back(numbers_of(entry.tensor));
  return n;
}

// How many numbers were compared.
template <class O>
size_t check(const std::string& name, const O& options, const std::vector<double>& p, const std::vector<double>& g,
             DType t, Device device, double smallest_divisor) {
  O wide_options = options;
  wide_options.master_weights = false;
  int faults = 0;
  size_t compared = 0;
  const Format f = format_of(t), f32_format = format_of(DType::f32);
  // After a step 16-bit parameters are others than those in f64, and then so is their decay.
  const int most = t == DType::f32 && options.weight_decay == 0 ? 2 : 1;
  for (int steps = 1; steps <= most; ++steps) {
    const Numbers got = steps_of(options, p, g, t, t, false, device, steps);
    const Numbers want = steps_of(wide_options, p, g, t, t, true, kCPU, steps);
    EXPECT_EQ(got.state.size(), want.state.size()) << name;
    for (size_t i = 0; i < p.size(); ++i) {
      bool stored = true;
      std::string fault;
      for (const std::vector<double>& state : want.state)
        stored &= !(std::fabs(state[i]) > largest_of(f32_format) / 64);
      for (size_t k = 0; k < std::min(got.state.size(), want.state.size()); ++k) {
        const double a = got.state[k][i], b = want.state[k][i];
        const int edge = same_edge(a, b, DType::f32);
        const L allowed = 16 * ulp_of(f32_format, b) + 4 * smallest_of(f32_format) +
                          (k > 0 ? 64 * smallest_of(f32_format) / smallest_divisor : 0);
        if (k > 0 && !stored) continue;
        if (edge == 0 || (edge < 0 && !(std::fabs(a - b) <= allowed)))
          fault = "state " + std::to_string(k) + " is " + fmt::format("{}, want {}", a, b);
        ++compared;
      }
      const double a = got.param[i], b = want.param[i];
      const int edge = same_edge(a, b, t);
      const L move = std::fabs(p[i]) + std::fabs(b - p[i]);
      const L allowed = 32 * ulp_of(f32_format, move) + steps * (ulp_of(f, b) + ulp_of(f, p[i])) +
                        64 * smallest_of(f32_format) / smallest_divisor;
      // A state that f32 cannot hold makes another step, but no NaN.
      const bool wrong =
          stored ? edge == 0 || (edge < 0 && !(std::fabs(a - b) <= allowed)) : std::isnan(a) && !std::isnan(b);
      if (wrong) fault += fmt::format(" the parameter is {}, want {}", a, b);
      ++compared;
      if (fault.empty() || ++faults > 3) continue;
      ADD_FAILURE() << name << " in " << name_of(t) << ", step " << steps << " of parameter " << p[i] << ", gradient "
                    << g[i] << ": " << fault;
    }
  }
  EXPECT_LE(faults, 3) << name << " in " << name_of(t) << " is wrong in as many places";
  return compared;
}

template <class O>
void each(const std::string& name, O options, Device device, double smallest_divisor, bool by_tensor = false) {
  for (DType t : {DType::f32, DType::bf16, DType::f16}) {
    for (bool master : {false, true}) {
      if (master && t == DType::f32) continue;
      options.master_weights = master;
      std::vector<double> p, g;
      // Lengths of tensors are sums of squares: in f64 where a kernel makes them, in f32 where ops are composed.
      const int most = by_tensor && t != DType::f32 ? 60 : 1024;
      for (double a : magnitudes(t, most)) {
        for (double b : magnitudes(t, most)) {
          p.push_back(a), g.push_back(b);
          p.push_back(-a), g.push_back(-b);
          if (!by_tensor) continue;
          p.insert(p.end(), {a / 2, a}), g.insert(g.end(), {b, b / 4});
          check(name, options, rounded(p, t), rounded(g, t), t, device, smallest_divisor);
          p.clear(), g.clear();
        }
      }
      if (!by_tensor) check(name, options, p, g, t, device, smallest_divisor);
    }
  }
}

void all_of(Device device) {
  each("SGD", SGDOptions{.lr = 0.5, .weight_decay = 0.125}, device, 1);
  each("SGD with momentum", SGDOptions{.lr = 0.5, .momentum = 0.75, .weight_decay = 0.125, .nesterov = true}, device,
       1);
  each("Adam", AdamOptions{.weight_decay = 0.125}, device, 1e-8);
  each("Adam amsgrad", AdamOptions{.amsgrad = true}, device, 1e-8);
  each("AdamW", AdamWOptions{}, device, 1e-8);
  each("RMSprop", RMSpropOptions{.weight_decay = 0.125}, device, 1e-8);
  each("RMSprop centered", RMSpropOptions{.momentum = 0.5, .centered = true}, device, 1e-8);
  each("Adagrad", AdagradOptions{.weight_decay = 0.125}, device, 1e-10);
}
TEST(OptimizerRange, ElementByElement) { all_of(kCPU); }
TEST(OptimizerRange, Lamb) { each("LAMB", LAMBOptions{.weight_decay = 0.125}, kCPU, 1e-6, true); }
TEST(OptimizerRange, OnADevice) {
  if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "no CUDA device";
  all_of(kCUDA);
  each("LAMB", LAMBOptions{.weight_decay = 0.125}, kCUDA, 1e-6, true);
}

// What is not a number in a gradient stays in its element.
TEST(OptimizerRange, SpecialValuesStayWhereTheyAre) {
  const std::vector<double> p = {1, 2, 3, 4, 5, 6, 7, 8}, g = {1, kNan, -1, kInf, 0.5, -kInf, 0.25, 0};
  const auto expect = [&](const std::string& name, const auto& options) {
    const Numbers got = steps_of(options, p, g, DType::f32, DType::f32, false, kCPU, 1);
    for (size_t i = 0; i < p.size(); ++i)
      if (std::isfinite(g[i])) {
        EXPECT_TRUE(std::isfinite(got.param[i])) << name << " at " << i;
        EXPECT_LT(std::fabs(got.param[i] - p[i]), 1) << name << " at " << i;
      }
    EXPECT_TRUE(std::isnan(got.param[1])) << name;
  };
  expect("SGD", SGDOptions{.momentum = 0.5});
  expect("Adam", AdamOptions{});
  expect("AdamW", AdamWOptions{});
  expect("RMSprop", RMSpropOptions{.centered = true});
  expect("Adagrad", AdagradOptions{});
}

}  // namespace
}  // namespace deft::optim
