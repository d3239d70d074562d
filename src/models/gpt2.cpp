#include "models/gpt2.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "core/grad_mode.h"

namespace deft::models {

namespace {

// x W + b with W [in, out], as the published weights have it.
class Projection : public nn::Module {
 public:
  Projection(int64_t in, int64_t out, double std)
      : weight_(parameter("weight", empty({in, out}))), bias_(parameter("bias", zeros({out}))) {
    nn::init::normal_(weight_, 0, std);
  }
  Tensor forward(const Tensor& x) override { return linear(x, weight_.t(), bias_); }

 private:
  Tensor &weight_, &bias_;
};

constexpr double kStd = 0.02;

}  // namespace

class Gpt2Block : public nn::Module {
 public:
  Gpt2Block(const Gpt2Options& o, size_t index)
      : index_(index),
        heads_(o.heads),
        attention_dropout_(o.dropout),
        norm1_(add<nn::LayerNorm>("ln_1", o.hidden, o.norm_eps)),
        attention_(add<nn::Group>("attn")),
        qkv_(attention_.add<Projection>("c_attn", o.hidden, 3 * o.hidden, kStd)),
        mix_(attention_.add<Projection>("c_proj", o.hidden, o.hidden, residual_std(o))),
        norm2_(add<nn::LayerNorm>("ln_2", o.hidden, o.norm_eps)),
        mlp_(add<nn::Group>("mlp")),
        up_(mlp_.add<Projection>("c_fc", o.hidden, 4 * o.hidden, kStd)),
        down_(mlp_.add<Projection>("c_proj", 4 * o.hidden, o.hidden, residual_std(o))),
        dropout_(add<nn::Dropout>("dropout", o.dropout)) {}

  // `mask` [n, 1, length, length], true where a token attends to another; undefined: to all before it.
  Tensor run(const Tensor& x, const Tensor& mask, KvCache* cache) {
    Tensor y = x + dropout_(mix_(attend(norm1_(x), mask, cache)));
    return y + dropout_(down_(gelu(up_(norm2_(y)), GeluApproximation::tanh)));
  }

 private:
  // Sums of 2 x layers residual parts keep their variance.
  static double residual_std(const Gpt2Options& o) { return kStd / std::sqrt(2.0 * static_cast<double>(o.layers)); }

  Tensor attend(const Tensor& x, Tensor mask, KvCache* cache) {
    int64_t n = x.size(0), length = x.size(1);
    Tensor parts = qkv_(x).view({n, length, 3, heads_, -1}).permute({2, 0, 3, 1, 4});
    Tensor q = parts[0], k = parts[1], v = parts[2];
    int64_t before = 0;
    if (cache) {
      before = cache->length_;
      // The type of the first keys is that of all: what autocast makes of them, not that of the weights.
      for (Tensor* all : {&cache->keys_[index_], &cache->values_[index_]})
        if (before == 0 && all->dtype() != k.dtype()) *all = zeros(all->sizes(), {k.dtype(), k.device()});
      k = append(cache->keys_[index_], k, before);
      v = append(cache->values_[index_], v, before);
    }
    double p = is_training() ? attention_dropout_ : 0;
    if (before > 0 && length > 1) mask = later_mask(length, before + length, q.device());
    Tensor y = scaled_dot_product_attention(q, k, v, mask, p, before == 0 && !mask.defined());
    return y.transpose(1, 2).reshape({n, length, -1});
  }

  static Tensor append(Tensor& all, const Tensor& part, int64_t at) {
    NoGradGuard no_grad;
    all.narrow(2, at, part.size(2)).copy_(part);
    return all.narrow(2, 0, at + part.size(2));
  }
  // Query i, which is token `keys` - `queries` + i, sees the keys up to itself.
  static Tensor later_mask(int64_t queries, int64_t keys, Device device) {
    return tril(ones({queries, keys}, {DType::f32, device}), keys - queries).ne(0);
  }

