#include "models/transformer_xl.h"

#include <cmath>

#include "base/check.h"
#include "core/grad_mode.h"

namespace deft::models {

namespace {

constexpr double kWeightStd = 0.02, kProjectionStd = 0.01;

AdaptiveOptions adaptive_options(const TransformerXLOptions& o) {
  return {o.vocabulary, o.cutoffs, o.hidden, o.embedding > 0 ? o.embedding : o.hidden, o.div_val};
}

// Sines and cosines of the distances length - 1 ... 0: [length, hidden]. Frequencies are numbers of f32, as in the
// weights' first home, whatever the model computes in.
Tensor distance_codes(int64_t length, int64_t hidden, const Tensor& like) {
  TensorOptions type(like.dtype() == DType::f64 ? DType::f64 : DType::f32);
  Tensor distance = arange(length - 1, -1, -1, type);
  Tensor exponent = arange(0, hidden, 2, DType::f64) * (-std::log(10000.0) / static_cast<double>(hidden));
  Tensor angle = outer(distance, exp(exponent).to(DType::f32).to(type.dtype));
  return cat({sin(angle), cos(angle)}, -1).to(like.dtype()).to(like.device());
}

// Column j of row i moves to where its distance belongs: row i is shifted left by queries - 1 - i.
Tensor shift_to_distance(const Tensor& x) {
  int64_t n = x.size(0), heads = x.size(1), queries = x.size(2), keys = x.size(3);
  Tensor padded = cat({zeros({n, heads, queries, 1}, {x.dtype(), x.device()}), x}, -1);
  return padded.view({n, heads, keys + 1, queries}).narrow(2, 1, keys).reshape({n, heads, queries, keys});
}

}  // namespace

class TransformerXLLayer : public nn::Module {
 public:
  explicit TransformerXLLayer(const TransformerXLOptions& o)
      : heads_(o.heads),
        head_size_(o.head_size),
        attention_(add<nn::Group>("dec_attn")),
        qkv_(attention_.add<nn::Linear>("qkv_net", o.hidden, 3 * o.heads * o.head_size, false)),
        mix_(attention_.add<nn::Linear>("o_net", o.heads * o.head_size, o.hidden, false)),
        attention_norm_(attention_.add<nn::LayerNorm>("layer_norm", o.hidden, o.norm_eps)),
        distance_(attention_.add<nn::Linear>("r_net", o.hidden, o.heads * o.head_size, false)),
        weights_dropout_(attention_.add<nn::Dropout>("dropatt", o.attention_dropout)),
        content_bias_(o.untie_r ? &attention_.parameter("r_w_bias", empty({o.heads, o.head_size})) : nullptr),
        position_bias_(o.untie_r ? &attention_.parameter("r_r_bias", empty({o.heads, o.head_size})) : nullptr),
        forward_(add<nn::Group>("pos_ff")),
        net_(forward_.add<nn::Sequential>("CoreNet")),
        forward_norm_(forward_.add<nn::LayerNorm>("layer_norm", o.hidden, o.norm_eps)),
        dropout_(add<nn::Dropout>("drop", o.dropout)) {
    net_.add<nn::Linear>(o.hidden, o.intermediate);
    net_.add<nn::ReLU>();
    net_.add<nn::Dropout>(o.dropout);
    net_.add<nn::Linear>(o.intermediate, o.hidden);
    net_.add<nn::Dropout>(o.dropout);
  }

  // x [n, length, hidden] after `memory` (undefined: none), codes [keys, hidden], hidden_keys bool [length, keys]. The
  // biases of all layers, null where each has its own.
  Tensor run(const Tensor& x, const Tensor& memory, const Tensor& codes, const Tensor& hidden_keys,
             const Tensor* content_bias, const Tensor* position_bias) {
    if (content_bias_) content_bias = content_bias_, position_bias = position_bias_;
    Tensor all = memory.defined() ? cat({memory, x}, 1) : x;
    int64_t n = x.size(0), length = x.size(1), keys = all.size(1);
    Tensor parts = qkv_(all).view({n, keys, 3, heads_, head_size_}).permute({2, 0, 3, 1, 4});
    Tensor q = parts[0].narrow(2, keys - length, length), k = parts[1], v = parts[2];
    Tensor r = distance_(codes).view({keys, heads_, head_size_}).permute({1, 2, 0});
    Tensor by_content = matmul(q + content_bias->unsqueeze(1), k.transpose(-1, -2));
    Tensor by_distance = shift_to_distance(matmul(q + position_bias->unsqueeze(1), r));
    Tensor scores = (by_content + by_distance) * (1 / std::sqrt(static_cast<double>(head_size_)));
    Tensor weights = weights_dropout_(softmax(scores.masked_fill(hidden_keys, -INFINITY), -1));
    Tensor y = matmul(weights, v).transpose(1, 2).reshape({n, length, heads_ * head_size_});
    y = attention_norm_(x + dropout_(mix_(y)));
    return forward_norm_(y + net_(y));
  }

