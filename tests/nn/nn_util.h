// What the tests of nn share: cases written by tools/fixtures/nn.py, and how a module is held against one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "../core/core_util.h"
#include "core/state.h"
#include "io/safetensors.h"
#include "nn/module.h"
#include "source_dir.h"

namespace deft::nn {

// tests/fixtures/nn_<family>.safetensors; part("<case>") is one case.
inline State fixture(const std::string& family) {
  return {.tensors =
              io::load_safetensors(deft::test::source_dir() + "/tests/fixtures/nn_" + family + ".safetensors").tensors,
          .values = {}};
}

inline double eps_of(DType dtype) { return dtype == DType::f64 ? 0x1p-52 : 0x1p-23; }

// Equal up to the rounding of sums of `length` terms.
inline void expect_near(const Tensor& found, const Tensor& expected, double eps, double length,
                        const std::string& what) {
  ASSERT_TRUE(found.defined()) << what;
  ASSERT_EQ(found.sizes(), expected.sizes()) << what;
  std::vector<double> x = values(found), y = values(expected);
  double scale = 1;
  for (double v : y) scale = std::max(scale, std::abs(v));
  double tolerance = eps * (8 + 2 * length) * scale;
  for (size_t i = 0; i < x.size(); ++i)
    if (!(std::abs(x[i] - y[i]) <= tolerance)) {
      ADD_FAILURE() << what << " at " << i << ": " << x[i] << ", expected " << y[i];
      return;
    }
}

using Call = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

// Loads the state, calls the module and compares results, gradients and buffers with PyTorch's, in f64 and in f32.
// `length` is that of the longest sum.
inline void expect_as_pytorch(const State& c, Module& module, const Call& call, double length) {
  ASSERT_FALSE(c.tensors.empty()) << "no such case";
  for (DType dtype : {DType::f64, DType::f32}) {
    std::string in_type = std::string(" in ") + std::string(name_of(dtype));
    double eps = eps_of(dtype);
    module.to(dtype);
    module.load_state_dict(c.part("state").tensors);
    module.zero_grad();
    std::vector<Tensor> inputs, roots, gradients;
    for (const NamedTensor& t : c.part("in").tensors)
      inputs.push_back(is_floating(t.tensor.dtype()) ? t.tensor.to(dtype).clone().requires_grad_() : t.tensor);
    std::vector<Tensor> outputs = call(inputs);
    ASSERT_EQ(outputs.size(), c.part("out").tensors.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      std::string number = std::to_string(i);
      expect_near(outputs[i], c.tensor("out." + number), eps, length, "output " + number + in_type);
      if (const Tensor* g = find_tensor(c.tensors, "grad_out." + number)) {
        roots.push_back(outputs[i]);
        gradients.push_back(g->to(dtype));
      }
    }
    ASSERT_FALSE(roots.empty());
    backward(roots, gradients);
    for (size_t i = 0; i < inputs.size(); ++i)
      if (const Tensor* g = find_tensor(c.tensors, "grad_in." + std::to_string(i)))
        expect_near(inputs[i].grad(), *g, eps, length, "gradient of input " + std::to_string(i) + in_type);
    for (const NamedTensor& p : module.named_parameters()) {
      const Tensor* g = find_tensor(c.tensors, "grad." + p.name);
      if (g)
        expect_near(p.tensor.grad(), *g, eps, length, "gradient of " + p.name + in_type);
      else
        EXPECT_FALSE(p.tensor.grad().defined()) << p.name;
    }
    for (const NamedTensor& b : module.named_buffers()) {
      const Tensor* after = find_tensor(c.tensors, "after." + b.name);
      expect_near(b.tensor, after ? *after : c.tensor("state." + b.name), eps, length, b.name + in_type);
    }
  }
}

// For modules of one input and one output.
inline void expect_as_pytorch(const State& c, Module& module, double length) {
  expect_as_pytorch(
      c, module, [&](const std::vector<Tensor>& in) -> std::vector<Tensor> { return {module(in[0])}; }, length);
}

}  // namespace deft::nn
