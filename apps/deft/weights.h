// Weights from a file of any kind Deft reads: a checkpoint of `deft train`, safetensors, a PyTorch file.
#pragma once

#include <string>
#include <vector>

#include "command_line.h"
#include "model_sizes.h"
#include "nn/module.h"
#include "task.h"

namespace deft::cli {

struct Weights {
  std::string path;
  NamedTensors tensors;              // of the model, under the file's names
  std::string config;                // what a checkpoint of deft train says of its run; "" for other files
  std::vector<std::string> classes;  // their names, where the file has them
  std::string said(const std::string& name) const;  // in `config`; "" if it is not there
};
// LoadError for a file that is damaged, which checkpoints know of themselves.
Weights read_weights(const std::string& path);

// The options that `command` was not given become those that the weights were trained with, and options.sizes those of
// the weights. ValueError where --model says another model than the file.
void take_settings(Command command, TaskOptions& options, const Weights& weights);

// Names of torchvision and Hugging Face become Deft's. ValueError that names the likely model and what differs most if
// they do not fit.
void load_weights(nn::Module& module, const std::string& model, const Weights& weights);
void load_weights(nn::Module& module, const std::string& model, const std::string& path);

}  // namespace deft::cli
