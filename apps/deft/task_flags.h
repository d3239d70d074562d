// Flags shared by the verbs that run a built-in model: which model, which data, which precision.
#pragma once

#include <string>

#include "common_flags.h"
#include "runtime/dtype.h"
#include "task.h"

namespace deft::cli {

// Of these, where the data is and how much of it is used.
void add_data_flags(Command command, TaskOptions& options);
// `files`: the model may also be a file (model_file.h).
void add_model_flag(Command command, TaskOptions& options, bool files);
void add_task_flags(Command command, TaskOptions& options, bool files = false);
// --on-error skip|stop; and on stderr what was left out, if anything was.
void add_on_error_flag(Command command, TaskOptions& options);
void tell_left_out(const std::string& verb, const LeftOut& left_out);
// --amp off|auto|bf16|f16, and the type it means; auto says on stderr what it chose and why.
void add_amp_flag(Command command, std::string& amp);
DType amp_dtype(const std::string& amp, bool quiet, Device device = kCPU);
void add_threads_flag(Command command, CommonFlags& flags);

}  // namespace deft::cli
