// --model FILE: what the file holds.
#pragma once

#include <cstdint>
#include <string>

#include "command_line.h"
#include "task.h"

namespace deft::cli {

enum class ModelFile : uint8_t { checkpoint, plan };

// The name of a built-in model, or a file.
Check a_model();
bool is_model_file(const std::string& model);
// A checkpoint of deft train or a plan of deft compile; LoadError that says what was found instead.
ModelFile model_file_kind(const std::string& path);
// The model, its data and its weights are those of a checkpoint, which options.model names. What is set already stays:
// weights and data that are not "".
void take_checkpoint(TaskOptions& options, std::string& weights);

}  // namespace deft::cli
