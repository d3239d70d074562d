// Fine-tunes the head of a network whose body stays as it is. Frozen layers keep no activations and get no gradients.
#include <deft/deft.h>

#include <iostream>

using namespace deft;

int main() {
  manual_seed(3);
  models::Cnn net({.channels = 1, .classes = 10, .width = 8});
  // Weights of an earlier training would come here: net.load_state_dict(io::load_tensors("cnn.safetensors"));

  net.freeze();
  for (auto& [name, module] : net.named_modules())
    if (name == "classifier") module->unfreeze();

  std::vector<Tensor> trained;
  for (const Tensor& p : net.parameters())
    if (p.requires_grad()) trained.push_back(p);
  std::cout << trained.size() << " of " << net.parameters().size() << " tensors are trained\n";

  optim::SGD optimizer(trained, {.lr = 0.5, .momentum = 0.9});
  Tensor x = randn({64, 1, 28, 28}), y = randint(0, 10, {64});
  const NamedTensors before = [&] {
    NamedTensors copies;
    for (const NamedTensor& t : net.state_dict()) copies.push_back({t.name, t.tensor.clone()});
    return copies;
  }();

  double first = 0, last = 0;
  for (int step = 0; step < 60; ++step) {
    optimizer.zero_grad();
    Tensor loss = cross_entropy(net(x), y);
    loss.backward();
    optimizer.step();
    (step ? last : first) = loss.item();
  }
  std::cout << "loss " << first << " -> " << last << "\n";

  int changed = 0;
  const NamedTensors after = net.state_dict();
  for (size_t i = 0; i < after.size(); ++i) changed += !equal(after[i].tensor, before[i].tensor);
  std::cout << changed << " tensors of the state have changed\n";
  return last < first && changed == int(trained.size()) ? 0 : 1;
}
