#include "models/bert.h"

#include "base/check.h"

namespace deft::models {

class BertEmbeddings : public nn::Module {
 public:
  explicit BertEmbeddings(const BertOptions& o)
      : words(add<nn::Embedding>("word_embeddings", o.vocabulary, o.hidden, nn::EmbeddingOptions{.padding_idx = 0})),
        positions_(add<nn::Embedding>("position_embeddings", o.positions, o.hidden)),
        types_(add<nn::Embedding>("token_type_embeddings", o.types, o.hidden)),
        norm_(add<nn::LayerNorm>("LayerNorm", o.hidden, o.norm_eps)),
        dropout_(add<nn::Dropout>("dropout", o.dropout)) {}
  Tensor embed(const Tensor& tokens, const Tensor& types, const Tensor& positions) {
    Tensor place = positions.defined() ? positions_(positions) : positions_.weight.narrow(0, 0, tokens.size(1));
    Tensor kind = types.defined() ? types_(types) : types_.weight[0];
    return dropout_(norm_(words(tokens) + kind + place));
  }
  nn::Embedding& words;

 private:
  nn::Embedding &positions_, &types_;
  nn::LayerNorm& norm_;
  nn::Dropout& dropout_;
};

class BertLayer : public nn::Module {
 public:
  explicit BertLayer(const BertOptions& o)
      : heads_(o.heads),
        attention_dropout_(o.attention_dropout),
        attention_(add<nn::Group>("attention")),
        self_(attention_.add<nn::Group>("self")),
        query_(self_.add<nn::Linear>("query", o.hidden, o.hidden)),
        key_(self_.add<nn::Linear>("key", o.hidden, o.hidden)),
        value_(self_.add<nn::Linear>("value", o.hidden, o.hidden)),
        attention_output_(attention_.add<nn::Group>("output")),
        mix_(attention_output_.add<nn::Linear>("dense", o.hidden, o.hidden)),
        mix_norm_(add_norm(attention_output_, o)),
        up_(add<nn::Group>("intermediate").add<nn::Linear>("dense", o.hidden, o.intermediate)),
        output_(add<nn::Group>("output")),
        down_(output_.add<nn::Linear>("dense", o.intermediate, o.hidden)),
        down_norm_(add_norm(output_, o)),
        dropout_(output_.add<nn::Dropout>("dropout", o.dropout)) {}

  Tensor run(const Tensor& x, const Tensor& mask) {
    double p = is_training() ? attention_dropout_ : 0;
    Tensor context = scaled_dot_product_attention(split(query_(x)), split(key_(x)), split(value_(x)), mask, p);
    context = context.transpose(1, 2).reshape(x.sizes());
    Tensor y = mix_norm_(dropout_(mix_(context)) + x);
    return down_norm_(dropout_(down_(gelu(up_(y)))) + y);
  }

 private:
  static nn::LayerNorm& add_norm(nn::Group& to, const BertOptions& o) {
    return to.add<nn::LayerNorm>("LayerNorm", o.hidden, o.norm_eps);
  }
  // [n, length, hidden] -> [n, heads, length, hidden / heads]
  Tensor split(const Tensor& x) const { return x.view({x.size(0), x.size(1), heads_, -1}).transpose(1, 2); }

  int64_t heads_;
  double attention_dropout_;
  nn::Group &attention_, &self_;
  nn::Linear &query_, &key_, &value_;
  nn::Group& attention_output_;
  nn::Linear& mix_;
  nn::LayerNorm& mix_norm_;
  nn::Linear& up_;
  nn::Group& output_;
  nn::Linear& down_;
  nn::LayerNorm& down_norm_;
  nn::Dropout& dropout_;
};

namespace {

// Normal with standard deviation 0.02, zero biases: as BERT was trained.
void initialize(nn::Module& model) {
  model.apply([](nn::Module& m) {
    if (auto* linear = dynamic_cast<nn::Linear*>(&m)) {
      nn::init::normal_(linear->weight, 0, 0.02);
      if (linear->bias.defined()) nn::init::zeros_(linear->bias);
    } else if (auto* table = dynamic_cast<nn::Embedding*>(&m)) {
      nn::init::normal_(table->weight, 0, 0.02);
    }
  });
}

// True where a key may be looked at, for all heads; undefined if everywhere.
Tensor attention_mask(const Tensor& mask) {
  if (!mask.defined()) return {};
  Tensor keep = mask.dtype() == DType::boolean ? mask : mask.ne(0);
  return (mask.dim() == 3 ? keep : keep.unsqueeze(1)).unsqueeze(1);
}

}  // namespace

Bert::Bert(const BertOptions& options, bool pooler)
    : options_(options), embeddings_(add<BertEmbeddings>("embeddings", options)) {
  DEFT_CHECK(options.hidden % options.heads == 0, ValueError, "Bert: hidden {} is not a multiple of heads {}",
             options.hidden, options.heads);
  auto& list = add<nn::Group>("encoder").add<nn::ModuleList>("layer");
  for (int64_t i = 0; i < options.layers; ++i) layers_.push_back(&list.add<BertLayer>(options));
  if (pooler) pooler_ = &add<nn::Group>("pooler").add<nn::Linear>("dense", options.hidden, options.hidden);
  initialize(*this);
}

Bert::Output Bert::encode(const Tensor& tokens, const Tensor& types, const Tensor& mask, const Tensor& positions) {
  // Where positions are given, the table of their embeddings checks them.
  DEFT_CHECK(tokens.dim() == 2 && (positions.defined() || tokens.size(1) <= options_.positions), ShapeError,
             "Bert: takes tokens [n, length] of at most {} tokens, found {}", options_.positions,
             deft::to_string(tokens.sizes()));
  Tensor keep = attention_mask(mask), x = embeddings_.embed(tokens, types, positions);
  for (BertLayer* layer : layers_) x = layer->run(x, keep);
  return {x, pooler_ ? tanh((*pooler_)(x.select(1, 0))) : Tensor()};
}

Tensor& Bert::word_embeddings() { return embeddings_.words.weight; }

BertForMaskedLM::BertForMaskedLM(const BertOptions& o) : bert(add<Bert>("bert", o, false)) {
  auto& predictions = add<nn::Group>("cls").add<nn::Group>("predictions");
  auto& transform = predictions.add<nn::Group>("transform");
  transform_ = &transform.add<nn::Linear>("dense", o.hidden, o.hidden);
  norm_ = &transform.add<nn::LayerNorm>("LayerNorm", o.hidden, o.norm_eps);
  initialize(transform);
  bias_ = &predictions.parameter("bias", zeros({o.vocabulary}));
  weight_ = &predictions.add<nn::Group>("decoder").parameter("weight", bert.word_embeddings());
}

Tensor BertForMaskedLM::logits(const Tensor& tokens, const Tensor& types, const Tensor& mask, const Tensor& positions) {
  Tensor x = (*norm_)(gelu((*transform_)(bert.encode(tokens, types, mask, positions).hidden)));
  return linear(x, *weight_, *bias_);
}

BertForSequenceClassification::BertForSequenceClassification(int64_t classes, const BertOptions& o)
    : bert(add<Bert>("bert", o)),
      dropout_(add<nn::Dropout>("dropout", o.dropout)),
      classifier_(add<nn::Linear>("classifier", o.hidden, classes)) {
  initialize(*this);
}

Tensor BertForSequenceClassification::logits(const Tensor& tokens, const Tensor& types, const Tensor& mask) {
  return classifier_(dropout_(bert.encode(tokens, types, mask).pooled));
}

}  // namespace deft::models
