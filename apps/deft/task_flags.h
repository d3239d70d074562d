// Flags shared by the verbs that run a built-in model: which model, which data, which precision.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "output.h"
#include "runtime/dtype.h"
#include "task.h"

namespace deft::cli {

// Of these, where the data is and how much of it is used.
void add_data_flags(CLI::App& app, TaskOptions& options);
void add_task_flags(CLI::App& app, TaskOptions& options);
// --amp off|auto|bf16|f16, and the type it means; auto says on stderr what it chose and why.
void add_amp_flag(CLI::App& app, std::string& amp);
DType amp_dtype(const std::string& amp, bool quiet, Device device = kCPU);
void add_threads_flag(CLI::App& app, CommonFlags& flags);

}  // namespace deft::cli
