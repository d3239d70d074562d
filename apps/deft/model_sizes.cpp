#include "model_sizes.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.h"
#include "data/text.h"
#include "models/cnn.h"
#include "models/mlp.h"
#include "models/resnet.h"

namespace deft::cli {

namespace {

// The tensors of a file by name.
class Shapes {
 public:
  explicit Shapes(const NamedTensors& tensors) : tensors_(tensors) {}
  // The size of dimension `dim`, `otherwise` if there is no such tensor.
  int64_t size(std::string_view name, int dim, int64_t otherwise) const {
    const Tensor* t = find(name);
    return t && dim < t->dim() ? t->size(dim) : otherwise;
  }
  bool has(std::string_view name) const { return find(name) != nullptr; }
  // How many different numbers follow `prefix`: "h." for "h.0.ln_1.weight", "h.1.ln_1.weight", ...
  int64_t count(std::string_view prefix, int64_t otherwise) const {
    std::set<std::string_view> numbers;
    for (const NamedTensor& t : tensors_) {
      if (!t.name.starts_with(prefix)) continue;
      std::string_view rest = std::string_view(t.name).substr(prefix.size());
      numbers.insert(rest.substr(0, rest.find('.')));
    }
    return numbers.empty() ? otherwise : static_cast<int64_t>(numbers.size());
  }

