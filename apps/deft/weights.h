// Weights from a file of any kind Deft reads: a checkpoint of `deft train`, safetensors, a PyTorch file.
#pragma once

#include <string>

#include "nn/module.h"

namespace deft::cli {

// Names of torchvision and Hugging Face become Deft's. ValueError with the whole difference if they do not fit.
void load_weights(nn::Module& module, const std::string& model, const std::string& path);

}  // namespace deft::cli
