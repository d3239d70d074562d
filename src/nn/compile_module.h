// compile() for modules: train(), eval() and replaced tensors are noticed.
#pragma once

#include "graph/compile.h"
#include "nn/module.h"

namespace deft {

// The module must outlive the result. For modules of one input and one result; others: compile a function that calls
// the module, with its fingerprint() as CompileOptions::state.
Compiled compile(nn::Module& module, CompileOptions options = {}, Site site = Site::current());

}  // namespace deft