 private:
  const Tensor* find(std::string_view name) const {
    for (const NamedTensor& t : tensors_)
      if (t.name == name) return &t.tensor;
    return nullptr;
  }
  const NamedTensors& tensors_;
};

// A whole number of the config.json that Hugging Face puts beside the weights.
int64_t from_config(const std::string& folder, const char* key, int64_t otherwise) {
  std::ifstream in(folder + "/config.json");
  const nlohmann::json config = nlohmann::json::parse(in, nullptr, false);
  const bool there = config.is_object() && config.contains(key) && config[key].is_number_integer();
  return there ? config[key].get<int64_t>() : otherwise;
}

// Published models have heads of 64 values, those that learn bytes of 32.
int64_t heads_of(int64_t hidden, int64_t vocabulary, const std::string& folder, const char* key) {
  const int64_t usual = hidden / (vocabulary <= data::kByteTokens + 1 ? 32 : 64);
  return std::clamp<int64_t>(from_config(folder, key, usual), 1, std::max<int64_t>(hidden, 1));
}

void take_gpt2(models::Gpt2Options& o, const Shapes& s, const std::string& folder) {
  o.vocabulary = s.size("wte.weight", 0, o.vocabulary);
  o.hidden = s.size("wte.weight", 1, o.hidden);
  o.positions = s.size("wpe.weight", 0, o.positions);
  o.layers = s.count("h.", o.layers);
  o.heads = heads_of(o.hidden, o.vocabulary, folder, "n_head");
}

void take_bert(models::BertOptions& o, const Shapes& s, const std::string& folder) {
  const std::string tables = "bert.embeddings.", layer = "bert.encoder.layer.";
  o.vocabulary = s.size(tables + "word_embeddings.weight", 0, o.vocabulary);
  o.hidden = s.size(tables + "word_embeddings.weight", 1, o.hidden);
  o.positions = s.size(tables + "position_embeddings.weight", 0, o.positions);
  o.types = s.size(tables + "token_type_embeddings.weight", 0, o.types);
  o.intermediate = s.size(layer + "0.intermediate.dense.weight", 0, o.intermediate);
  o.layers = s.count(layer, o.layers);
  o.heads = heads_of(o.hidden, o.vocabulary, folder, "num_attention_heads");
}

void take_mlp(std::vector<int64_t>& widths, const Shapes& s) {
  const int64_t layers = s.count("layers.", 0);
  if (layers == 0) return;
  widths = {s.size("layers.0.weight", 1, 0)};
  for (int64_t i = 0; i < layers; ++i) widths.push_back(s.size(fmt::format("layers.{}.weight", i), 0, 0));
}

}  // namespace

ModelSizes byte_model_sizes(int64_t length) {
  ModelSizes sizes;
  sizes.gpt2 = {.vocabulary = data::kByteTokens,
                .positions = kTextPositions,
                .hidden = 192,
                .layers = 4,
                .heads = 6,
                .dropout = 0};
  sizes.bert = {.vocabulary = data::kByteTokens + 1,
                .hidden = 192,
                .layers = 4,
                .heads = 6,
                .intermediate = 768,
                .positions = std::max<int64_t>(length, 256),
                .dropout = 0,
                .attention_dropout = 0};
  sizes.transformer_xl = {.vocabulary = data::kByteTokens,
                          .cutoffs = {128},
                          .hidden = 192,
                          .layers = 4,
                          .heads = 6,
                          .head_size = 32,
                          .intermediate = 768,
                          .memory = length,
                          .dropout = 0};
  return sizes;
}

ModelSizes sizes_of(const std::string& model, const NamedTensors& weights, const ModelSizes& otherwise,
                    const std::string& folder) {
  ModelSizes sizes = otherwise;
  const Shapes s(weights);
  if (model == "cnn") {
    sizes.channels = s.size("stem.conv.weight", 1, sizes.channels);
    sizes.width = s.size("stem.conv.weight", 0, sizes.width);
    sizes.classes = s.size("classifier.weight", 0, sizes.classes);
  } else if (model.starts_with("resnet")) {
    sizes.channels = s.size("conv1.weight", 1, sizes.channels);
    sizes.width = s.size("conv1.weight", 0, sizes.width);
    sizes.classes = s.size("fc.weight", 0, sizes.classes);
    sizes.small_input = s.has("conv1.weight") ? s.size("conv1.weight", 2, 7) == 3 : sizes.small_input;
  } else if (model == "mlp") {
    take_mlp(sizes.layers, s);
    if (!sizes.layers.empty()) sizes.classes = sizes.layers.back();  // what is no mlp has none
  } else if (model == "gpt2") {
    take_gpt2(sizes.gpt2, s, folder);
  } else if (model == "bert") {
    take_bert(sizes.bert, s, folder);
  }
  return sizes;
}

std::string likely_model(const NamedTensors& weights) {
  auto has = [&](std::string_view part) {
    return std::ranges::any_of(weights, [&](const NamedTensor& t) { return t.name.find(part) != t.name.npos; });
  };
  if (has("wte.weight")) return "gpt2";
  if (has("embeddings.word_embeddings.weight")) return "bert";
  if (has("word_emb.") || has("crit.")) return "transformer-xl";
  if (has("stem.conv.weight")) return "cnn";
  if (has("layer1.0.conv3.weight")) return has("layer3.5.") && !has("layer3.6.") ? "resnet50" : "";
  if (has("layer1.0.conv1.weight")) return has("layer1.2.") ? "" : "resnet18";
  return has("layers.0.weight") && !has("layers.0.weight.") ? "mlp" : "";
}

std::unique_ptr<nn::Module> make_model(const std::string& model, const ModelSizes& sizes) {
  ModelSizes s = sizes;
  if (s.channels == 0) s.channels = 1;
  if (s.classes == 0) s.classes = 10;
  if (s.layers.empty()) s.layers = {1, s.classes};
  if (model == "mlp") return std::make_unique<models::Mlp>(s.layers);
  if (model == "gpt2") return std::make_unique<models::Gpt2>(s.gpt2);
  if (model == "bert") return std::make_unique<models::BertForMaskedLM>(s.bert);
  if (model == "transformer-xl") return std::make_unique<models::TransformerXL>(s.transformer_xl);
  if (model == "cnn") {
    models::CnnOptions o{.channels = s.channels, .classes = s.classes};
    if (s.width > 0) o.width = s.width;
    return std::make_unique<models::Cnn>(o);
  }
  DEFT_CHECK(model == "resnet18" || model == "resnet50", ValueError, "there is no model {}", model);
  models::ResNetOptions o = model == "resnet18" ? models::resnet18_options() : models::resnet50_options();
  o.channels = s.channels;
  o.classes = s.classes;
  if (s.width > 0) o.width = s.width;
  o.small_input = s.small_input;
  return std::make_unique<models::ResNet>(o);
}

}  // namespace deft::cli
