// The doctor around a part of a program: which line makes it slow or lets memory grow, and what to write instead.
#include <deft/deft.h>

#include <iostream>

using namespace deft;

int main() {
  manual_seed(1);
  nn::Sequential net(nn::Linear(64, 64), nn::Dropout(0.1), nn::Linear(64, 10));
  optim::SGD optimizer(net.parameters(), {.lr = 0.1});

  Doctor doctor;
  Tensor total = zeros({});
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    Tensor loss = cross_entropy(net(randn({32, 64})), randint(0, 10, {32}));
    loss.backward();
    optimizer.step();
    total += loss;  // mistake: it keeps the graph of every step; loss.item() or loss.detach() does not
  }
  {
    NoGradGuard no_grad;
    for (int i = 0; i < 20; ++i) net(randn({32, 64}));  // mistake: dropout is still on; net.eval() turns it off
  }
  const DoctorResult result = doctor.stop();

  bool leak = false, train_mode = false;
  for (const Finding& f : result.findings) {
    std::cout << f.id << " at line " << f.line << ": " << f.message << "\n";
    leak |= f.id == "D003";
    train_mode |= f.id == "D005";
  }
  // result.write("report.html") makes a page of it, report.sarif what code review tools read.
  return leak && train_mode ? 0 : 1;
}
