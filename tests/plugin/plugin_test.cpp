// libdeft.so and its CUDA plug-in as programs get them: this test is linked to the shared library. Where there is a
// plug-in and a GPU, work on it goes the same way as in any program; tests/cli/plugin_test.py runs the others with
// damaged plug-ins, too.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "deft/deft.h"
#include "ops/op_table.h"
#include "runtime/backend.h"
#include "runtime/device_plugin.h"

namespace deft {

namespace {

double worst(const Tensor& a, const Tensor& b) { return (a.to(kCPU) - b.to(kCPU)).abs().amax().item(); }

// A step of a small model: GEMM, elementwise ops, a norm, a loss, gradients, an optimizer.
Tensor weight_after_steps(Device device) {
  manual_seed(3);
  Tensor x = randn({16, 32}).to(device), w = randn({32, 10}).to(device).requires_grad_();
  Tensor target = arange(0, 16, 1, TensorOptions(i64, device)).remainder(10);
  optim::AdamW adam({w}, {.lr = 0.01});
  for (int i = 0; i < 3; ++i) {
    adam.zero_grad();
    cross_entropy(layer_norm(gelu(x.matmul(w)), {10}) * 2, target).backward();
    adam.step();
  }
  return w.detach();
}

// In a process of its own, so that nothing is loaded yet.
template <class F>
bool holds_in_child(F check) {
  const pid_t child = fork();
  if (child == 0) _exit(check() ? 0 : 1);
  int status = 1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool is_mapped() {
  void* handle = dlopen(cuda_plugin_report().path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (handle) dlclose(handle);
  return handle;
}

// Before any test that loads it.
TEST(APlugin, WorkOnTheCpuDoesNotLoadIt) {
  weight_after_steps(kCPU);
  trim_device_memory(kCPU);
  EXPECT_EQ(cuda_plugin_if_loaded(), nullptr);
}

TEST(APlugin, ThreadsThatAskAtOnceGetTheSame) {
  EXPECT_TRUE(holds_in_child([] {
    std::vector<const DevicePlugin*> found(8);
    std::vector<std::thread> threads;
    for (const DevicePlugin*& p : found) threads.emplace_back([&p] { p = cuda_plugin(); });
    for (std::thread& t : threads) t.join();
    for (const DevicePlugin* p : found)
      if (p != found[0]) return false;
    return (found[0] != nullptr) == cuda_plugin_report().loaded;
  }));
}

TEST(APlugin, ForksWhileItIsLoadedFindItOrLoadIt) {
  EXPECT_TRUE(holds_in_child([] {
    std::thread loader([] { cuda_plugin(); });
    bool good = true;
    for (int i = 0; i < 20; ++i)
      good &= holds_in_child([] { return cuda_plugin_report().loaded == (cuda_plugin() != nullptr); });
    loader.join();
    return good;
  }));
}

TEST(Plugin, IsLoadedOrSaysWhyNot) {
  const PluginReport report = cuda_plugin_report();
  EXPECT_EQ(report.loaded, report.why_not.empty());
  EXPECT_EQ(report.loaded, backend(DeviceType::cuda) != nullptr);
  if (report.loaded) {
    EXPECT_TRUE(is_mapped());
  }
  EXPECT_NE(report.path.find("libdeft_cuda"), report.path.npos);
}

TEST(Plugin, ADeviceThatIsNotThereIsAnError) {
  const Device none{DeviceType::cuda, 99};
  try {
    zeros({2}, {f32, none});
    FAIL();
  } catch (const DeviceError& e) {
    EXPECT_EQ(std::string(e.what()).rfind("empty: there is no device cuda:99; devices present: cpu", 0), 0u)
        << e.what();
    EXPECT_NE(std::string(e.what()).find(cuda_plugin_report().why_not), std::string::npos) << e.what();
  }
  EXPECT_EQ(ones({4}).sum().item<float>(), 4);  // the CPU goes on
}

TEST(Plugin, OpsHaveTheirKernelsOnceItIsLoaded) {
  const bool loaded = cuda_plugin() != nullptr;
  int with_kernel = 0;
  for (int i = 0; i < 1000; ++i) {
    const OpDef* def = op_at(i);
    if (!def || !def->cuda) continue;
    EXPECT_EQ(def->kernel(DeviceType::cuda) != nullptr, loaded) << def->info.name;
    ++with_kernel;
  }
  EXPECT_GT(with_kernel, 150);
}

TEST(Plugin, WorkOnAGpuGivesTheSameAsOnTheCpu) {
  if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "no CUDA device";
  EXPECT_LE(worst(weight_after_steps(kCUDA), weight_after_steps(kCPU)), 1e-4);
  Tensor x = randn({64, 64});
  auto f = compile([](const Tensor& v) { return tanh(v * 2 + 1).exp() - v; });
  InferenceModeGuard inference;
  for (int i = 0; i < 4; ++i) EXPECT_LE(worst(f(x.to(kCUDA)), f(x)), 1e-5) << i;
  EXPECT_EQ(check_guard_words(), 0);
}

}  // namespace

}  // namespace deft
