// Names of torchvision's and Hugging Face's checkpoints, as they are in those files, become Deft's.
#include "io/names.h"

#include "io/safetensors.h"
#include "io_util.h"

namespace deft::io {
namespace {

std::string renamed(const std::string& name, std::span<const NameRule> rules) {
  RenamedTensors r = rename_tensors({{name, ones({2, 3})}}, rules);
  return r.tensors.empty() ? "dropped " + r.dropped[0] : r.tensors[0].name;
}

TEST(Names, Rules) {
  const NameRule rules[] = {{"a.*.b.*", "*/*"}, {"x*", "*", true}, {"*/7", "seven.*"}};
  EXPECT_EQ(renamed("a.1.b.2", rules), "1/2");
  EXPECT_EQ(renamed("a.1.b.7", rules), "seven.1");
  EXPECT_EQ(renamed("a..b.", rules), "a..b.");  // a star is at least one character
  EXPECT_EQ(renamed("a.b.b.b.c", rules), "b/b.c");
  EXPECT_EQ(renamed("xyz", rules), "dropped xyz");
  EXPECT_EQ(renamed("x", rules), "x");
  EXPECT_EQ(renamed("plain", {}), "plain");
}

TEST(Names, TwoThatBecomeOne) {
  const NameRule rules[] = {{"*.gamma", "*.weight"}};
  EXPECT_THROW(rename_tensors({{"n.gamma", ones({1})}, {"n.weight", ones({1})}}, rules), ValueError);
}

TEST(Names, OrderAndTensorsStay) {
  Tensor a = ones({1}), b = ones({2});
  RenamedTensors r = rename_tensors({{"module.b", b}, {"module.a", a}}, resnet_names());
  EXPECT_EQ(r.tensors[0].name, "b");
  EXPECT_TRUE(r.tensors[0].tensor.is_same(b));
  EXPECT_EQ(r.tensors[1].name, "a");
}

TEST(Names, ResNet) {
  EXPECT_EQ(renamed("layer1.0.downsample.0.weight", resnet_names()), "layer1.0.downsample.0.weight");
  EXPECT_EQ(renamed("module.bn1.num_batches_tracked", resnet_names()), "bn1.num_batches_tracked");
}

TEST(Names, Bert) {
  auto encoder = bert_names(), head = bert_head_names();
  EXPECT_EQ(renamed("bert.embeddings.LayerNorm.gamma", encoder), "embeddings.LayerNorm.weight");
  EXPECT_EQ(renamed("bert.encoder.layer.0.attention.output.LayerNorm.beta", encoder),
            "encoder.layer.0.attention.output.LayerNorm.bias");
  EXPECT_EQ(renamed("encoder.layer.11.output.dense.weight", encoder), "encoder.layer.11.output.dense.weight");
  EXPECT_EQ(renamed("bert.embeddings.position_ids", encoder), "dropped bert.embeddings.position_ids");
  EXPECT_EQ(renamed("cls.predictions.bias", encoder), "dropped cls.predictions.bias");
  EXPECT_EQ(renamed("module.bert.pooler.dense.bias", encoder), "pooler.dense.bias");
  EXPECT_EQ(renamed("bert.pooler.dense.bias", head), "bert.pooler.dense.bias");
  EXPECT_EQ(renamed("cls.predictions.transform.LayerNorm.gamma", head), "cls.predictions.transform.LayerNorm.weight");
  EXPECT_EQ(renamed("cls.predictions.decoder.bias", head), "dropped cls.predictions.decoder.bias");
  EXPECT_EQ(renamed("cls.seq_relationship.weight", head), "dropped cls.seq_relationship.weight");
  EXPECT_EQ(renamed("bert.embeddings.position_ids", head), "dropped bert.embeddings.position_ids");
}

TEST(Names, Gpt2AndTransformerXl) {
  EXPECT_EQ(renamed("transformer.h.3.attn.c_attn.weight", gpt2_names()), "h.3.attn.c_attn.weight");
  EXPECT_EQ(renamed("h.3.attn.c_attn.bias", gpt2_names()), "h.3.attn.c_attn.bias");
  EXPECT_EQ(renamed("h.3.attn.bias", gpt2_names()), "dropped h.3.attn.bias");
  EXPECT_EQ(renamed("transformer.h.10.attn.masked_bias", gpt2_names()), "dropped transformer.h.10.attn.masked_bias");
  EXPECT_EQ(renamed("lm_head.weight", gpt2_names()), "dropped lm_head.weight");
  EXPECT_EQ(renamed("transformer.layers.0.dec_attn.qkv_net.weight", transformer_xl_names()),
            "layers.0.dec_attn.qkv_net.weight");
  EXPECT_EQ(renamed("transformer.pos_emb.inv_freq", transformer_xl_names()), "dropped transformer.pos_emb.inv_freq");
  EXPECT_EQ(renamed("crit.cluster_weight", transformer_xl_names()), "crit.cluster_weight");
}

TEST(Names, Report) {
  NamedTensors file{{"a", ones({2})}, {"b", ones({2})}, {"x", ones({1})}},
      model{{"b", ones({3})}, {"a", ones({2})}, {"c", ones({1})}};
  NameReport r = compare_names(file, model);
  EXPECT_FALSE(r.complete());
  EXPECT_EQ(r.text(),
            "missing in the file: c\nnot in the model: x\nother shape: b: [2] in the file, [3] in the model\n");
  EXPECT_TRUE(compare_names(file, file).complete());
  EXPECT_EQ(compare_names(file, file).text(), "");
}

}  // namespace
}  // namespace deft::io
