// Trains in 16 bits with weights in f32: bf16 needs only the guard, f16 a scaler for its small gradients, too.
#include <deft/deft.h>

#include <iostream>
#include <string>

using namespace deft;

double train(DType type) {
  manual_seed(5);
  nn::Sequential net(nn::Linear(32, 128), nn::GELU(), nn::LayerNorm({128}), nn::Linear(128, 4));
  optim::AdamW optimizer(net.parameters(), {.lr = 3e-3});
  optim::GradScaler scaler({.scale = 4096, .enabled = type == f16});
  Tensor x = randn({256, 32}), y = x.narrow(1, 0, 4).argmax(1);

  double loss_value = 0;
  for (int step = 0; step < 60; ++step) {
    optimizer.zero_grad();
    Tensor loss;
    {
      AutocastGuard autocast(type);  // matmuls in `type`, losses and norms in f32
      loss = cross_entropy(net(x), y);
    }
    scaler.scale(loss).backward();  // outside the guard: gradients come in the types of forward
    scaler.unscale_(optimizer);
    optim::clip_grad_norm_(net.parameters(), 1.0);
    scaler.step(optimizer);  // skipped where a gradient is not finite
    scaler.update();
    loss_value = loss.item();
  }
  return loss_value;
}

int main() {
  bool good = true;
  for (DType type : {f32, bf16, f16}) {
    const double loss = train(type);
    std::cout << name_of(type) << ": loss " << loss << "\n";
    good &= loss < 0.3;
  }
  return good ? 0 : 1;
}