  size_t index_;
  int64_t heads_;
  double attention_dropout_;
  nn::LayerNorm& norm1_;
  nn::Group& attention_;
  Projection &qkv_, &mix_;
  nn::LayerNorm& norm2_;
  nn::Group& mlp_;
  Projection &up_, &down_;
  nn::Dropout& dropout_;
};

KvCache::KvCache(const Gpt2Options& o, int64_t rows, TensorOptions tensor_options) : room_(o.positions) {
  for (int64_t i = 0; i < o.layers; ++i) {
    keys_.push_back(zeros({rows, o.heads, o.positions, o.hidden / o.heads}, tensor_options));
    values_.push_back(zeros({rows, o.heads, o.positions, o.hidden / o.heads}, tensor_options));
  }
}

Gpt2::Gpt2(const Gpt2Options& o)
    : options_(o),
      tokens_(add<nn::Embedding>("wte", o.vocabulary, o.hidden)),
      positions_(add<nn::Embedding>("wpe", o.positions, o.hidden)),
      dropout_(add<nn::Dropout>("drop", o.dropout)) {
  DEFT_CHECK(o.hidden % o.heads == 0, ValueError, "Gpt2: hidden {} is not a multiple of heads {}", o.hidden, o.heads);
  nn::init::normal_(tokens_.weight, 0, kStd);
  nn::init::normal_(positions_.weight, 0, kStd);
  auto& list = add<nn::ModuleList>("h");
  for (int64_t i = 0; i < o.layers; ++i) blocks_.push_back(&list.add<Gpt2Block>(o, static_cast<size_t>(i)));
  norm_ = &add<nn::LayerNorm>("ln_f", o.hidden, o.norm_eps);
}

Tensor Gpt2::logits(const Tensor& tokens, KvCache* cache) {
  int64_t before = cache ? cache->length() : 0;
  DEFT_CHECK(tokens.dim() == 2 && before + tokens.size(1) <= options_.positions, ShapeError,
             "Gpt2: takes tokens [n, length] of at most {} tokens, found {} after {} in the cache", options_.positions,
             deft::to_string(tokens.sizes()), before);
  DEFT_CHECK(!cache || !is_grad_enabled(), GradError,
             "Gpt2: a cache holds no graph; call it under no_grad or inference_mode, or without the cache");
  Tensor x = dropout_(tokens_(tokens) + positions_.weight.narrow(0, before, tokens.size(1)));
  x = run(x, {}, cache);
  if (cache) cache->length_ += tokens.size(1);
  return x;
}

Tensor Gpt2::logits(const Tensor& tokens, const Tensor& mask, const Tensor& positions) {
  DEFT_CHECK(tokens.dim() == 2 && (positions.defined() || tokens.size(1) <= options_.positions), ShapeError,
             "Gpt2: takes tokens [n, length] of at most {} tokens, found {}", options_.positions,
             deft::to_string(tokens.sizes()));
  Tensor place = positions.defined() ? positions_(positions) : positions_.weight.narrow(0, 0, tokens.size(1));
  Tensor x = dropout_(tokens_(tokens) + place);
  if (!mask.defined()) return run(x, {}, nullptr);
  Tensor keep = mask.dtype() == DType::boolean ? mask : mask.ne(0);
  // What fills a row up comes after its tokens, which do not look there.
  if (keep.dim() == 2) return run(nn::mask_padding(x, keep), {}, nullptr);
  return run(x, tril(keep).unsqueeze(1), nullptr);
}

Tensor Gpt2::run(Tensor x, const Tensor& mask, KvCache* cache) {
  for (Gpt2Block* block : blocks_) x = block->run(x, mask, cache);
  return linear((*norm_)(x), tokens_.weight);
}

namespace {

// One token per row of logits [n, vocabulary].
Tensor choose(const Tensor& logits, const GenerateOptions& options) {
  if (options.temperature == 0) return logits.argmax(-1, true);
  Tensor scaled = logits.to(DType::f32) / options.temperature, index;
  if (options.top_k > 0) {
    auto [values, places] = topk(scaled, std::min(options.top_k, logits.size(-1)));
    scaled = values, index = places;
  }
  // Gumbel: the largest of log p + noise is a draw from p.
  Tensor noise = -log(-log(rand(scaled.sizes()).clamp(1e-20, {})));
  Tensor drawn = (scaled + noise).argmax(-1, true);
  return index.defined() ? index.gather(-1, drawn) : drawn;
}

}  // namespace

Tensor Gpt2::generate(const Tensor& tokens, const GenerateOptions& options) {
  DEFT_CHECK(options.temperature >= 0 && options.top_k >= 0 && options.tokens >= 0, ValueError,
             "Gpt2: temperature {}, top_k {} and tokens {} must not be negative", options.temperature, options.top_k,
             options.tokens);
  DEFT_CHECK(tokens.dim() == 2 && tokens.size(1) > 0, ShapeError, "Gpt2: generate takes tokens [n, length], found {}",
             deft::to_string(tokens.sizes()));
  nn::EvalGuard eval(*this);
  NoGradGuard no_grad;
  RngScope rng({options.seed, 0});
  KvCache cache(options_, tokens.size(0), {tokens_.weight.dtype(), tokens_.weight.device()});
  Tensor all = tokens, next = tokens;
  for (int64_t i = 0; i < options.tokens; ++i) {
    Tensor last = logits(next, &cache).select(1, -1);
    next = choose(last, options);
    all = cat({all, next}, 1);
  }
  return all;
}

}  // namespace deft::models
