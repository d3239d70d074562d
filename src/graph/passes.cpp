#include "graph/passes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "base/check.h"
#include "graph/edit.h"

namespace deft::graph {

PassOptions without(PassOptions options, const std::string& names) {
  const std::pair<const char*, bool PassOptions::*> passes[] = {{"fold_constants", &PassOptions::fold_constants},
                                                                {"merge_equal", &PassOptions::merge_equal},
                                                                {"remove_unused", &PassOptions::remove_unused},
                                                                {"fold_batch_norm", &PassOptions::fold_batch_norm},
                                                                {"fuse_epilogues", &PassOptions::fuse_epilogues},
                                                                {"fuse_norms", &PassOptions::fuse_norms},
                                                                {"fuse_casts", &PassOptions::fuse_casts},
                                                                {"fuse_elementwise", &PassOptions::fuse_elementwise},
                                                                {"assign_precision", &PassOptions::assign_precision},
                                                                {"assign_layout", &PassOptions::assign_layout},
                                                                {"fuse_attention", &PassOptions::fuse_attention},
                                                                {"narrow_early", &PassOptions::narrow_early},
                                                                {"merge_siblings", &PassOptions::merge_siblings},
                                                                {"fuse_rows", &PassOptions::fuse_rows},
                                                                {"keep_casts", &PassOptions::keep_casts},
                                                                {"recompute", &PassOptions::recompute},
                                                                {"pack_rows", &PassOptions::pack_rows},
                                                                {"prepack_weights", &PassOptions::prepack_weights},
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
  pass(options.merge_equal, "merge_equal", [&] { merge_equal(graph, notes); });
  pass(options.fold_constants, "fold_constants", [&] { fold_constants(graph, dependencies, notes); });
  pass(options.remove_unused, "remove_unused", [&] { remove_unused(graph, notes); });
  pass(options.fold_batch_norm, "fold_batch_norm", [&] { fold_batch_norm(graph, dependencies, notes); });
  pass(options.assign_precision, "assign_precision", [&] { assign_precision(graph, notes); });
  pass(options.assign_layout, "assign_layout", [&] { assign_layout(graph, notes, options.cost_model); });
  pass(options.fuse_attention, "fuse_attention",
       [&] { fuse_attention(graph, dependencies, notes, options.cost_model); });
  pass(options.narrow_early, "narrow_early", [&] { narrow_early(graph, notes); });
  pass(options.merge_siblings, "merge_siblings",
       [&] { merge_siblings(graph, dependencies, notes, options.cost_model); });
  pass(options.fuse_epilogues, "fuse_epilogues", [&] { fuse_epilogues(graph, notes, options.cost_model); });
  pass(options.fuse_norms, "fuse_norms", [&] { fuse_norms(graph, notes, options.cost_model); });
  pass(options.fuse_casts, "fuse_casts", [&] { fuse_casts(graph, notes, options.cost_model); });
  if (options.fuse_epilogues) pass(true, "fuse_sums", [&] { fuse_sums(graph, notes, options.cost_model); });
  pass(options.fuse_elementwise, "fuse_elementwise", [&] { fuse_elementwise(graph, notes); });
  pass(options.fuse_rows, "fuse_rows", [&] { fuse_rows(graph, notes, options.cost_model); });
  pass(options.keep_casts, "keep_casts", [&] { keep_casts(graph, notes, options.cost_model); });
  pass(options.recompute, "recompute", [&] { recompute(graph, notes, options.cost_model); });
  drop_unused_constants(graph);
  pass(options.pack_rows, "pack_rows", [&] { pack_rows(graph, notes); });
  pass(options.prepack_weights, "prepack_weights", [&] { prepack_weights(graph, notes); });
}

}  // namespace deft::graph
