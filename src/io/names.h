// Converts tensor names of other libraries' checkpoints to Deft's.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/state.h"

namespace deft::io {

// `from` is a name in which each '*' stands for one or more characters, as few as possible; `to` is the new name, in
// which each '*' is replaced by what the one in the same place stood for. Rules are applied one after the other, each
// to what the ones before made of the name.
struct NameRule {
  std::string_view from, to;
  bool drop = false;  // the tensor is left out; `to` means nothing
};

struct RenamedTensors {
  NamedTensors tensors;              // in the order of the input
  std::vector<std::string> dropped;  // by a rule, under their old names
};
// ValueError if two tensors come out with the same name.
RenamedTensors rename_tensors(const NamedTensors& tensors, std::span<const NameRule> rules);

// How a checkpoint fits a model.
struct NameReport {
  std::vector<std::string> missing;  // in the model, not in the checkpoint
  std::vector<std::string> unused;   // in the checkpoint, not in the model
  std::vector<std::string>
      shapes;  // in both, with different shapes: "fc.weight: [1000, 2048] in the file, [10, 2048] ..."
  bool complete() const { return missing.empty() && unused.empty() && shapes.empty(); }
  std::string text() const;  // one line for each, empty if complete
};
NameReport compare_names(const NamedTensors& checkpoint, const NamedTensors& model);

// From torchvision's and Hugging Face's checkpoints to the models of src/models. All of them take off the "module."
// that DataParallel puts in front, and drop masks and copies that Deft computes or shares.
std::span<const NameRule> resnet_names();
std::span<const NameRule> bert_names();       // to the encoder alone: what belongs to a head is dropped
std::span<const NameRule> bert_head_names();  // to an encoder with a head
std::span<const NameRule> gpt2_names();
std::span<const NameRule> transformer_xl_names();

}  // namespace deft::io
