#include "nn/transformer.h"

#include "base/check.h"
#include "nn/watched_call.h"
#include "ops/activation.h"
#include "ops/binary.h"
#include "ops/unary.h"

namespace deft::nn {

namespace {

MultiheadAttentionOptions attention_options(const TransformerOptions& o) {
  return {.dropout = o.dropout, .batch_first = o.batch_first};
}

Tensor activate(const Tensor& x, FeedForward activation) { return activation == FeedForward::gelu ? gelu(x) : relu(x); }

std::string describe_layer(const char* name, const Linear& linear1, const TransformerOptions& o) {
  return fmt::format("{}(features={}, feed_forward={}, dropout={}{}{}{})", name, linear1.weight.size(1),
                     o.dim_feedforward, o.dropout, o.activation == FeedForward::gelu ? ", gelu" : "",
                     o.norm_first ? ", norm_first" : "", o.batch_first ? ", batch_first" : "");
}

}  // namespace

// --- Encoder ---------------------------------------------------------------------------------------------------

TransformerEncoderLayer::TransformerEncoderLayer(int64_t d_model, int64_t nhead, const TransformerOptions& options)
    : self_attn(add<MultiheadAttention>("self_attn", d_model, nhead, attention_options(options))),
      linear1(add<Linear>("linear1", d_model, options.dim_feedforward)),
      dropout(add<Dropout>("dropout", options.dropout)),
      linear2(add<Linear>("linear2", options.dim_feedforward, d_model)),
      norm1(add<LayerNorm>("norm1", d_model, options.layer_norm_eps)),
      norm2(add<LayerNorm>("norm2", d_model, options.layer_norm_eps)),
      dropout1(add<Dropout>("dropout1", options.dropout)),
      dropout2(add<Dropout>("dropout2", options.dropout)),
      options_(options) {}

Tensor TransformerEncoderLayer::attend(const Tensor& x, const AttentionMasks& masks) {
  return dropout1(self_attn(x, x, x, masks));
}
Tensor TransformerEncoderLayer::feed_forward(const Tensor& x) {
  return dropout2(linear2(dropout(activate(linear1(x), options_.activation))));
}

Tensor TransformerEncoderLayer::forward(const Tensor& x, const AttentionMasks& masks, Site site) {
  detail::WatchedCall watched(*this, site);
  SiteScope scope(site);
  if (options_.norm_first) {
    Tensor y = x + attend(norm1(x), masks);
    return y + feed_forward(norm2(y));
  }
  Tensor y = norm1(x + attend(x, masks));
  return norm2(y + feed_forward(y));
}

std::string TransformerEncoderLayer::describe() const {
  return describe_layer("TransformerEncoderLayer", linear1, options_);
}

TransformerEncoder::TransformerEncoder(int64_t d_model, int64_t nhead, int64_t num_layers,
                                       const TransformerOptions& options, bool final_norm)
    : layers(add<ModuleList>("layers")) {
  for (int64_t i = 0; i < num_layers; ++i) layers.add<TransformerEncoderLayer>(d_model, nhead, options);
  if (final_norm) norm = &add<LayerNorm>("norm", d_model, options.layer_norm_eps);
}

Tensor TransformerEncoder::forward(const Tensor& x, const AttentionMasks& masks, Site site) {
  detail::WatchedCall watched(*this, site);
  SiteScope scope(site);
  Tensor y = x;
  for (size_t i = 0; i < layers.size(); ++i) y = layers.get<TransformerEncoderLayer>(i)(y, masks);
  return norm ? (*norm)(y) : y;
}

// --- Decoder ---------------------------------------------------------------------------------------------------

TransformerDecoderLayer::TransformerDecoderLayer(int64_t d_model, int64_t nhead, const TransformerOptions& options)
    : self_attn(add<MultiheadAttention>("self_attn", d_model, nhead, attention_options(options))),
      multihead_attn(add<MultiheadAttention>("multihead_attn", d_model, nhead, attention_options(options))),
      linear1(add<Linear>("linear1", d_model, options.dim_feedforward)),
      dropout(add<Dropout>("dropout", options.dropout)),
      linear2(add<Linear>("linear2", options.dim_feedforward, d_model)),
      norm1(add<LayerNorm>("norm1", d_model, options.layer_norm_eps)),
      norm2(add<LayerNorm>("norm2", d_model, options.layer_norm_eps)),
      norm3(add<LayerNorm>("norm3", d_model, options.layer_norm_eps)),
      dropout1(add<Dropout>("dropout1", options.dropout)),
      dropout2(add<Dropout>("dropout2", options.dropout)),
      dropout3(add<Dropout>("dropout3", options.dropout)),
      options_(options) {}

Tensor TransformerDecoderLayer::attend_self(const Tensor& x, const AttentionMasks& masks) {
  return dropout1(self_attn(x, x, x, masks));
}
Tensor TransformerDecoderLayer::attend_memory(const Tensor& x, const Tensor& memory, const AttentionMasks& masks) {
  return dropout2(multihead_attn(x, memory, memory, masks));
}
Tensor TransformerDecoderLayer::feed_forward(const Tensor& x) {
  return dropout3(linear2(dropout(activate(linear1(x), options_.activation))));
}

Tensor TransformerDecoderLayer::forward(const Tensor& target, const Tensor& memory, const AttentionMasks& masks,
                                        const AttentionMasks& memory_masks, Site site) {
  detail::WatchedCall watched(*this, site);
  SiteScope scope(site);
  Tensor y = target;
  if (options_.norm_first) {
    y = y + attend_self(norm1(y), masks);
    y = y + attend_memory(norm2(y), memory, memory_masks);
    return y + feed_forward(norm3(y));
  }
  y = norm1(y + attend_self(y, masks));
  y = norm2(y + attend_memory(y, memory, memory_masks));
  return norm3(y + feed_forward(y));
}

std::string TransformerDecoderLayer::describe() const {
  return describe_layer("TransformerDecoderLayer", linear1, options_);
}

TransformerDecoder::TransformerDecoder(int64_t d_model, int64_t nhead, int64_t num_layers,
                                       const TransformerOptions& options, bool final_norm)
    : layers(add<ModuleList>("layers")) {
  for (int64_t i = 0; i < num_layers; ++i) layers.add<TransformerDecoderLayer>(d_model, nhead, options);
  if (final_norm) norm = &add<LayerNorm>("norm", d_model, options.layer_norm_eps);
}

Tensor TransformerDecoder::forward(const Tensor& target, const Tensor& memory, const AttentionMasks& masks,
                                   const AttentionMasks& memory_masks, Site site) {
  detail::WatchedCall watched(*this, site);
  SiteScope scope(site);
  Tensor y = target;
  for (size_t i = 0; i < layers.size(); ++i) y = layers.get<TransformerDecoderLayer>(i)(y, memory, masks, memory_masks);
  return norm ? (*norm)(y) : y;
}

}  // namespace deft::nn
