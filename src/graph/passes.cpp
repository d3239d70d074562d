#include "graph/passes.h"

#include <algorithm>
#include <sstream>

#include "base/check.h"

namespace deft::graph {

PassOptions without(PassOptions options, const std::string& names) {
  const std::pair<const char*, bool PassOptions::*> passes[] = {
      {"fold_constants", &PassOptions::fold_constants}, {"merge_equal", &PassOptions::merge_equal},
      {"remove_unused", &PassOptions::remove_unused},   {"fold_batch_norm", &PassOptions::fold_batch_norm},
      {"fuse_epilogues", &PassOptions::fuse_epilogues}, {"fuse_elementwise", &PassOptions::fuse_elementwise}};
  std::istringstream in(names);
  for (std::string name; std::getline(in, name, ',');) {
    auto pass = std::find_if(std::begin(passes), std::end(passes), [&](const auto& p) { return name == p.first; });
    DEFT_CHECK(pass != std::end(passes), ValueError,
               "there is no pass '{}'; the passes are fold_constants, merge_equal, remove_unused, fold_batch_norm, "
               "fuse_epilogues and fuse_elementwise",
               name);
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
  pass(options.merge_equal, "merge_equal", [&] { merge_equal(graph, notes); });
  pass(options.fold_constants, "fold_constants", [&] { fold_constants(graph, dependencies, notes); });
  pass(options.remove_unused, "remove_unused", [&] { remove_unused(graph, notes); });
  pass(options.fold_batch_norm, "fold_batch_norm", [&] { fold_batch_norm(graph, dependencies, notes); });
  pass(options.fuse_epilogues, "fuse_epilogues", [&] { fuse_epilogues(graph, notes); });
  pass(options.fuse_elementwise, "fuse_elementwise", [&] { fuse_elementwise(graph, notes); });
}

}  // namespace deft::graph
