// Optimizer steps, clipping, loss scaling and averages on the GPU against the CPU: same bits, except where sums are
// made.
#include <functional>
#include <limits>

#include "cuda_util.h"
#include "ops/optimizer_update.h"
#include "ops/tensor_lists.h"

namespace deft {
namespace {

class CudaOptimizer : public GpuTest {};

constexpr double kEps = 0x1p-24;  // half a unit in the last place of f32

std::vector<float> floats(const Tensor& t) { return t.detach().to(kCPU).to(f32).contiguous().to_vector<float>(); }

// --- Updates ----------------------------------------------------------------------------------------------------

// Every `shift` begins elsewhere within 16 bytes.
struct Case {
  int64_t size;
  DType grad = f32;
  DType param = f32;
  int64_t shift = 0;
  bool master = false;  // of a 16-bit parameter
};
std::vector<Case> cases() {
  std::vector<Case> all;
  for (int64_t n : {0, 1, 3, 4, 5, 255, 1023, 1024, 4096, 16383, 16384, 16385, 40001})
    for (DType g : {f32, bf16, f16}) all.push_back({n, g});
  for (int64_t shift : {1, 2, 3, 4})
    for (DType g : {f32, bf16, f16})
      for (int64_t n : {1, 7, 1024, 16390}) all.push_back({n, g, f32, shift});
  for (DType p : {bf16, f16})
    for (int64_t shift : {0, 1, 2})
      for (int64_t n : {1, 6, 2048, 16387})
        for (bool master : {false, true}) all.push_back({n, p, p, shift, master});
  return all;
}

Tensor shifted(const Tensor& t, int64_t shift, Device device) {
  Tensor room = zeros({t.numel() + shift}, TensorOptions(t.dtype(), device));
  Tensor view = room.slice(0, {shift, {}});
  view.copy_(t.to(device));
  return view;
}

// The same tensor on both devices. On the CPU parameter and gradient are f32 with the same values.
struct Pair {
  UpdateTensor cpu, gpu;
  bool master;

