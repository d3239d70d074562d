#include "model_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "common_flags.h"
#include "io/checkpoint.h"
#include "io/file_format.h"
#include "io/input_file.h"
#include "io/safetensors.h"
#include "suggest.h"

namespace deft::cli {

namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& found) {
  throw LoadError("model", path, "file", 0,
                  fmt::format("found {}; --model takes the name of a built-in model, a checkpoint of deft train or a "
                              "plan of deft compile; weights alone go to --weights, beside --model NAME",
                              found));
}

std::string found_in(io::FileFormat format, const std::string& path) {
  if (path.ends_with(".onnx")) return "an ONNX model, which Deft does not read";
  if (format == io::FileFormat::npy) return "an npy array";
  if (format == io::FileFormat::zip) return "a zip archive (PyTorch or npz)";
  if (format == io::FileFormat::legacy_pt) return "a PyTorch file";
  if (format == io::FileFormat::json) return "JSON text (a plan of deft doctor goes to deft infer --plan)";
  return "none of the formats that Deft reads";
}

}  // namespace

bool is_model_file(const std::string& model) { return std::filesystem::is_regular_file(model); }

Check a_model() {
  const Check name = one_of("model", model_names());
  return [name](const std::string& word) {
    if (is_model_file(word)) return std::string();
    const bool path = word.find_first_of("./") != word.npos;
    return path ? fmt::format("found '{}', which is not a file, expected the name of a model or a file", word)
                : name(word);
  };
}

ModelFile model_file_kind(const std::string& path) {
  io::FileFormat format;
  {
    io::InputFile file(path, "model");
    format = io::detect_format(file);
  }
  if (format != io::FileFormat::safetensors) refuse(path, found_in(format, path));
  io::LoadOptions only_header;
  only_header.mmap = true;
  const io::SafetensorsFile file = io::load_safetensors(path, only_header);
  if (file.metadata.contains("deft.plan")) return ModelFile::plan;
  if (file.metadata.contains("deft.checkpoint")) return ModelFile::checkpoint;
  refuse(path, fmt::format("a safetensors file of {} tensors that does not say which model they are of",
                           file.tensors.size()));
}

void take_checkpoint(TaskOptions& o, std::string& weights) {
  const std::string file = o.model, config = io::load_checkpoint(file).info.config;
  const std::vector<std::string> names = model_names();
  o.model = io::config_value(config, "model");
  if (std::ranges::count(names, o.model) != 1)
    refuse(file, "a checkpoint that does not say which model it is of, as those of deft train do");
  if (weights.empty()) weights = file;
  if (o.data.empty()) o.data = io::config_value(config, "data");
  if (const std::string length = io::config_value(config, "length"); !length.empty()) o.length = std::stoll(length);
}

}  // namespace deft::cli
