#include "kernels/cuda/gemm/gemm_fused.h"

#include "kernels/cuda/conv/conv.h"
#include "kernels/cuda/copy/copy.h"
#include "kernels/cuda/device/device_timer.h"
#include "kernels/cuda/device/plan_cache.h"
#include "runtime/context.h"
#include "runtime/sync.h"

namespace deft::cuda {

namespace {

constexpr size_t kChoiceLimit = 1024;

// cuBLASLt, and an epilogue of our own for what it cannot do.
void run_gemm(Encoder& e, const GemmCall& g) {
  if (gemm_library(e, g)) return;
  EpilogueCall rest{g.dtype, g.m, g.n, 1, true, g.c, nullptr, nullptr, g.activation};
  GemmCall product = g;
  product.activation = Activation::none;
  if (g.activation == Activation::none || !gemm_library(e, product)) {
    product.residual = nullptr;
    gemm(e, product);
    rest.residual = g.residual;
  }
  run_epilogue(e, rest);
}

// A GEMM is a convolution of 1 x 1 over images of one pixel, for which cuDNN has all activations.
bool run_convolution(Encoder& e, const GemmCall& g) {
  ConvCall c{};
  c.dtype = g.dtype;
  c.spatial = 2;
  c.n = g.m, c.c_in = g.k, c.c_out = g.n, c.groups = 1;
  for (int d = 0; d < c.spatial; ++d) c.in[d] = c.kernel[d] = c.out[d] = c.stride[d] = c.dilation[d] = 1;
  c.channels_last = c.w_channels_last = true;
  c.x = const_cast<void*>(g.a), c.w = const_cast<void*>(g.b), c.y = g.c;
  c.bias = g.bias, c.residual = g.residual, c.activation = g.activation;
  c.timed = g.timed;
  return conv_library(e, ConvKind::forward, c);
}

// True where cuDNN may have one kernel for what would be two.
bool may_be_convolution(const GemmCall& g) {
  bool lacking = g.activation == Activation::gelu || g.activation == Activation::silu ||
                 g.activation == Activation::sigmoid || g.activation == Activation::tanh;
  bool dense = (g.a_row == g.k || g.m == 1) && g.a_col == 1 && g.b_row == 1 && (g.b_col == g.k || g.n == 1);
  return lacking && dense && size_of(g.dtype) == 2 && g.k > 0 && g.k % 8 == 0 && g.n % 8 == 0;
}

struct Key {
  int64_t m, n, k;
  uint8_t dtype, activation, bias, residual, device, unused[3];
};
struct Choice {
  bool convolution;
};

Key key_of(const Encoder& e, const GemmCall& g) {
  Key key{};
  key.m = g.m, key.n = g.n, key.k = g.k;
  key.dtype = static_cast<uint8_t>(g.dtype), key.activation = static_cast<uint8_t>(g.activation);
  key.bias = g.bias != nullptr, key.residual = g.residual != nullptr;
  key.device = static_cast<uint8_t>(e.device().index);
  return key;
}

Choice choose(Encoder& e, const GemmCall& g) {
  count_sync("gemm autotune", effective_site({}));
  DeviceTimer timer(e);
  auto product = [&] { return run_gemm(e, g), true; };
  double apart = timer.least_ms(DeviceTimer::kNever, product);
  return {timer.least_ms(apart, [&] { return run_convolution(e, g); }) < apart};
}

bool takes_convolution(Encoder& e, const GemmCall& g) {
  static auto* const choices = new PlanCache<Key, Choice>(kChoiceLimit);  // never destroyed
  if (!g.timed || !may_be_convolution(g)) return false;
  const Key key = key_of(e, g);
  std::shared_ptr<const Choice> known = choices->find(key);
  if (!known && can_wait(e)) {
    known = std::make_shared<const Choice>(choose(e, g));
    choices->add(key, known);
  }
  return known && known->convolution;
}

// f32 from 16 bits: rounded in between where cuBLASLt has no such kernel.
void run_wide(Encoder& e, const GemmCall& g) {
  if (gemm_library(e, g)) return;
  const Workspace narrow(e, static_cast<size_t>(g.m * g.n) * size_of(g.dtype));
  GemmCall product = g;
  product.c = narrow.as(), product.wide_result = false, product.residual = nullptr;
  gemm_fused(e, product);
  const int64_t count = g.m * g.n;
  copy_strided(e, {narrow.as(), g.dtype, {1}}, {g.c, DType::f32, {1}}, 1, &count);
  if (g.residual) run_epilogue(e, {DType::f32, g.m, g.n, 1, true, g.c, nullptr, g.residual, Activation::none});
}

}  // namespace

void gemm_fused(Encoder& e, const GemmCall& call) {
  if (call.wide_result) return run_wide(e, call);
  if (takes_convolution(e, call) && run_convolution(e, call)) return;
  run_gemm(e, call);
}

}  // namespace deft::cuda
