// A data set of one's own: sequences of different lengths, made by worker threads and padded to the longest of a batch.
#include <deft/deft.h>

#include <iostream>

using namespace deft;

// Sequences of digits; the task is to say whether their sum is even.
struct Parity : data::Dataset {
  int64_t size() const override { return 512; }
  const std::vector<data::Field>& fields() const override { return fields_; }
  // Chance comes from out.rng(): it depends on the seed, the epoch and the sample, not on which thread works when.
  void get(int64_t, data::SampleWriter& out) const override {
    const auto length = static_cast<int64_t>(1 + out.rng().below(6));
    int64_t* digits = out.varying<int64_t>(0, {length});
    int64_t sum = 0;
    for (int64_t i = 0; i < length; ++i) sum += digits[i] = static_cast<int64_t>(out.rng().below(2));
    *out.fixed<int64_t>(1) = sum % 2;
  }
  // -1: the size differs from sample to sample; 2 fills what a batch has beyond a sample's end.
  std::vector<data::Field> fields_{{"digits", i64, {-1}, /*pad=*/2}, {"label", i64, {}}};
};

struct Reader : nn::Module {
  nn::Embedding& embedding = add<nn::Embedding>("embedding", 3, 16);
  nn::GRU& gru = add<nn::GRU>("gru", 16, 32, nn::RNNOptions{.batch_first = true});
  nn::Linear& out = add<nn::Linear>("out", 32, 2);
  Tensor forward(const Tensor& digits) override { return out(gru.forward(embedding(digits)).select(1, -1)); }
};

int main() {
  manual_seed(1);
  data::DataLoader loader(std::make_shared<Parity>(), {.batch_size = 64, .shuffle = true, .seed = 7, .workers = 2});
  Reader net;
  optim::Adam optimizer(net.parameters(), {.lr = 1e-2});
  double right = 0;
  while (loader.epoch() < 24 && right < 0.95) {
    int64_t hits = 0;
    for (data::Batch& batch : loader) {
      optimizer.zero_grad();
      Tensor logits = net(batch["digits"]);
      cross_entropy(logits, batch["label"]).backward();
      optimizer.step();
      hits += logits.argmax(1).eq(batch["label"]).sum().item<int64_t>();
    }
    right = double(hits) / 512;
  }
  std::cout << "after " << loader.epoch() << " epochs " << 100 * right << " % right\n";
  return right > 0.8 ? 0 : 1;
}
