// An observer is notified of ops, backward passes and memory, and does not change results.
#include "core/observer.h"
#include "core_util.h"
#include "runtime/memory_watch.h"
#include "runtime/profile_hook.h"

namespace deft {
namespace {

struct Zones : ProfileHook {
  std::vector<std::pair<std::string, Bucket>> seen;
  int open = 0, deepest = 0;
  void begin(const char* zone, Bucket bucket, const Site&) override {
    seen.emplace_back(zone, bucket);
    deepest = std::max(deepest, ++open);
  }
  void end() override { --open; }
};
struct Ops : Observer {
  std::vector<std::string> kernels, ops, refusals;
  int begun = 0, ended = 0, nodes = 0;
  void kernel_ran(const KernelCall& call, const Site&) override { kernels.push_back(call.def.info.name); }
  void op_ran(const OpDef& def, std::span<const Tensor* const> in, std::span<const Tensor> out, bool recorded,
              const Site&) override {
    ops.push_back(def.info.name + std::to_string(in.size()) + std::to_string(out.size()) + (recorded ? " node" : ""));
  }
  void backward_begins(std::span<const Tensor> roots, const BackwardOptions&, const Site&) override {
    begun += static_cast<int>(roots.size());
  }
  void node_ran(const Node&) override { ++nodes; }
  void backward_ends() override { ++ended; }
  void refused(const char* op, const std::string&, const Site&) override { refusals.push_back(op); }
};

class Watched : public testing::Test {
 protected:
  template <class F>
  void watch(F&& f) {
    zones = {}, ops = {};
    set_profile_hook(&zones);
    set_observer(&ops);
    {
      ProfileScope scope("test");
      f();
    }
    set_observer(nullptr);
    set_profile_hook(nullptr);
    EXPECT_EQ(zones.open, 0);
  }
  using Seen = std::vector<std::pair<std::string, Bucket>>;
  using Names = std::vector<std::string>;
  Zones zones;
  Ops ops;
};

TEST_F(Watched, AnOpIsItsDispatchAndItsKernel) {
  Tensor a = sample({3, 3}), b = sample({3, 3}, 2), sum, want = a + b;
  watch([&] { sum = a.exp(); });
  EXPECT_EQ(zones.seen, (Seen{{"exp", Bucket::dispatch}, {"exp", Bucket::kernel}, {"record", Bucket::autograd}}));
  EXPECT_EQ(zones.deepest, 2);
  EXPECT_EQ(ops.kernels, Names{"exp"});
  EXPECT_EQ(ops.ops, Names{"exp11"});
  watch([&] { no_grad([&] { a.exp(); }); });
  EXPECT_EQ(zones.seen, (Seen{{"exp", Bucket::dispatch}, {"exp", Bucket::kernel}}));
  a.requires_grad_();
  watch([&] { sum = a.exp(); });
  EXPECT_EQ(ops.ops, Names{"exp11 node"});
  watch([&] { no_grad([&] { a.add_(b); }); });
  EXPECT_EQ(ops.kernels, Names{"add"});
  EXPECT_EQ(ops.ops, Names{"add21"});
  EXPECT_EQ(values(a), values(want));
}

TEST_F(Watched, ABackwardPassTellsOfEachNodeAndOfItsEnd) {
  Tensor x = leaf({3});
  for (bool with_grad : {false, true}) {
    Tensor loss = x.exp().sin().sum();
    watch([&] {
      if (with_grad)
        grad({loss}, {x});
      else
        loss.backward();
    });
    EXPECT_EQ(ops.begun, 1);
    EXPECT_EQ(ops.ended, 1);
    EXPECT_EQ(ops.nodes, 3);
    EXPECT_EQ(zones.seen.front(), (std::pair<std::string, Bucket>{"backward", Bucket::autograd}));
    watch([&] { EXPECT_THROW(loss.backward(), GradError); });
    EXPECT_EQ(ops.ended, 1) << "an exception ends it too";
  }
  watch([&] { EXPECT_THROW(sample({}).backward(), GradError); });
  EXPECT_EQ(ops.refusals, Names{"backward"});
}

struct Memory : MemoryWatch {
  struct Moved {
    const void* owner;
    MemoryCategory to;
    bool operator==(const Moved&) const = default;
  };
  std::vector<MemoryBlock> blocks;
  std::vector<Moved> moves;
  int ends = 0;
  void made(const MemoryBlock& b) noexcept override { blocks.push_back(b); }
  void named(const void*, const char*, const Site&) noexcept override {}
  void moved(const void* owner, MemoryCategory to) noexcept override { moves.push_back({owner, to}); }
  void gone(const void*) noexcept override { ++ends; }
};

TEST(WatchedMemory, IsToldWhenItChangesItsCategory) {
  Memory watch;
  Tensor unseen = zeros({50});
  const auto before = memory_live();
  set_memory_watch(&watch);
  {
    Tensor seen = zeros({100});
    ASSERT_EQ(watch.blocks.size(), 1u);
    EXPECT_EQ(watch.blocks[0].bytes, 400);
    for (Tensor* t : {&seen, &unseen}) t->set_memory_category(MemoryCategory::optimizer);
    EXPECT_EQ(watch.moves, (std::vector<Memory::Moved>{{watch.blocks[0].owner, MemoryCategory::optimizer}}));
    EXPECT_EQ(memory_live()[MemoryCategory::optimizer] - before[MemoryCategory::optimizer], 600);
    EXPECT_EQ(watch.ends, 0);
  }
  EXPECT_EQ(watch.ends, 1);
  set_memory_watch(nullptr);
  EXPECT_EQ(memory_live()[MemoryCategory::optimizer] - before[MemoryCategory::optimizer], 200);
}

}  // namespace
}  // namespace deft
