#include <deft/deft.h>
#include <iostream>
int main() {
  deft::manual_seed(0);
  auto w = deft::randn({3, 1}).requires_grad_();
  auto x = deft::randn({64, 3});
  auto y = deft::matmul(x, deft::tensor({1.0f, -2.0f, 0.5f}).view({3, 1}));
  for (int step = 0; step < 200; ++step) {
    auto loss = deft::mse_loss(deft::matmul(x, w), y);
    loss.backward();
    deft::NoGradGuard no_grad;
    w.sub_(w.grad() * 0.1);
    w.zero_grad();
  }
  std::cout << w << "\n";
}
