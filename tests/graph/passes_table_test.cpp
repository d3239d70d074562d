// The table of passes: each has a switch, and passes from above run at their stages.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "core/grad_mode.h"
#include "graph/compile.h"
#include "ops/all_ops.h"

namespace deft {
namespace {

Tensor twice(const Tensor& x) { return (x.relu() + x.relu()) * (full({3}, 2.0) + 1); }

TEST(PassesTable, EachCanBeSwitchedOff) {
  const std::string names[] = {
#define DEFT_PASS(name, ...) #name,
#define DEFT_STAGE(name)
#include "graph/passes.def"
#undef DEFT_STAGE
#undef DEFT_PASS
  };
  NoGradGuard no_grad;
  const Tensor x = randn({2, 3});
  for (const std::string& name : names) {
    CompileOptions options;
    options.passes = graph::without({}, name);
    Compiled f = compile(twice, options);
    EXPECT_TRUE(equal(f(x), twice(x))) << name;
    EXPECT_NE(f.explain().find(name + ": switched off"), std::string::npos) << name << "\n" << f.explain();
    EXPECT_EQ(f.explain().find("switched off"), f.explain().rfind("switched off")) << name << "\n" << f.explain();
  }
}

TEST(PassesTable, AddedPassesRunAtTheirStages) {
  std::vector<size_t> instructions;
  auto count = [&](graph::Graph& g, auto&, graph::Notes& notes) {
    instructions.push_back(g.instructions.size());
    notes.done.push_back(fmt::format("count: {} instructions", g.instructions.size()));
  };
  CompileOptions options;
  options.passes.added = {{"late", graph::Stage::fused, count},
                          {"early", graph::Stage::captured, count},
                          {"middle", graph::Stage::folded, count}};
  NoGradGuard no_grad;
  const Tensor x = randn({2, 3});
  Compiled f = compile(twice, options);
  EXPECT_TRUE(equal(f(x), twice(x)));
  ASSERT_EQ(instructions.size(), 3u);
  EXPECT_GT(instructions[0], instructions[1]) << "the second relu and the constant are gone";
  EXPECT_GT(instructions[1], instructions[2]) << "what is elementwise is one pass";
  EXPECT_NE(f.explain().find(fmt::format("count: {} instructions", instructions[2])), std::string::npos);
}

TEST(PassesTable, GraphsAreVerifiedAfterAddedPasses) {
  CompileOptions options;
  options.passes.added = {
      {"breaks", graph::Stage::folded, [](graph::Graph& g, auto&, auto&) { g.instructions.pop_back(); }}};
  NoGradGuard no_grad;
  Compiled f = compile(twice, options);
  try {
    f(randn({2, 3}));
    ADD_FAILURE() << "a graph without its last instruction passed";
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find("breaks"), std::string::npos) << e.what();
  }
}

TEST(PassesTable, UnknownNames) {
  try {
    graph::without({}, "fuse_everything");
    FAIL();
  } catch (const ValueError& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("fuse_everything"), std::string::npos);
    EXPECT_NE(text.find("merge_equal, fold_constants"), std::string::npos) << text;
    EXPECT_NE(text.find("prepack_weights, cost_model"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace deft
