#include "weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <type_traits>

#include "base/check.h"
#include "io/checkpoint.h"
#include "io/file_format.h"
#include "io/input_file.h"
#include "io/load_tensors.h"
#include "io/names.h"
#include "io/safetensors.h"

namespace deft::cli {

namespace {

constexpr std::string_view kModel = "model.";
constexpr const char* kClasses = "run.classes";

// A checkpoint of `deft train` holds the weights under "model." beside the optimizer's tensors.
NamedTensors of_checkpoint(const NamedTensors& all) {
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

// The pooler belongs to a head that the model of hidden tokens does not have.
NamedTensors under_own_names(const NamedTensors& tensors, const std::string& model) {
  NamedTensors named = io::rename_tensors(tensors, rules_for(model)).tensors;
  if (model == "bert") std::erase_if(named, [](const NamedTensor& t) { return t.name.starts_with("bert.pooler."); });
  return named;
}

// At most five, first those of the kind that tells most: shapes where most names are right, else the names.
std::vector<std::string> most_telling(const nn::LoadReport& report, size_t in_model) {
  constexpr size_t kMost = 5;
  std::vector<std::string> out;
  auto take = [&](const std::vector<std::string>& from, const char* what, size_t most) {
    for (const std::string& name : from) {
      if (most-- == 0 || out.size() == kMost) return;
      out.push_back(name + what);
    }
  };
  const bool names_fit = 2 * report.missing.size() < in_model;
  if (names_fit) take(report.mismatched, "", kMost);
  take(report.missing, " is missing", names_fit || report.unexpected.empty() ? kMost : 2);
  take(report.unexpected, " is not in the model", kMost);
  take(report.mismatched, "", kMost);
  return out;
}

bool is_checkpoint(const std::string& path) {
  {
    io::InputFile file(path, "file");
    if (io::detect_format(file) != io::FileFormat::safetensors) return false;
  }
  io::LoadOptions only_header;
  only_header.mmap = true;
  return io::load_safetensors(path, only_header).metadata.contains("deft.checkpoint");
}

// The name of a built-in model, or "".
std::string likely_model_of(const Weights& w) {
  const std::string said = w.said("model");
  const std::vector<std::string> names = model_names();
  return std::ranges::count(names, said) == 1 ? said : likely_model(w.tensors);
}

template <class T>
void take(Command command, const char* flag, T& option, const std::string& said) {
  if (said.empty() || !command.has_flag(flag) || command.given(flag)) return;
  if constexpr (std::is_same_v<T, std::string>)
    option = said;
  else
    std::from_chars(said.data(), said.data() + said.size(), option);
}

}  // namespace

std::string Weights::said(const std::string& name) const { return io::config_value(config, name); }

Weights read_weights(const std::string& path) {
  if (!is_checkpoint(path)) return {path, io::load_tensors(path), "", {}};
  const io::Checkpoint checkpoint = io::load_checkpoint(path);
  Weights w{path, of_checkpoint(checkpoint.state.tensors), checkpoint.info.config, {}};
  if (checkpoint.state.values.contains(kClasses)) w.classes = checkpoint.state.get<std::vector<std::string>>(kClasses);
  return w;
}

void take_settings(Command command, TaskOptions& o, const Weights& w) {
  const std::string likely = likely_model_of(w);
  take(command, "--model", o.model, likely);
  ModelSizes sizes = sizes_of(o.model, under_own_names(w.tensors, o.model), byte_model_sizes(o.length),
                              std::filesystem::path(w.path).parent_path().string());
  if (!likely.empty() && likely != o.model) load_weights(*make_model(o.model, sizes), o.model, w);  // says why not
  // Where the file does not say it, large images are those of folders.
  std::string data = w.said("data");
  if (data.empty() && is_text_model(o.model)) data = "text";
  if (data.empty() && o.model.starts_with("resnet") && !sizes.small_input && sizes.channels == 3) data = "images";
  take(command, "--data", o.data, data);
  take(command, "--length", o.length, w.said("length"));
  take(command, "--seed", o.seed, w.said("seed"));
  const std::string image = w.said("picture");
  if (o.data == "images" && !image.empty())
    take(command, "--image-size", o.image_size, image.substr(image.rfind('x') + 1));
  sizes.transformer_xl.memory = o.length;
  o.sizes = std::make_shared<const ModelSizes>(std::move(sizes));
}

void load_weights(nn::Module& module, const std::string& model, const Weights& weights) {
  const NamedTensors tensors = under_own_names(weights.tensors, model);
  const NamedTensors own = module.state_dict();
  nn::LoadReport report = module.load_state_dict(tensors, false);
  if (report.ok()) return;
  const std::string likely = likely_model_of(weights);
  const std::string hint = likely.empty() || likely == model
                               ? std::string()
                               : fmt::format("it looks like weights of {} (-m {}), ", likely, likely);
  DEFT_FAIL(ValueError,
            "{} does not fit {}: {}{} of the model's {} tensors are missing, {} are not the model's, {} have another "
            "shape: {}",
            weights.path, model, hint, report.missing.size(), own.size(), report.unexpected.size(),
            report.mismatched.size(), fmt::join(most_telling(report, own.size()), "; "));
}

void load_weights(nn::Module& module, const std::string& model, const std::string& path) {
  load_weights(module, model, read_weights(path));
}

}  // namespace deft::cli
