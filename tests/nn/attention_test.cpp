// MultiheadAttention and transformers as in PyTorch.
#include "nn/attention.h"

#include "nn/transformer.h"
#include "nn_util.h"
#include "ops/random.h"
#include "ops/shape_ops.h"

namespace deft::nn {
namespace {

const State& cases() {
  static const State all = fixture("attention");
  return all;
}
// PyTorch's padding masks of the cases: true is hidden.
Tensor padding() { return tensor<uint8_t>({0, 0, 0, 1, 1, 0, 0, 0, 0, 1}).to(DType::boolean).view({2, 5}); }
Tensor hidden_future(int64_t n) { return triu(ones({n, n}, DType::boolean), 1); }

void expect_case(const char* name, MultiheadAttention&& attention, const AttentionMasks& masks = {}) {
  SCOPED_TRACE(name);
  auto inputs = [](const std::vector<Tensor>& in) {
    return std::array<Tensor, 3>{in[0], in[in.size() == 1 ? 0 : 1], in[in.size() - 1]};
  };
  expect_as_pytorch(
      cases().part(name), attention,
      [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
        auto [q, k, v] = inputs(in);
        return {attention(q, k, v, masks)};
      },
      64);
  // The slow path gives the same result and gradients.
  expect_as_pytorch(
      cases().part(name), attention,
      [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
        auto [q, k, v] = inputs(in);
        return {attention.forward_with_weights(q, k, v, masks).output};
      },
      64);
}

TEST(NnAttention, AsInPyTorch) {
  expect_case("self", MultiheadAttention(8, 2));
  expect_case("cross", MultiheadAttention(8, 2));
  expect_case("three", MultiheadAttention(8, 4, {.bias = false}));
  expect_case("sizes", MultiheadAttention(8, 2, {.kdim = 6, .vdim = 4}));
  expect_case("unbatched", MultiheadAttention(8, 2));
}

TEST(NnAttention, Masks) {
  expect_case("batch_first", MultiheadAttention(8, 2, {.batch_first = true}), {.key_padding_mask = padding()});
  expect_case("causal", MultiheadAttention(8, 2), {.causal = true});
  expect_case("causal", MultiheadAttention(8, 2), {.attn_mask = hidden_future(5)});
  expect_case("causal_padding", MultiheadAttention(8, 2), {.key_padding_mask = padding(), .causal = true});
  expect_case("causal_padding", MultiheadAttention(8, 2),
              {.attn_mask = hidden_future(5), .key_padding_mask = padding()});
  expect_case("added", MultiheadAttention(8, 2),
              {.attn_mask = cases().tensor("added_mask"), .key_padding_mask = padding()});
}

TEST(NnAttention, MoreKeysThanAreGiven) {
  static const State added = fixture("added");
  auto expect = [&](const char* name, MultiheadAttentionOptions options, const AttentionMasks& masks) {
    for (bool slow : {false, true}) {
      SCOPED_TRACE(name);
      MultiheadAttention attention(8, 2, options);
      expect_as_pytorch(
          added.part(name), attention,
          [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
            const Tensor& k = in.back();
            return {slow ? attention.forward_with_weights(in[0], k, k, masks).output : attention(in[0], k, k, masks)};
          },
          64);
    }
  };
  AttentionMasks masks{.key_padding_mask = padding(), .causal = true};
  AttentionMasks spelled{.attn_mask = hidden_future(5), .key_padding_mask = padding()};
  expect("attention_bias_kv", {.add_bias_kv = true}, masks);
  expect("attention_zero_attn", {.add_zero_attn = true}, spelled);
  expect("attention_both", {.batch_first = true, .add_bias_kv = true, .add_zero_attn = true}, masks);
  expect("attention_unmasked", {.bias = false, .add_bias_kv = true}, {});
}

TEST(NnAttention, Weights) {
  for (bool average : {true, false}) {
    MultiheadAttention attention(8, 2);
    expect_as_pytorch(
        cases().part(average ? "weights_average" : "weights_heads"), attention,
        [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
          auto [y, w] = attention.forward_with_weights(in[0], in[1], in[1], {.key_padding_mask = padding()}, average);
          return {y, w};
        },
        64);
  }
}

TEST(NnAttention, UsesTheFusedOp) {
  MultiheadAttention attention(8, 2);
  Tensor x = sample({5, 2, 8}, 1, DType::f32);
  Tensor y = attention(x, x, x, {.causal = true});
  // in_proj, three chunks with view and permute each, attention, permute and flatten, out_proj: no matrix of scores.
  EXPECT_LE(nodes_made_by([&] { return attention(x, x, x, {.causal = true}); }), 14);
  EXPECT_EQ(attention(x).sizes(), x.sizes());
}

TEST(NnAttention, AQueryThatSeesNothingGivesTheBias) {
  MultiheadAttention attention(8, 2);
  Tensor x = sample({3, 1, 8}, 1, with_grad());
  AttentionMasks masks{.key_padding_mask = ones({1, 3}, DType::boolean)};
  Tensor y = attention(x, x, x, masks);
  EXPECT_EQ(y.abs().amax().item(), 0) << "the output's bias starts as zeros";
  Tensor slow = attention.forward_with_weights(x, x, x, masks).output;
  EXPECT_EQ(slow.abs().amax().item(), 0);
  (y.sum() + slow.sum()).backward();
  EXPECT_EQ(x.grad().abs().amax().item(), 0);
}

TEST(NnAttention, DropoutOnlyWhileTraining) {
  MultiheadAttention attention(8, 2, {.dropout = 0.5});
  Tensor x = sample({5, 2, 8}, 1, DType::f32);
  EXPECT_NE(values(attention(x)), values(attention(x)));
  attention.eval();
  EXPECT_EQ(values(attention(x)), values(attention(x)));
}

TEST(NnAttention, DropoutKeepsNoWeights) {
  auto saved = [](double p) {
    MultiheadAttention attention(8, 2, {.dropout = p});
    Tensor x = sample({64, 1, 8}, 1, DType::f32);
    Tensor y = attention(x);
    return graph_stats().saved_bytes;
  };
  EXPECT_EQ(saved(0.5), saved(0)) << "the weights would be 2 x 64 x 64 numbers";
}

TEST(NnAttention, WrongCalls) {
  expect_error<ValueError>([] { MultiheadAttention(8, 3); }, "8 features cannot be cut into 3 heads");
  MultiheadAttention attention(8, 2);
  Tensor x = zeros({5, 2, 8});
  expect_error<ShapeError>([&] { attention(x, x, zeros({5, 8})); }, "need 3 dimensions each");
  expect_error<ShapeError>(
      [&] {
        attention(x, x, x, {.attn_mask = zeros({4, 5})});
      },
      "attn_mask has shape [4, 5], expected [5, 5] or [4, 5, 5]");
  expect_error<ShapeError>(
      [&] {
        attention(x, x, x, {.key_padding_mask = zeros({5, 2})});
      },
      "key_padding_mask has shape [5, 2], expected [2, 5]");
  EXPECT_EQ(attention.describe(), "MultiheadAttention(features=8, heads=2)");
}

// --- Transformer

Tensor short_padding() { return tensor<uint8_t>({0, 0, 0, 1, 0, 0, 0, 0}).to(DType::boolean).view({2, 4}); }
const TransformerOptions kPlain{.dim_feedforward = 12, .dropout = 0};
const TransformerOptions kFirst{
    .dim_feedforward = 12, .dropout = 0, .activation = FeedForward::gelu, .batch_first = true, .norm_first = true};

TEST(NnTransformer, Encoder) {
  State all = fixture("transformer");
  TransformerEncoderLayer layer(8, 2, kPlain), first(8, 2, kFirst);
  expect_as_pytorch(all.part("encoder_layer"), layer, 300);
  expect_as_pytorch(
      all.part("encoder_layer_first"), first,
      [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
        return {first(in[0], {.key_padding_mask = short_padding()})};
      },
      300);
  TransformerEncoder encoder(8, 2, 2, kPlain, true);
  expect_as_pytorch(
      all.part("encoder"), encoder,
      [&](const std::vector<Tensor>& in) -> std::vector<Tensor> { return {encoder(in[0], {.causal = true})}; }, 1000);
  EXPECT_EQ(first.describe(),
            "TransformerEncoderLayer(features=8, feed_forward=12, dropout=0, gelu, norm_first, batch_first)");
}

TEST(NnTransformer, Decoder) {
  State all = fixture("transformer");
  TransformerDecoderLayer layer(8, 2, kPlain);
  expect_as_pytorch(
      all.part("decoder_layer"), layer,
      [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
        return {layer(in[0], in[1], {.causal = true}, {.key_padding_mask = short_padding()})};
      },
      300);
  TransformerDecoder decoder(8, 2, 2, kFirst, true);
  expect_as_pytorch(
      all.part("decoder"), decoder,
      [&](const std::vector<Tensor>& in) -> std::vector<Tensor> { return {decoder(in[0], in[1])}; }, 1000);
}

TEST(NnTransformer, LayersHaveTheirOwnFirstValues) {
  TransformerEncoder encoder(8, 2, 2, kPlain);
  NamedTensors state = encoder.state_dict();
  EXPECT_NE(values(*find_tensor(state, "layers.0.linear1.weight")),
            values(*find_tensor(state, "layers.1.linear1.weight")));
}

}  // namespace
}  // namespace deft::nn
