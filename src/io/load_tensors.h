// The tensors of a file, whatever its format.
#pragma once

#include <string>

#include "core/state.h"
#include "io/load_options.h"

namespace deft::io {

// safetensors or its index, npy, npz, or the state dict of a PyTorch checkpoint. The content decides; LoadError if a
// known extension says something else. The tensor of an npy file is called "array".
NamedTensors load_tensors(const std::string& path, const LoadOptions& options = {});

}  // namespace deft::io
