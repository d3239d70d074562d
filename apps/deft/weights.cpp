#include "weights.h"

#include <map>

#include "io/load_tensors.h"
#include "io/names.h"

namespace deft::cli {

namespace {

// A checkpoint of `deft train` holds the weights under "model." beside the optimizer's tensors.
NamedTensors of_checkpoint(const NamedTensors& all) {
  constexpr std::string_view kModel = "model.";
  NamedTensors out;
  bool has_optimizer = false;
  for (const NamedTensor& t : all) {
    has_optimizer |= t.name.starts_with("optimizer.");
    if (t.name.starts_with(kModel)) out.push_back({t.name.substr(kModel.size()), t.tensor});
  }
  return has_optimizer ? out : all;
}

std::span<const io::NameRule> rules_for(const std::string& model) {
  if (model == "bert") return io::bert_head_names();
  if (model == "gpt2") return io::gpt2_names();
  if (model == "transformer-xl") return io::transformer_xl_names();
  return io::resnet_names();
}

}  // namespace

void load_weights(nn::Module& module, const std::string& model, const std::string& path) {
  NamedTensors tensors = of_checkpoint(io::load_tensors(path));
  module.load_state_dict(io::rename_tensors(tensors, rules_for(model)).tensors);
}

}  // namespace deft::cli
