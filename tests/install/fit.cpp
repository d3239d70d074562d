#include <deft/deft.h>
#include <iostream>
using namespace deft;
struct Net : nn::Module {
  nn::Linear& hidden = add<nn::Linear>("hidden", 2, 32);
  nn::Linear& out = add<nn::Linear>("out", 32, 1);
  Tensor forward(const Tensor& x) override { return out(tanh(hidden(x))).squeeze(1); }
};
int main() {
  Net net;
  optim::AdamW optimizer(net.parameters(), {.lr = 0.02});
  Tensor x = randn({256, 2}), y = x.select(1, 0) * x.select(1, 1);
  for (int step = 0; step < 500; ++step) {
    optimizer.zero_grad();
    mse_loss(net(x), y).backward();
    optimizer.step();
  }
  std::cout << (no_grad([&] { return mse_loss(net(x), y); }).item() < 0.01 ? "learned\n" : "did not learn\n");
}
