// What the tests of GPUs share. Every one of them is skipped, visibly, where there is no GPU.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/core_util.h"
#include "deft/deft.h"
#include "runtime/backend.h"
#include "runtime/stream.h"
#include "runtime/sync.h"

namespace deft {

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "no CUDA device";
  }
  void TearDown() override {
    if (device_count(DeviceType::cuda) == 0) return;
    try {
      synchronize(kCUDA);
    } catch (const std::exception& e) {
      ADD_FAILURE() << "left behind: " << e.what();
    }
  }
};

inline TensorOptions on_gpu(DType dtype = DType::f32) { return {dtype, kCUDA}; }
inline Tensor host(const Tensor& t) { return t.defined() ? t.detach().to(kCPU) : t; }

// Distinct values of both signs, the same on every device.
inline Tensor sample_on(Device device, IntList sizes, uint64_t seed = 1, DType dtype = DType::f32) {
  return sample(sizes, seed, dtype).to(device);
}

// All elements of t, which has more of them than one wants to copy, equal v.
inline void expect_all(const Tensor& t, double v, const std::string& what = "") {
  EXPECT_EQ(t.amin().item<double>(), v) << what;
  EXPECT_EQ(t.amax().item<double>(), v) << what;
}

// A GPU needs some 10 ms or more for this; giving it the work takes the host a fraction of that. The result is
// start + kBusySteps everywhere.
inline constexpr int kBusySteps = 400;
inline constexpr int64_t kBusyElements = int64_t{1} << 24;
inline Tensor busy(const Tensor& start) {
  Tensor x = start;
  for (int i = 0; i < kBusySteps; ++i) x = x + 1;
  return x;
}

inline std::string here(int line, const char* file) {
  std::string name = file;
  return name.substr(name.rfind('/') + 1) + ":" + std::to_string(line);
}
#define HERE() here(__LINE__, __FILE__)

// Parameters that require grad, and one step of plain gradient descent on them.
struct Model {
  std::vector<Tensor> parameters;
  Tensor& add(IntList sizes, Device device, DType dtype, double scale = 0.3) {
    Tensor p = (sample(sizes, 100 + parameters.size(), DType::f64) * scale).to(dtype).to(device);
    p.set_memory_category(MemoryCategory::parameter);
    parameters.push_back(p.requires_grad_());
    return parameters.back();
  }
  const Tensor& operator[](size_t i) const { return parameters[i]; }
  void step(double rate) {
    NoGradGuard off;
    for (Tensor& p : parameters) {
      p.sub_(p.grad() * rate);
      p.zero_grad();
    }
  }
};

struct Mlp : Model {
  Mlp(Device device, DType dtype) {
    add({32, 16}, device, dtype);
    add({32}, device, dtype);
    add({5, 32}, device, dtype);
    add({5}, device, dtype);
  }
  Tensor loss(const Tensor& x, const Tensor& target) const {
    Tensor h = gelu(linear(x, parameters[0], parameters[1]));
    return cross_entropy(linear(h, parameters[2], parameters[3]), target);
  }
};

struct Cnn : Model {
  Tensor mean, var;
  Cnn(Device device, DType dtype)
      : mean(zeros({8}, TensorOptions(dtype, device))), var(ones({8}, TensorOptions(dtype, device))) {
    add({8, 3, 3, 3}, device, dtype);
    add({8}, device, dtype);
    add({8}, device, dtype);
    add({8}, device, dtype);
    add({5, 8 * 16}, device, dtype);
    add({5}, device, dtype);
  }
  Tensor loss(const Tensor& x, const Tensor& target) const {
    Tensor h = conv2d(x, parameters[0], parameters[1], {1}, {1});
    h = relu(batch_norm(h, mean, var, parameters[2], parameters[3], true));
    h = max_pool2d(h, {2});
    return cross_entropy(linear(h.flatten(1), parameters[4], parameters[5]), target);
  }
};

// Attention, norms, an embedding and dropout.
struct Block : Model {
  Block(Device device, DType dtype) {
    add({11, 16}, device, dtype);
    add({48, 16}, device, dtype);
    add({16}, device, dtype);
    add({16}, device, dtype);
    add({11, 16}, device, dtype);
  }
  Tensor loss(const Tensor& tokens, const Tensor& target) const {
    Tensor x = embedding(tokens, parameters[0]);
    Tensor h = layer_norm(x, {16}, parameters[2], parameters[3]);
    std::vector<Tensor> qkv = linear(h, parameters[1]).chunk(3, -1);
    auto heads = [](const Tensor& t) { return t.reshape({t.size(0), t.size(1), 2, 8}).transpose(1, 2); };
    Tensor a = scaled_dot_product_attention(heads(qkv[0]), heads(qkv[1]), heads(qkv[2]), {}, 0, true);
    x = x + dropout(a.transpose(1, 2).reshape(x.sizes()), 0.1);
    Tensor logits = linear(rms_norm(x, {16}), parameters[4]);
    return cross_entropy(logits.reshape({-1, 11}), target.reshape({-1}));
  }
};

inline Tensor classes(Device device, IntList sizes, int64_t count) {
  Tensor t = empty(sizes, DType::i64);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<int64_t>()[i] = (i * 7 + 3) % count;
  return t.to(device);
}

}  // namespace deft
