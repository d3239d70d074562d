#include "graph/passes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "base/check.h"
#include "graph/edit.h"

namespace deft::graph {

PassOptions without(PassOptions options, const std::string& names) {
  const std::pair<const char*, bool PassOptions::*> passes[] = {
#define DEFT_PASS(name, ...) {#name, &PassOptions::name},
#define DEFT_STAGE(name)
#include "graph/passes.def"
#undef DEFT_STAGE
#undef DEFT_PASS
      {"cost_model", &PassOptions::cost_model}};
  std::vector<std::string> known;
  for (const auto& p : passes) known.push_back(p.first);
  std::istringstream in(names);
  for (std::string name; std::getline(in, name, ',');) {
    auto pass = std::find_if(std::begin(passes), std::end(passes), [&](const auto& p) { return name == p.first; });
    DEFT_CHECK(pass != std::end(passes), ValueError, "there is no pass '{}'; the passes are {}", name,
               fmt::join(known, ", "));
    options.*pass->second = false;
  }
  return options;
}

void run_passes(Graph& graph, const PassOptions& options, std::vector<Dependency>& dependencies, Notes& notes) {
  auto pass = [&](bool on, const char* name, auto run) {
    if (!on) {
      notes.left.push_back(fmt::format("{}: switched off", name));
      return;
    }
    run();
    verify(graph, name);
  };
  auto stage = [&](Stage now) {
    if (now == Stage::fused) drop_unused_constants(graph);
    for (const AddedPass& added : options.added)
      if (added.stage == now) pass(true, added.name.c_str(), [&] { added.run(graph, dependencies, notes); });
  };
  const bool weigh = options.cost_model;
#define DEFT_PASS(name, ...) pass(options.name, #name, [&] { name(__VA_ARGS__); });
#define DEFT_STAGE(name) stage(Stage::name);
#include "graph/passes.def"
#undef DEFT_STAGE
#undef DEFT_PASS
}

}  // namespace deft::graph