 private:
  int64_t heads_, head_size_;
  nn::Group& attention_;
  nn::Linear &qkv_, &mix_;
  nn::LayerNorm& attention_norm_;
  nn::Linear& distance_;
  nn::Dropout& weights_dropout_;
  Tensor *content_bias_, *position_bias_;
  nn::Group& forward_;
  nn::Sequential& net_;
  nn::LayerNorm& forward_norm_;
  nn::Dropout& dropout_;
};

TransformerXL::TransformerXL(const TransformerXLOptions& o)
    : options_(o),
      words_(add<AdaptiveEmbedding>("word_emb", adaptive_options(o))),
      dropout_(add<nn::Dropout>("drop", o.dropout)),
      content_bias_(o.untie_r ? nullptr : &parameter("r_w_bias", empty({o.heads, o.head_size}))),
      position_bias_(o.untie_r ? nullptr : &parameter("r_r_bias", empty({o.heads, o.head_size}))),
      crit_(add<AdaptiveLogSoftmax>("crit", words_, adaptive_options(o), o.share_projections)) {
  auto& list = add<nn::ModuleList>("layers");
  for (int64_t i = 0; i < o.layers; ++i) layers_.push_back(&list.add<TransformerXLLayer>(o));
  apply([](nn::Module& m) {
    if (auto* layer = dynamic_cast<nn::Linear*>(&m)) {
      nn::init::normal_(layer->weight, 0, kWeightStd);
      if (layer->bias.defined()) nn::init::zeros_(layer->bias);
    }
    if (auto* table = dynamic_cast<nn::Embedding*>(&m)) nn::init::normal_(table->weight, 0, kWeightStd);
  });
  for (NamedTensor& p : named_parameters()) {
    bool distance_bias = p.name.ends_with("r_w_bias") || p.name.ends_with("r_r_bias");
    bool projection = p.name.find("_projs.") != std::string::npos;
    if (distance_bias || projection) nn::init::normal_(p.tensor, 0, projection ? kProjectionStd : kWeightStd);
  }
}

Tensor TransformerXL::encode(const Tensor& tokens, Memory& memory) {
  DEFT_CHECK(tokens.dim() == 2, ShapeError, "TransformerXL: takes tokens [n, length], found {}",
             deft::to_string(tokens.sizes()));
  DEFT_CHECK(memory.empty() || memory.size() == layers_.size(), ValueError,
             "TransformerXL: the memory has {} layers, the model {}", memory.size(), layers_.size());
  int64_t length = tokens.size(1), remembered = memory.empty() ? 0 : memory[0].size(1), keys = remembered + length;
  Tensor x = dropout_(words_(tokens));
  Tensor codes = dropout_(distance_codes(keys, options_.hidden, x));
  Tensor hidden_keys = triu(ones({length, keys}, {DType::f32, x.device()}), remembered + 1).ne(0);
  Memory next;
  for (size_t i = 0; i < layers_.size(); ++i) {
    Tensor before = memory.empty() ? Tensor() : memory[i];
    if (options_.memory > 0) {
      NoGradGuard no_grad;
      Tensor all = before.defined() ? cat({before, x.detach()}, 1) : x.detach();
      int64_t keep = std::min(options_.memory, all.size(1));
      next.push_back(all.narrow(1, all.size(1) - keep, keep).clone());
    }
    x = layers_[i]->run(x, before, codes, hidden_keys, content_bias_, position_bias_);
  }
  memory = std::move(next);
  return dropout_(x);
}

Tensor TransformerXL::forward(const Tensor& tokens) {
  Memory memory;
  return encode(tokens, memory);
}

Tensor TransformerXL::loss(const Tensor& tokens, const Tensor& targets, Memory& memory) {
  Tensor hidden = encode(tokens, memory);
  return crit_.loss(hidden.reshape({-1, options_.hidden}), targets.reshape({-1})).view(targets.sizes());
}

}  // namespace deft::models
