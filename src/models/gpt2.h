// GPT-2 with the names and layouts of Hugging Face's weights, and a cache of keys and values for generating.
#pragma once

#include "nn/nn.h"

namespace deft::models {

struct Gpt2Options {
  int64_t vocabulary = 50257;
  int64_t positions = 1024, hidden = 768, layers = 12, heads = 12;
  double dropout = 0.1, norm_eps = 1e-5;
};
inline Gpt2Options gpt2_small_options() { return {}; }

// Keys and values of the tokens so far. Room for `positions` tokens is made once; no step copies what is there.
class KvCache {
 public:
  KvCache(const Gpt2Options& options, int64_t rows, TensorOptions tensor_options = {});
  int64_t length() const { return length_; }
  int64_t room() const { return room_; }
  void clear() { length_ = 0; }

 private:
  friend class Gpt2;
  friend class Gpt2Block;
  std::vector<Tensor> keys_, values_;  // of every layer: [n, heads, room, hidden / heads]
  int64_t length_ = 0, room_;
};

struct GenerateOptions {
  int64_t tokens = 50;     // how many to add
  double temperature = 0;  // 0: always the likeliest
  int64_t top_k = 0;       // 0: all
  uint64_t seed = 0;
};

class Gpt2Block;

class Gpt2 : public nn::Module {
 public:
  explicit Gpt2(const Gpt2Options& options = {});
  Tensor forward(const Tensor& tokens) override { return logits(tokens); }
  // tokens i64 [n, length] -> [n, length, vocabulary]. With a cache the tokens follow those in it, and are added to it.
  Tensor logits(const Tensor& tokens, KvCache* cache = nullptr);
  // Several texts in a row, or rows that are filled up: mask and positions as Bert::encode() takes them; no token looks
  // at later ones.
  Tensor logits(const Tensor& tokens, const Tensor& mask, const Tensor& positions = {});
  // tokens followed by what the model adds, [n, length + options.tokens]. Runs in eval mode, without gradients.
  Tensor generate(const Tensor& tokens, const GenerateOptions& options = {});
  const Gpt2Options& options() const { return options_; }

 private:
  Tensor run(Tensor x, const Tensor& mask, KvCache* cache);
  Gpt2Options options_;
  nn::Embedding &tokens_, &positions_;
  nn::Dropout& dropout_;
  std::vector<Gpt2Block*> blocks_;
  nn::LayerNorm* norm_;
};

}  // namespace deft::models
