// compile() captures a function once and runs a plan from then on: fused, packed, without an allocation per call.
#include <deft/deft.h>

#include <algorithm>
#include <chrono>
#include <iostream>

using namespace deft;

template <class F>
double microseconds(const F& f) {
  double best = 1e9;
  for (int i = 0; i < 20; ++i) {
    const auto start = std::chrono::steady_clock::now();
    f();
    best = std::min(best, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

int main() {
  manual_seed(1);
  models::Cnn net({.channels = 1, .classes = 10});
  net.eval();
  Compiled fast = compile(net);

  Tensor x = randn({1, 1, 28, 28});
  InferenceModeGuard inference;
  const Tensor eager = net(x), planned = fast(x);
  std::cout << "one image: eager " << microseconds([&] { net(x); }) << " us, compiled "
            << microseconds([&] { fast(x); }) << " us\n";

  fast(randn({8, 1, 28, 28}));  // another size: another plan, beside the first
  std::cout << fast.stats().captures << " plans; " << fast.misses().back() << "\n";

  // A whole training step can be compiled, too: forward, backward, clipping and the optimizer.
  InferenceModeGuard off(false);
  nn::Sequential small(nn::Linear(16, 32), nn::ReLU(), nn::Linear(32, 1));
  optim::SGD optimizer(small.parameters(), {.lr = 0.05});
  Compiled step = compile([&](const Tensor& input, const Tensor& target) {
    optimizer.zero_grad();
    Tensor loss = mse_loss(small(input).squeeze(1), target);
    loss.backward();
    optimizer.step();
    return loss.detach();
  });
  Tensor input = randn({64, 16}), target = input.select(1, 3);
  double first = 0, last = 0;
  for (int i = 0; i < 100; ++i) (i ? last : first) = step(input, target).item();
  std::cout << "loss " << first << " -> " << last << " in " << step.stats().replays << " replays\n";

  return allclose(eager, planned, 1e-3, 1e-4) && last < first / 4 ? 0 : 1;
}
