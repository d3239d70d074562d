// Gradients and switches on a GPU: the same table as on the host, the same numbers.
#include "cuda_util.h"

namespace deft {
namespace {

class CudaAutograd : public GpuTest {};

enum class Mode { usual, no_grad, inference };
template <class F>
auto in_mode(Mode mode, F&& f) {
  if (mode == Mode::no_grad) return no_grad(f);
  if (mode == Mode::inference) return inference_mode(f);
  return f();
}
Tensor gpu_leaf(IntList sizes, uint64_t seed = 1) {
  return sample_on(kCUDA, sizes, seed, DType::f64).detach().requires_grad_();
}

TEST_F(CudaAutograd, RecordsGraph) {
  Tensor x = gpu_leaf({3}), constant = sample_on(kCUDA, {3}, 2);
  for (Mode mode : {Mode::usual, Mode::no_grad, Mode::inference}) {
    int64_t nodes = graph_stats().live_nodes;
    Tensor y = in_mode(mode, [&] { return x * x; });
    bool recorded = mode == Mode::usual;
    EXPECT_EQ(y.requires_grad(), recorded);
    EXPECT_EQ(y.grad_fn() != nullptr, recorded);
    EXPECT_EQ(graph_stats().live_nodes - nodes, recorded ? 1 : 0);
    Tensor z = in_mode(mode, [&] { return constant * constant; });
    EXPECT_FALSE(z.requires_grad());
    EXPECT_EQ(z.grad_fn(), nullptr);
  }
}

TEST_F(CudaAutograd, NothingIsSavedWithoutGrad) {
  Tensor x = gpu_leaf({100});
  for (Mode mode : {Mode::no_grad, Mode::inference}) {
    Alive before;
    int64_t live = device_memory_use(kCUDA).live_bytes;
    in_mode(mode, [&] { return ((x * 2).exp() * x).tanh(); });
    EXPECT_EQ(Alive(), before);
    EXPECT_EQ(device_memory_use(kCUDA).live_bytes, live);
  }
  Alive before;
  Tensor y = ((x * 2).exp() * x).tanh();
  EXPECT_GT(Alive().saved, before.saved);
}

TEST_F(CudaAutograd, VersionsAndViewTracking) {
  for (Mode mode : {Mode::usual, Mode::no_grad, Mode::inference}) {
    bool tracked = mode != Mode::inference;
    Tensor made = in_mode(mode, [&] { return zeros({4}, on_gpu()); });
    EXPECT_EQ(made.is_inference(), !tracked);
    Tensor view = in_mode(mode, [&] { return made.view({2, 2}); });
    EXPECT_EQ(view.is_view(), tracked);
    EXPECT_EQ(view.is_inference(), !tracked);
    in_mode(mode, [&] { return view.add_(1); });
    EXPECT_VALUES(made, 1, 1, 1, 1);
    if (tracked) {
      EXPECT_EQ(made.version(), 1u);
      EXPECT_EQ(view.version(), 1u);
    } else {
      EXPECT_THROW(made.version(), InferenceError);
      EXPECT_THROW(view.version(), InferenceError);
    }
  }
}

TEST_F(CudaAutograd, UsableLater) {
  Tensor w = gpu_leaf({3}, 5);
  for (Mode mode : {Mode::usual, Mode::no_grad}) {
    Tensor c = in_mode(mode, [&] { return w.detach() * 2; });
    (c * w).sum().backward();
    expect_close(w.grad(), c);
    w.zero_grad();
  }
  Tensor c = inference_mode([&] { return w.detach() * 2; });
  EXPECT_THROW(c * w, InferenceError);
  EXPECT_NO_THROW(c + w);
  EXPECT_NO_THROW(c * w.detach());
}

TEST_F(CudaAutograd, FactoriesWithExplicitRequiresGrad) {
  Tensor a = no_grad([] { return zeros({2}, with_grad(DType::f32, kCUDA)); });
  EXPECT_TRUE(a.requires_grad());
  Tensor b = inference_mode([] { return zeros({2}, with_grad(DType::f32, kCUDA)); });
  EXPECT_TRUE(b.requires_grad());
  EXPECT_FALSE(b.is_inference());
  (b * b).sum().backward();
  EXPECT_VALUES(b.grad(), 0, 0);
  EXPECT_EQ(b.grad().device(), kCUDA);
}

TEST_F(CudaAutograd, WritesAfterSavingAreFound) {
  Tensor x = gpu_leaf({3});
  Tensor y = x.exp(), z = y * y;
  y.add_(1);
  EXPECT_THROW(z.sum().backward(), InplaceError);
}

TEST_F(CudaAutograd, GradientsAccumulate) {
  Tensor x = gpu_leaf({5});
  for (int i = 1; i <= 3; ++i) {
    (x * x).sum().backward();
    expect_close(x.grad(), x.detach() * (2.0 * i));
  }
  x.zero_grad(false);
  expect_all(x.grad(), 0);
}

TEST_F(CudaAutograd, GradientsCrossDevices) {
  Tensor w = leaf({4, 3}), x = sample_on(kCUDA, {5, 3}, 2, DType::f64);
  Tensor y = linear(x, w.to(kCUDA)).to(kCPU).square().sum();
  y.backward();
  EXPECT_TRUE(w.grad().device().is_cpu());
  Tensor v = leaf({4, 3});
  linear(host(x), v).square().sum().backward();
  expect_close(w.grad(), v.grad());
  Tensor given = gpu_leaf({3});
  (given * given).backward(ones({3}, on_gpu(DType::f64)));
  EXPECT_THROW((given * given).backward(ones({3}, DType::f64)), Error) << "a gradient on another device";
}

TEST_F(CudaAutograd, Gradcheck) {
  auto f = [](const Tensors& t) { return Tensors{matmul(t[0], t[1]).tanh(), (t[0] * 2).exp()}; };
  gradcheck(f, {gpu_leaf({2, 3}), gpu_leaf({3, 2}, 2)});
  gradgradcheck(f, {gpu_leaf({2, 3}), gpu_leaf({3, 2}, 2)});
  gradcheck([](const Tensors& t) { return Tensors{t[0].square()}; }, {gpu_leaf({40, 20})});
  auto half = [](const Tensors& t) { return Tensors{t[0] * t[0].detach()}; };
  EXPECT_FALSE(gradcheck_ok(half, {gpu_leaf({2, 2})}));
  EXPECT_FALSE(gradcheck_ok(half, {gpu_leaf({20, 20})}));
}

TEST_F(CudaAutograd, HooksAndCheckpoint) {
  Tensor x = gpu_leaf({8}), seen;
  auto f = [](const Tensors& t) { return Tensors{dropout(t[0].tanh(), 0.5).exp()}; };
  manual_seed(5);
  Tensor plain = f({x})[0];
  plain.register_hook([&](const Tensor& g) {
    seen = g;
    return g * 2;
  });
  plain.sum().backward();
  EXPECT_EQ(seen.device(), kCUDA);
  Tensor want = x.grad();
  x.zero_grad();
  manual_seed(5);
  checkpoint(f, {x})[0].sum().backward();
  expect_close(x.grad() * 2, want);
}

// The same training on both devices. In f64 nothing but rounding may differ.
template <class M>
void expect_same_training(const Tensor& x, const Tensor& target, double tolerance, DType dtype) {
  M on_cpu(kCPU, dtype), gpu(kCUDA, dtype);
  Tensor given = x.to(kCUDA), wanted = target.to(kCUDA);
  std::vector<double> a, b;
  for (int i = 0; i < 20; ++i) {
    RngScope rng({9, static_cast<uint64_t>(i)});
    Tensor loss = on_cpu.loss(x, target);
    a.push_back(loss.item());
    loss.backward();
    on_cpu.step(0.1);
  }
  for (int i = 0; i < 20; ++i) {
    RngScope rng({9, static_cast<uint64_t>(i)});
    Tensor loss = gpu.loss(given, wanted);
    b.push_back(loss.item());
    loss.backward();
    gpu.step(0.1);
  }
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance * (1 + std::fabs(a[i]))) << "step " << i;
  for (size_t i = 0; i < on_cpu.parameters.size(); ++i)
    expect_close(host(gpu[i]), on_cpu[i].detach(), "parameter " + std::to_string(i), 100 * tolerance);
  EXPECT_LT(a.back(), a.front());
}

TEST_F(CudaAutograd, TrainsAsOnTheHost) {
  for (auto [dtype, tolerance] : {std::pair{DType::f64, 1e-12}, {DType::f32, 1e-4}}) {
    expect_same_training<Mlp>(sample({16, 16}, 1, dtype), classes(kCPU, {16}, 5), tolerance, dtype);
    expect_same_training<Cnn>(sample({4, 3, 8, 8}, 1, dtype), classes(kCPU, {4}, 5), tolerance, dtype);
    expect_same_training<Block>(classes(kCPU, {2, 6}, 11), classes(kCPU, {2, 6}, 11), tolerance, dtype);
  }
}

TEST_F(CudaAutograd, SameBitsRunToRun) {
  auto train = [] {
    Cnn model(kCUDA, DType::f32);
    Tensor x = sample_on(kCUDA, {4, 3, 8, 8}), target = classes(kCUDA, {4}, 5);
    for (int i = 0; i < 5; ++i) {
      model.loss(x, target).backward();
      model.step(0.1);
    }
    std::vector<double> all;
    for (const Tensor& p : model.parameters)
      for (double v : values(p)) all.push_back(v);
    return all;
  };
  EXPECT_EQ(train(), train());
}

}  // namespace
}  // namespace deft