  Pair(const Case& c, uint64_t seed) : master(c.master) {
    Tensor p = sample({c.size}, seed, {c.param}), g = gradient(c, seed);
    cpu = {p.to(f32).clone(), g.to(f32), {}, {}};
    gpu.param = shifted(p, c.shift, kCUDA);
    gpu.grad = shifted(g, c.shift, kCUDA);
    if (master) gpu.master = shifted(p.to(f32), c.shift, kCUDA);
    for (int k = 0; k < 3; ++k) {
      cpu.state[k] = zeros({c.size});
      gpu.state[k] = shifted(cpu.state[k], c.shift, kCUDA);
    }
  }
  static Tensor gradient(const Case& c, uint64_t seed) { return sample({c.size}, seed + 1000, {c.grad}); }
  void next_gradient(const Case& c, uint64_t seed) {
    if (!c.master && c.param != f32) round_cpu();
    Tensor g = gradient(c, seed);
    cpu.grad = g.to(f32);
    gpu.grad = shifted(g, c.shift, kCUDA);
  }
  // The parameter as 16 bits hold it.
  void round_cpu() { cpu.param.copy_(cpu.param.to(gpu.param.dtype()).to(f32)); }
  // `tolerance` of the parameter's step; states have the same bits.
  void expect_same(unsigned states, double tolerance, const std::string& what) {
    if (!master && gpu.param.dtype() != f32) {
      round_cpu();
      if (tolerance > 0) tolerance += 3 * (gpu.param.dtype() == bf16 ? 0x1p-7 : 0x1p-10);  // last bits may turn over
    }
    const std::vector<float> want = floats(cpu.param), got = floats(master ? gpu.master : gpu.param);
    ASSERT_EQ(got.size(), want.size()) << what;
    for (size_t i = 0; i < want.size(); ++i) {
      const double error = std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
      if (!(error <= tolerance * (1 + std::abs(static_cast<double>(want[i])))))
        FAIL() << what << " at " << i << ": " << got[i] << ", expected " << want[i];
    }
    if (master) {
      EXPECT_EQ(floats(gpu.param), floats(gpu.master.to(kCPU).to(gpu.param.dtype()))) << what;
    }
    for (int k = 0; k < 3; ++k)
      if (states >> k & 1) {
        EXPECT_EQ(floats(gpu.state[k]), floats(cpu.state[k])) << what << ", state " << k;
      }
  }
};

using Step = std::function<void(std::span<const UpdateTensor>, int64_t)>;
struct Kind {
  std::string name;
  unsigned states;
  double tolerance;
  Step step;
};
template <class U>
U with(double scale, double decay, bool maximize, U u) {
  u.lr = 0.05, u.grad_scale = scale, u.weight_decay = decay, u.maximize = maximize;
  return u;
}

// All options, each with decay, scaled gradients and maximising or without them.
std::vector<Kind> kinds() {
  std::vector<Kind> all;
  for (bool rich : {false, true}) {
    const double scale = rich ? 0.37 : 1, decay = rich ? 0.1 : 0;
    const std::string tail = rich ? ", decayed, scaled, maximized" : "";
    auto add = [&](const std::string& name, unsigned states, Step step, double tolerance = 0) {
      all.push_back({name + tail, states, tolerance, std::move(step)});
    };
    auto sgd = [&](double momentum, double dampening, bool nesterov) -> Step {
      return [=](std::span<const UpdateTensor> t, int64_t step) {
        SgdUpdate u = with(scale, decay, rich, SgdUpdate{});
        u.momentum = momentum, u.dampening = dampening, u.nesterov = nesterov, u.first = step == 1;
        sgd_update(t, u);
      };
    };
    add("sgd", 0, sgd(0, 0, false));
    add("momentum", 1, sgd(0.9, 0, false));
    add("dampened", 1, sgd(0.9, 0.3, false));
    add("nesterov", 1, sgd(0.9, 0, true));
    for (bool decoupled : {false, true}) {
      for (bool amsgrad : {false, true}) {
        add(std::string(decoupled ? "adamw" : "adam") + (amsgrad ? ", amsgrad" : ""), amsgrad ? 7u : 3u,
            [=](std::span<const UpdateTensor> t, int64_t step) {
              AdamUpdate u = with(scale, decay, rich, AdamUpdate{});
              u.step = step, u.decoupled = decoupled, u.amsgrad = amsgrad;
              adam_update(t, u);
            });
      }
    }
    for (bool centered : {false, true}) {
      for (double momentum : {0.0, 0.9}) {
        add(std::string("rmsprop") + (centered ? ", centered" : "") + (momentum != 0 ? ", momentum" : ""),
            1u | (momentum != 0 ? 2u : 0u) | (centered ? 4u : 0u), [=](std::span<const UpdateTensor> t, int64_t) {
              RmspropUpdate u = with(scale, decay, rich, RmspropUpdate{});
              u.momentum = momentum, u.centered = centered;
              rmsprop_update(t, u);
            });
      }
    }
    add("adagrad", 1, [=](std::span<const UpdateTensor> t, int64_t step) {
      AdagradUpdate u = with(scale, decay, rich, AdagradUpdate{});
      u.lr_decay = 0.1, u.step = step;
      adagrad_update(t, u);
    });
    // Norms are sums in another order: threads add at most 64 squares in f32.
    add(
        "lamb", 3,
        [=](std::span<const UpdateTensor> t, int64_t step) {
          LambUpdate u = with(scale, decay, rich, LambUpdate{});
          u.step = step;
          lamb_update(t, u);
        },
        3 * 64 * kEps);
  }
  return all;
}

TEST_F(CudaOptimizer, StepsOfEveryKindTypeAndSize) {
  const std::vector<Case> list = cases();
  for (const Kind& kind : kinds()) {
    std::vector<Pair> pairs;
    for (size_t i = 0; i < list.size(); ++i) pairs.emplace_back(list[i], i);
    for (int64_t step = 1; step <= 3; ++step) {
      std::vector<UpdateTensor> cpu, gpu;
      for (size_t i = 0; i < list.size(); ++i) {
        if (step > 1) pairs[i].next_gradient(list[i], i + static_cast<size_t>(step) * 100);
        cpu.push_back(pairs[i].cpu);
        gpu.push_back(pairs[i].gpu);
      }
      kind.step(cpu, step);
      SyncGuard guard(SyncPolicy::forbid);
      kind.step(gpu, step);
    }
    for (size_t i = 0; i < list.size(); ++i) {
      const Case& c = list[i];
      pairs[i].expect_same(kind.states, kind.tolerance,
                           kind.name + ": " + std::to_string(c.size) + " elements, gradient " +
                               std::string(name_of(c.grad)) + ", parameter " + std::string(name_of(c.param)) +
                               (c.master ? " with master" : "") + ", shift " + std::to_string(c.shift));
    }
  }
}

TEST_F(CudaOptimizer, MoreTensorsThanOneLaunchTakes) {
  for (const Kind& kind : kinds()) {
    std::vector<Pair> pairs;
    std::vector<UpdateTensor> cpu, gpu;
    for (uint64_t i = 0; i < 401; ++i)
      pairs.emplace_back(Case{static_cast<int64_t>(i * 37 % 50), i % 2 ? f32 : bf16}, i);
    pairs.emplace_back(Case{16384 * 3 + 5}, 9);
    for (Pair& p : pairs) cpu.push_back(p.cpu), gpu.push_back(p.gpu);
    kind.step(cpu, 1);
    kind.step(gpu, 1);
    for (size_t i = 0; i < pairs.size(); ++i)
      pairs[i].expect_same(kind.states, kind.tolerance, kind.name + ", tensor " + std::to_string(i));
  }
}

TEST_F(CudaOptimizer, NoTensorsAndOnlyEmptyOnes) {
  for (const Kind& kind : kinds()) {
    kind.step({}, 1);
    Pair empty({0}, 1);
    kind.step(std::span(&empty.gpu, 1), 1);
    empty.expect_same(kind.states, 0, kind.name);
  }
}

TEST_F(CudaOptimizer, OtherOrdersAndTypes) {
  const Tensor start = sample({2, 3, 4, 5}, 1, {f32}), g = sample({2, 3, 4, 5}, 2, {f32});
  for (const Kind& kind : kinds()) {
    auto after = [&](Device device, DType dtype, MemoryFormat order, MemoryFormat grad_order) {
      Tensor p = start.to(dtype).to(device).clone(order);
      UpdateTensor t{p,
                     g.to(dtype).to(device).clone(grad_order),
                     {optimizer_state(p), optimizer_state(p), optimizer_state(p)},
                     {}};
      kind.step(std::span(&t, 1), 1);
      return values(p);
    };
    const auto plain = MemoryFormat::contiguous, last = MemoryFormat::channels_last;
    for (DType dtype : {f32, f64, bf16}) {
      for (MemoryFormat order : {plain, last}) {
        for (MemoryFormat grad_order : {plain, last}) {
          const std::vector<double> want = after(kCPU, dtype, order, grad_order);
          const std::vector<double> got = after(kCUDA, dtype, order, grad_order);
          // f64 is composed of ops on the GPU, bf16 on the CPU: they round where the kernel does not.
          const double unit = dtype == f64 ? 0x1p-53 : dtype == bf16 ? 0x1p-8 : kEps;
          const double tolerance = dtype == f32 ? kind.tolerance : 16 * unit;
          for (size_t i = 0; i < want.size(); ++i) {
            if (!(std::abs(got[i] - want[i]) <= tolerance * (1 + std::abs(want[i]))))
              ADD_FAILURE() << kind.name << ", " << name_of(dtype) << " at " << i << ": " << got[i] << ", expected "
                            << want[i];
          }
        }
      }
    }
  }
}

TEST_F(CudaOptimizer, WaitsForOtherStreamsAndTheyForIt) {
  Stream other = Stream::create(kCUDA);
  Tensor p = zeros({kBusyElements}, on_gpu()), start = zeros({kBusyElements}, on_gpu()), g, later;
  synchronize(kCUDA);
  {
    StreamGuard guard(other);
    g = busy(start);
  }
  UpdateTensor t{p, g, {}, {}};
  SgdUpdate u{};
  u.lr = 1;
  sgd_update(std::span(&t, 1), u);
  {
    StreamGuard guard(other);
    later = p + 1;
  }
  expect_all(later, 1 - kBusySteps);
  expect_all(p, -kBusySteps);
}

TEST_F(CudaOptimizer, VersionsOfAllThatIsWritten) {
  Pair p({37, bf16, bf16, 0, true}, 1);
  const uint32_t param = p.gpu.param.version(), master = p.gpu.master.version(), state = p.gpu.state[0].version(),
                 unused = p.gpu.state[2].version(), grad = p.gpu.grad.version();
  AdamUpdate u{};
  u.lr = 0.1;
  adam_update(std::span(&p.gpu, 1), u);
  EXPECT_EQ(p.gpu.param.version(), param + 1);
  EXPECT_EQ(p.gpu.master.version(), master + 1);
  EXPECT_EQ(p.gpu.state[0].version(), state + 1);
  EXPECT_EQ(p.gpu.state[2].version(), unused);
  EXPECT_EQ(p.gpu.grad.version(), grad);
}

// --- Norms, scaling, checks -------------------------------------------------------------------------------------

// More than one table of them, of all types, some empty, some misaligned, some long, and one that no kernel takes.
std::vector<Tensor> mixed(Device device) {
  std::vector<Tensor> all;
  const DType types[] = {f32, bf16, f16};
  for (uint64_t i = 0; i < 300; ++i) {
    const int64_t size = i % 50 == 7 ? 16384 * 2 + static_cast<int64_t>(i) : static_cast<int64_t>(i * 31 % 70);
    all.push_back(shifted(sample({size}, i, {types[i % 3]}), static_cast<int64_t>(i % 5), device));
  }
  all.push_back(sample({5, 4}, 300, {f64}).to(device));
  all.push_back(sample({6, 4}, 301, {f32}).to(device).t());
  all.push_back(sample({6, 8}, 302, {f32}).to(device).slice(1, {0, {}, 2}));
  return all;
}
double norm_of(const std::vector<Tensor>& list) {
  double sum = 0;
  for (const Tensor& t : list)
    for (double x : values(t)) sum += x * x;
  return std::sqrt(sum);
}

TEST_F(CudaOptimizer, TotalNorm) {
  const std::vector<Tensor> list = mixed(kCUDA);
  const double want = norm_of(list), norm = total_norm(list);
  EXPECT_NEAR(norm, want, 64 * kEps * want);
  EXPECT_EQ(total_norm(list), norm);  // the same in every run
  EXPECT_EQ(total_norm(std::span(list.data(), 0)), 0);
  EXPECT_EQ(total_norm(std::vector<Tensor>{zeros({0}, on_gpu())}), 0);
  std::vector<Tensor> both = list;
  both.push_back(sample({1000}, 400, {f32}));  // on the CPU
  EXPECT_NEAR(total_norm(both), norm_of(both), 64 * kEps * norm_of(both));
  for (double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    Tensor x = zeros({20001}, on_gpu());
    x.slice(0, {20000, {}}).fill_(bad);
    EXPECT_FALSE(std::isfinite(total_norm(std::vector<Tensor>{x})));
  }
  const std::vector<Tensor> kernel_only(list.begin(), list.begin() + 300);
  const int64_t before = sync_count();
  total_norm(kernel_only);
  EXPECT_EQ(sync_count() - before, 1);
}

TEST_F(CudaOptimizer, ScaleTensors) {
  const std::vector<Tensor> list = mixed(kCUDA), before = mixed(kCPU);
  const std::vector<uint32_t> versions = [&] {
    std::vector<uint32_t> v;
    for (const Tensor& t : list) v.push_back(t.version());
    return v;
  }();
  {
    SyncGuard guard(SyncPolicy::forbid);
    scale_tensors_(list, 0.3);
  }
  for (size_t i = 0; i < list.size(); ++i) {
    const bool wide = list[i].dtype() == f64;
    const Tensor want = wide ? before[i] * 0.3 : (before[i].to(f32) * 0.3).to(list[i].dtype());
    EXPECT_EQ(values(list[i].to(kCPU)), values(want)) << i;
    EXPECT_GT(list[i].version(), versions[i]) << i;
  }
}

TEST_F(CudaOptimizer, ClipGradNorm) {
  auto parameters = [](Device device) {
    std::vector<Tensor> all;
    for (const Tensor& g : mixed(device)) {
      if (g.dtype() == f64) continue;
      Tensor p = zeros(g.sizes(), TensorOptions(g.dtype(), device)).requires_grad_();
      p.set_grad(g);
      all.push_back(p);
    }
    all.pop_back();  // with holes
    return all;
  };
  const std::vector<Tensor> gpu = parameters(kCUDA), cpu = parameters(kCPU);
  const uint32_t version = gpu[1].grad().version();
  const int64_t before = sync_count();
  const double norm = optim::clip_grad_norm_(gpu, 1e6);
  EXPECT_EQ(sync_count() - before, 1);
  EXPECT_EQ(gpu[1].grad().version(), version);
  for (size_t i = 0; i < gpu.size(); ++i) EXPECT_EQ(values(gpu[i].grad().to(kCPU)), values(cpu[i].grad())) << i;
  EXPECT_EQ(optim::clip_grad_norm_(gpu, 0.5), norm);
  EXPECT_EQ(gpu[1].grad().version(), version + 1);
  const double factor = optim::clip_factor(norm, 0.5);
  for (size_t i = 0; i < gpu.size(); ++i) {
    const Tensor want = (cpu[i].grad().to(f32) * factor).to(gpu[i].dtype());
    EXPECT_EQ(values(gpu[i].grad().to(kCPU)), values(want)) << i;
  }
  // Nothing is written where the host may not wait.
  {
    SyncGuard guard(SyncPolicy::forbid);
    EXPECT_THROW(optim::clip_grad_norm_(gpu, 0.1), SyncError);
  }
  EXPECT_EQ(gpu[1].grad().version(), version + 1);
  EXPECT_NEAR(optim::grad_norm(gpu), 0.5, 0x1p-8);
  // A norm that is no number.
  gpu[7].grad().fill_(std::nan(""));
  EXPECT_THROW(optim::clip_grad_norm_(gpu, 1, 2, true), ValueError);
  EXPECT_TRUE(std::isfinite(gpu[1].grad().sum().item()));
  EXPECT_TRUE(std::isnan(optim::clip_grad_norm_(gpu, 1)));
  EXPECT_TRUE(std::isnan(gpu[1].grad().sum().item()));
}

TEST_F(CudaOptimizer, FirstNotFinite) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<Tensor> list = mixed(kCUDA);
  EXPECT_EQ(first_not_finite(list), -1);
  EXPECT_EQ(first_not_finite(std::span(list.data(), 0)), -1);
  // The last element of one after the other, from the back, so that there always is a later one too.
  for (int64_t i : {302, 301, 300, 299, 257, 150, 143, 142, 141, 58, 57, 3, 1}) {
    Tensor x = list[static_cast<size_t>(i)];
    if (x.numel() == 0) continue;
    Tensor flat = x.dim() == 1 ? x : x.select(0, -1);
    flat.slice(0, {-1, {}}).fill_(i % 3 == 0 ? inf : i % 3 == 1 ? -inf : std::nan(""));
    EXPECT_EQ(first_not_finite(list), i);
  }
  const std::vector<Tensor> kernel_only(list.begin(), list.begin() + 300);
  const int64_t before = sync_count();
  EXPECT_EQ(first_not_finite(kernel_only), 1);
  EXPECT_EQ(sync_count() - before, 1);
}

TEST_F(CudaOptimizer, Unscale) {
  std::vector<Tensor> list = mixed(kCUDA);
  const std::vector<Tensor> before = mixed(kCPU);
  list[57].slice(0, {16384, 16385}).fill_(std::nan(""));
  EXPECT_EQ(unscale_tensors_(list, 0.3), 57);
  for (size_t i = 0; i < list.size(); ++i) {
    if (i == 57) continue;
    const Tensor want = list[i].dtype() == f64 ? before[i] * 0.3 : (before[i].to(f32) * 0.3).to(list[i].dtype());
    EXPECT_EQ(values(list[i].to(kCPU)), values(want)) << i;
  }
  int64_t bad = 0;
  for (double x : values(list[57])) bad += std::isnan(x) ? 1 : 0;
  EXPECT_EQ(bad, 1);
}

// --- What uses them ---------------------------------------------------------------------------------------------

TEST_F(CudaOptimizer, GradScalerWaitsOnce) {
  std::vector<Tensor> params;
  for (uint64_t i = 0; i < 200; ++i) params.push_back(sample_on(kCUDA, {30}, i).requires_grad_());
  optim::Adam adam(params, {.lr = 0.1});
  optim::GradScaler scaler({.scale = 1024});
  auto give = [&] {
    for (const Tensor& p : params) p.set_grad(ones({30}, on_gpu()) * 1024);
  };
  for (bool first_unscale : {false, true}) {
    give();
    const int64_t before = sync_count();
    if (first_unscale) scaler.unscale_(adam);
    EXPECT_TRUE(scaler.step(adam).stepped);
    scaler.update();
    EXPECT_EQ(sync_count() - before, 1) << first_unscale;
    EXPECT_EQ(params[3].grad().amax().item(), first_unscale ? 1 : 1024);
  }
  give();
  params[120].grad().slice(0, {29, {}}).fill_(std::numeric_limits<double>::infinity());
  params[150].grad().fill_(std::nan(""));
  const Tensor before = params[0].detach().clone();
  const optim::ScaledStep done = scaler.step(adam);
  EXPECT_FALSE(done.stepped);
  EXPECT_EQ(done.first_bad, 120);
  EXPECT_EQ(values(params[0].detach()), values(before));
}

TEST_F(CudaOptimizer, MovingAverages) {
  auto tensors = [](Device device, uint64_t seed) {
    std::vector<Tensor> all;
    for (uint64_t i = 0; i < 150; ++i)
      all.push_back(
          shifted(sample({static_cast<int64_t>(i * 13 % 40)}, seed + i, {i % 3 ? (i % 3 == 1 ? bf16 : f16) : f32}),
                  static_cast<int64_t>(i % 3), device));
    all.push_back(sample({3, 16384}, seed + 500, {f32}).to(device));
    all.push_back(sample({3, 5}, seed + 501, {f64}).to(device));
    all.push_back(sample({4, 6}, seed + 502, {f32}).to(device).t());
    return all;
  };
  std::vector<Tensor> gpu = tensors(kCUDA, 1), cpu = tensors(kCPU, 1);
  for (double decay : {0.9, 0.3}) {
    optim::ExponentialMovingAverage ours(gpu, {.decay = decay}), theirs(cpu, {.decay = decay});
    const std::vector<Tensor> now = tensors(kCPU, 1000);
    for (size_t i = 0; i < gpu.size(); ++i) {
      gpu[i].copy_(now[i].to(kCUDA));
      cpu[i].copy_(now[i]);
    }
    const uint32_t version = ours.averages()[0].version();
    {
      SyncGuard guard(SyncPolicy::forbid);
      ours.update();
    }
    theirs.update();
    EXPECT_EQ(ours.averages()[0].version(), version + 1);
    for (size_t i = 0; i < gpu.size(); ++i)
      expect_close(ours.averages()[i].to(kCPU).to(f64), theirs.averages()[i].to(f64), std::to_string(i), 4 * kEps);
  }
}

TEST_F(CudaOptimizer, TrainingStepsDoNotWait) {
  Mlp model(kCUDA, f32);
  optim::AdamW adam(model.parameters, {.lr = 0.01});
  const Tensor x = sample_on(kCUDA, {8, 16}), target = classes(kCUDA, {8}, 5);
  const double begin = model.loss(x, target).item();
  {
    SyncGuard guard(SyncPolicy::forbid);
    for (int i = 0; i < 20; ++i) {
      adam.zero_grad();
      model.loss(x, target).backward();
      adam.step();
    }
  }
  EXPECT_LT(model.loss(x, target).item(), begin / 2);
}

}  // namespace
}  // namespace deft
