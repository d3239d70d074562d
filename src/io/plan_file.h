// Compiled plans in a file: load_plan() runs them without the function they were made from.
//
// A plan file is a safetensors file with a checksum over everything: graphs as text in its metadata, weights and folded
// constants as tensors. It belongs to a version of Deft and to a kind of machine, and is refused elsewhere.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "graph/compile.h"
#include "io/load_options.h"

namespace deft::io {

struct PlanInfo {
  std::string name;  // whatever the writer wants to find again: a model's name
  // Also the templates that were confirmed: the file serves sizes that no call had so far. Plans that they can make are
  // left out, and made where the file is loaded.
  bool templates = false;
};

// The plans of `compiled` in the modes and the state of the one used last, with the weights as they are now. ValueError
// where there is none, or one that cannot be read back: gradients, optimizer steps. SaveError if writing fails.
void save_plan(const Compiled& compiled, const std::string& path, const PlanInfo& info = {});

// Serves calls with inputs as the plans were made for, or of sizes that its templates follow, in any mode; ValueError
// for others. LoadError with the field for a file that is damaged or no plan, and where a kernel would leave its
// buffers; UnsupportedError for a plan of another version or machine.
Compiled load_plan(const std::string& path, const LoadOptions& options = {}, PlanInfo* info = nullptr);
// The same from a file's bytes in memory. `name` stands for the file in errors.
Compiled parse_plan(std::span<const std::byte> bytes, const std::string& name, const LoadOptions& options = {},
                    PlanInfo* info = nullptr);

}  // namespace deft::io

namespace deft {
using io::load_plan;
using io::save_plan;
}  // namespace deft
