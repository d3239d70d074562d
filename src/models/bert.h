// BERT with the names of Hugging Face's weights (without their leading "bert."; io/names.h takes it off), and heads for
// pre-training and classification.
#pragma once

#include "nn/nn.h"

namespace deft::models {

struct BertOptions {
  int64_t vocabulary = 30522;
  int64_t hidden = 768, layers = 12, heads = 12, intermediate = 3072;
  int64_t positions = 512, types = 2;
  double dropout = 0.1, attention_dropout = 0.1, norm_eps = 1e-12;
};
inline BertOptions bert_base_options() { return {}; }
inline BertOptions bert_large_options() { return {.hidden = 1024, .layers = 24, .heads = 16, .intermediate = 4096}; }

class BertEmbeddings;
class BertLayer;

class Bert : public nn::Module {
 public:
  struct Output {
    Tensor hidden;  // [n, length, hidden]
    Tensor pooled;  // [n, hidden]: the first token through a layer and tanh; undefined without that layer
  };
  explicit Bert(const BertOptions& options = {}, bool pooler = true);
  // tokens, types, positions i64 [n, length]; mask bool or 0/1 [n, length], true where there is a token, or
  // [n, length, length], true where a token attends to another: data::PackPlan. Undefined types are 0, an undefined
  // mask is all true, undefined positions count from 0.
  Output encode(const Tensor& tokens, const Tensor& types = {}, const Tensor& mask = {}, const Tensor& positions = {});
  Tensor forward(const Tensor& tokens) override { return encode(tokens).hidden; }
  const BertOptions& options() const { return options_; }
  Tensor& word_embeddings();  // the table, for heads that share it

 private:
  BertOptions options_;
  BertEmbeddings& embeddings_;
  std::vector<BertLayer*> layers_;
  nn::Linear* pooler_ = nullptr;
};

// Names which token was hidden: logits [n, length, vocabulary], with the weight of the word embeddings.
class BertForMaskedLM : public nn::Module {
 public:
  explicit BertForMaskedLM(const BertOptions& options = {});
  Tensor forward(const Tensor& tokens) override { return logits(tokens); }
  Tensor logits(const Tensor& tokens, const Tensor& types = {}, const Tensor& mask = {}, const Tensor& positions = {});
  Bert& bert;

 private:
  nn::Linear* transform_;
  nn::LayerNorm* norm_;
  Tensor *weight_, *bias_;
};

// One class per text: logits [n, classes].
class BertForSequenceClassification : public nn::Module {
 public:
  explicit BertForSequenceClassification(int64_t classes, const BertOptions& options = {});
  Tensor forward(const Tensor& tokens) override { return logits(tokens); }
  Tensor logits(const Tensor& tokens, const Tensor& types = {}, const Tensor& mask = {});
  Bert& bert;

 private:
  nn::Dropout& dropout_;
  nn::Linear& classifier_;
};

}  // namespace deft::models
