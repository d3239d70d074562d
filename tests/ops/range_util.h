// What the sweeps over the whole range of the floating types share: numbers of all magnitudes, the ways in which a
// function is run, and bounds in units in the last place.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "graph/compile.h"
#include "ops/all_ops.h"
#include "runtime/backend.h"

namespace deft::testing {

inline constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
using L = long double;

struct Format {
  int digits, least, most;  // the exponents of the smallest normal number and of the largest
};
inline Format format_of(DType t) {
  switch (t) {
    case DType::f64:
      return {53, -1022, 1023};
    case DType::f16:
      return {11, -14, 15};
    default:
      return {t == DType::bf16 ? 8 : 24, -126, 127};
  }
}
inline double largest_of(Format f) { return std::ldexp(2 - std::ldexp(1.0, 1 - f.digits), f.most); }
inline double smallest_of(Format f) { return std::ldexp(1.0, f.least - f.digits + 1); }
inline L ulp_of(Format f, L want) {
  const int e = want == 0 || !std::isfinite(want) ? f.least : std::ilogb(want);
  return std::ldexp(1.0L, std::max(e, f.least) - f.digits + 1);
}
inline std::vector<double> rounded(const std::vector<double>& x, DType t) {
  return tensor(x).to(t).to(DType::f64).to_vector<double>();
}

// Whether a result is the infinity, NaN or largest number that is wanted; -1: both are finite and to be compared.
inline int same_edge(double got, L want, DType t) {
  const Format f = format_of(t);
  if (std::isnan(want)) return std::isnan(got);
  const L near = largest_of(f) * (1 - 16 * std::ldexp(1.0L, -f.digits));
  if (std::fabs(want) > near && std::fabs(got) > near) return std::signbit(want) == std::signbit(L(got));
  if (!std::isfinite(got) || !std::isfinite(want)) return got == want;
  return -1;
}

// --- Ways to run

enum class Way { eager, compiled, cuda };
inline const char* name_of(Way way) { return way == Way::eager ? "eager" : way == Way::compiled ? "compiled" : "cuda"; }
class RangeTest : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (GetParam() == Way::cuda && device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "no CUDA device";
  }
};
#define DEFT_RANGE_WAYS(Suite)                                                                   \
  INSTANTIATE_TEST_SUITE_P(Ways, Suite, ::testing::Values(Way::eager, Way::compiled, Way::cuda), \
                           [](const auto& way) { return name_of(way.param); })

// A function of tensors, its value and its gradients for the incoming gradient `g`, all as numbers. What has no
// gradient has zeros.
using Function = std::function<Tensor(const std::vector<Tensor>&)>;
struct Values {
  std::vector<double> y;
  std::vector<std::vector<double>> gradients;
};
inline std::vector<double> numbers_of(const Tensor& x) {
  return x.detach().to(kCPU).to(DType::f64).to_vector<double>();
}
// `inputs` lie on the CPU; floating ones have their gradients taken where `wanted` says so. `ones_beside`: a compiled
// function is multiplied by a tensor of ones, so that it is fused with it.
inline Values run_way(Way way, const Function& f, const std::vector<Tensor>& inputs, const std::vector<bool>& wanted,
                      const Tensor& g, bool ones_beside = false) {
  const Device device = way == Way::cuda ? kCUDA : kCPU;
  std::vector<Tensor> in;
  for (size_t i = 0; i < inputs.size(); ++i) {
    in.push_back(inputs[i].defined() ? inputs[i].to(device).detach().clone() : Tensor());
    if (wanted[i]) in[i].requires_grad_();
  }
  const Tensor incoming = g.to(device);
  Tensor y;
  if (way == Way::compiled) {
    std::vector<Tensor> given = in;
    given.push_back(incoming);
    given.push_back(ones(incoming.sizes(), incoming.dtype()));
    Compiled fast = compile(Compiled::Function([&](const std::vector<Tensor>& x) {
      std::vector<Tensor> arguments(x.begin(), x.end() - 2);
      Tensor out = f(arguments);
      if (ones_beside) out = out * x.back();
      if (out.requires_grad()) out.backward(x[x.size() - 2]);
      return std::vector<Tensor>{out.detach()};
    }));
    for (int call = 0; call < 2; ++call) {  // the second one runs the plan
      for (Tensor& x : in)
        if (x.defined()) x.zero_grad();
      y = fast.run(given)[0];
    }
    EXPECT_EQ(fast.stats().replays, 1);
  } else {
    y = f(in);
    if (y.requires_grad()) y.backward(incoming);
  }
  Values values{numbers_of(y), {}};
  for (size_t i = 0; i < in.size(); ++i) {
    const bool has = in[i].defined() && in[i].grad().defined();
    values.gradients.push_back(has ? numbers_of(in[i].grad())
                                   : std::vector<double>(in[i].defined() ? static_cast<size_t>(in[i].numel()) : 0));
  }
  return values;
}

}  // namespace deft::testing
