// Built-in models of any size: made by what is known of them, which may be no more than their weights.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/state.h"
#include "models/bert.h"
#include "models/gpt2.h"
#include "models/transformer_xl.h"
#include "nn/module.h"

namespace deft::cli {

struct ModelSizes {
  int64_t channels = 0, classes = 0;  // of images; of the answers; 0: not known
  int64_t width = 0;                  // channels of the first stage; 0: the model's own
  bool small_input = false;           // a ResNet for images of 32 x 32
  std::vector<int64_t> layers;        // widths of an mlp: input, hidden..., output
  models::Gpt2Options gpt2;
  models::BertOptions bert;
  models::TransformerXLOptions transformer_xl;
};

// Those of the models that deft train makes for text: bytes as tokens, small enough to learn on a CPU.
inline constexpr int64_t kTextPositions = 512;
ModelSizes byte_model_sizes(int64_t length);
// What the weights of a model say, under Deft's names; what they do not say is as in `otherwise`. Heads are in no
// tensor: they are those of the config.json in `folder` if it is there, else as many as the published models have.
ModelSizes sizes_of(const std::string& model, const NamedTensors& weights, const ModelSizes& otherwise,
                    const std::string& folder);
// The built-in model that has tensors with these names, "" if there is none.
std::string likely_model(const NamedTensors& weights);

// With first weights; 1 channel and 10 classes where they are not known. ValueError for a name that is none of
// model_names().
std::unique_ptr<nn::Module> make_model(const std::string& model, const ModelSizes& sizes);

}  // namespace deft::cli
