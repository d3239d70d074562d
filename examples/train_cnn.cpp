// Trains a small convolutional net on drawn characters, which need no file, and evaluates it after every epoch.
#include <deft/deft.h>

#include <cstdlib>
#include <iostream>

using namespace deft;

struct Net : nn::Module {
  nn::Sequential& features = add<nn::Sequential>(
      "features", nn::Conv2d(1, 16, 3, {.padding = 1, .bias = false}), nn::BatchNorm2d(16), nn::ReLU(),
      nn::MaxPool2d(2), nn::Conv2d(16, 32, 3, {.padding = 1, .bias = false}), nn::BatchNorm2d(32), nn::ReLU());
  nn::Linear& classifier = add<nn::Linear>("classifier", 32, data::glyph_classes());
  Tensor forward(const Tensor& x) override { return classifier(features(x).mean({2, 3})); }
};

data::DataLoader loader(uint64_t seed, int64_t count, bool shuffle) {
  auto set = std::make_shared<data::TensorDataset>(data::image_dataset(data::make_glyphs(seed, count)));
  return data::DataLoader(set, {.batch_size = 64, .shuffle = shuffle, .seed = seed});
}

Tensor images_of(const data::Batch& batch) { return batch["image"].to(f32) / 127.5 - 1; }

double accuracy(Net& net, data::DataLoader& test) {
  nn::EvalGuard eval(net);  // dropout and batch norm
  NoGradGuard no_grad;      // no graph: an epoch takes the memory of one batch
  int64_t right = 0, all = 0;
  for (data::Batch& batch : test) {
    right += net(images_of(batch)).argmax(1).eq(batch["label"]).sum().item<int64_t>();
    all += batch["label"].numel();
  }
  return double(right) / double(all);
}

int main(int argc, char** argv) {
  const int epochs = argc > 1 ? std::atoi(argv[1]) : 2;
  manual_seed(1);
  Net net;
  data::DataLoader train = loader(1, 4096, true), test = loader(2, 1024, false);
  optim::AdamW optimizer(net.parameters(), {.lr = 4e-3, .weight_decay = 0.01});
  optim::OneCycleLR schedule(optimizer, {.max_lr = 1e-2, .total_steps = epochs * train.batches()});

  double reached = 0;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    double total = 0;
    for (data::Batch& batch : train) {
      optimizer.zero_grad();
      Tensor loss = cross_entropy(net(images_of(batch)), batch["label"]);
      loss.backward();
      optimizer.step();
      schedule.step();
      total += loss.item();  // a number: `total += loss` would keep the graph of every step
    }
    reached = accuracy(net, test);
    std::cout << "epoch " << epoch << ": loss " << total / double(train.batches()) << ", " << 100 * reached
              << " % right\n";
  }
  return reached > 0.2 ? 0 : 1;  // guessing gets 5 %
}
