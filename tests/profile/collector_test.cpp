// Sessions under a clock the test sets (ticks are microseconds), so that every share is exact.
#include "profile/collector.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <set>
#include <stdexcept>
#include <thread>

#include "deft/deft.h"
#include "profile/session_util.h"

namespace deft::profile {
namespace {

// --- Known shares ---

TEST(Collector, TimeCountsForTheInnermostZone) {
  ProfileSession session(kOnFakeClock);
  pass(5);
  {
    Zone op("matmul", Bucket::dispatch);
    pass(10);
    {
      Zone memory("allocate", Bucket::allocation);
      pass(20);
    }
    {
      Zone kernel("matmul", Bucket::linear_algebra);
      pass(300);
    }
    {
      Zone record("record", Bucket::autograd);
      pass(40);
    }
    pass(1);
  }
  pass(7);
  const Profile p = session.stop();
  EXPECT_NEAR(p.wall_seconds, 383e-6, 1e-12);
  EXPECT_NEAR(micros(p, Bucket::linear_algebra), 300, 1e-6);
  EXPECT_NEAR(micros(p, Bucket::allocation), 20, 1e-6);
  EXPECT_NEAR(micros(p, Bucket::autograd), 40, 1e-6);
  EXPECT_NEAR(micros(p, Bucket::dispatch), 11, 1e-6);
  EXPECT_NEAR(micros(p, Bucket::other), 12, 1e-6);
  EXPECT_EQ(micros(p, Bucket::optimizer), 0);
  add_up(p);
  EXPECT_EQ(p.zones, 4);
  EXPECT_EQ(p.dropped, 0);
  EXPECT_EQ(p.device_busy_seconds, -1);
  ASSERT_EQ(p.ops.size(), 1u);
  EXPECT_EQ(p.ops[0].bucket, Bucket::linear_algebra);
  EXPECT_EQ(p.ops[0].calls, 1);
  EXPECT_NEAR(p.ops[0].kernel_seconds * 1e6, 300, 1e-6);
  EXPECT_NEAR(p.ops[0].overhead_seconds * 1e6, 71, 1e-6);
}

TEST(Collector, EverythingInsideAStepOrAWaitBelongsToIt) {
  ProfileSession session(kOnFakeClock);
  {
    Zone step("AdamW", Bucket::optimizer);
    pass(10);
    Zone op("mul", Bucket::dispatch);
    pass(3);
    Zone kernel("mul", Bucket::kernel);
    pass(100);
  }
  {
    Zone wait("next batch", Bucket::data_wait);
    pass(50);
    Zone memory("allocate from system", Bucket::allocation);
    pass(8);
  }
  const Profile p = session.stop();
  EXPECT_NEAR(micros(p, Bucket::optimizer), 113, 1e-6);
  EXPECT_NEAR(micros(p, Bucket::data_wait), 58, 1e-6);
  EXPECT_EQ(p[Bucket::kernel] + p[Bucket::dispatch] + p[Bucket::allocation], 0);
  add_up(p);
  EXPECT_EQ(row_of(p, "mul")->bucket, Bucket::optimizer);
  EXPECT_NEAR(row_of(p, "AdamW")->kernel_seconds * 1e6, 10, 1e-6);
  EXPECT_NEAR(row_of(p, "next batch")->kernel_seconds * 1e6, 50, 1e-6);
}

TEST(Collector, ARandomProgramHasTheSharesItWasGiven) {
  struct Program {
    uint64_t state = 12345;
    std::array<double, kBucketCount> expected{};
    uint64_t draw(uint64_t below) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return (state >> 33) % below;
    }
    void spend(Bucket b) {
      const uint64_t t = draw(97);
      pass(t);
      expected[static_cast<size_t>(b)] += static_cast<double>(t);
    }
    void run(int depth, Bucket around, bool sticky) {
      for (int i = 0; i < 3; ++i) {
        spend(around);
        if (depth == 0) continue;
        const Bucket b = static_cast<Bucket>(draw(kBucketCount));
        const Bucket counts = sticky ? around : b;
        Zone zone(name_of(b), b);
        run(depth - 1, counts, sticky || b == Bucket::data_wait || b == Bucket::optimizer);
      }
      spend(around);
    }
  } program;
  ProfileSession session(kOnFakeClock);
  program.run(7, Bucket::other, false);
  const Profile p = session.stop();
  for (int b = 0; b < kBucketCount; ++b)
    EXPECT_NEAR(micros(p, static_cast<Bucket>(b)), program.expected[static_cast<size_t>(b)], 1e-3) << b;
  add_up(p);
  double flame = 0;
  for (const FlameRow& row : p.flame) flame += row.self_seconds;
  EXPECT_NEAR(flame, p.wall_seconds, 1e-9);
}

// Guesses of what comes next are wrong half the time here.
TEST(Collector, EveryStackHasTheTimeItWasGiven) {
  struct Program {
    uint64_t state = 99;
    std::map<std::string, std::pair<uint64_t, int64_t>> expected;  // ticks and calls
    double in_kernels = 0;
    uint64_t draw(uint64_t below) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return (state >> 33) % below;
    }
    void run(int depth, const std::string& stack) {
      constexpr const char* names[] = {"add", "mul", "exp"};
      constexpr Bucket buckets[] = {Bucket::dispatch, Bucket::kernel};
      const uint64_t children = depth == 0 ? 0 : 1 + draw(3);
      for (uint64_t i = 0; i < children; ++i) {
        const char* name = names[draw(3)];
        const std::string inner = stack.empty() ? name : stack + ";" + name;
        const Bucket bucket = buckets[draw(2)];
        Zone zone(name, bucket);
        const uint64_t t = 1 + draw(97);
        pass(t);
        in_kernels += bucket == Bucket::kernel ? static_cast<double>(t) : 0;
        expected[inner].first += t;
        ++expected[inner].second;
        run(depth - 1, inner);
      }
    }
  } program;
  ProfileSession session(kOnFakeClock);
  for (int i = 0; i < 50; ++i) program.run(5, "");
  const Profile p = session.stop();
  EXPECT_NEAR(micros(p, Bucket::kernel), program.in_kernels, 1e-3);
  ASSERT_EQ(p.flame.size(), program.expected.size());
  for (const FlameRow& row : p.flame) {
    const auto [ticks, calls] = program.expected[row.stack];
    EXPECT_EQ(row.calls, calls) << row.stack;
    EXPECT_NEAR(row.self_seconds * 1e6, static_cast<double>(ticks), 1e-3) << row.stack;
  }
}

TEST(Collector, FurtherStacksShareTheirTimeButNotTheirOps) {
  const size_t many = (size_t{1} << 16) + 1000;  // more than the tree has room for
  std::vector<std::string> names;
  for (size_t i = 0; i < many; ++i) names.push_back("op " + std::to_string(i));
  const auto call = [](const char* outer, const char* first) {
    Zone around(outer, Bucket::other);
    { Zone zone(first, Bucket::other); }
    Zone last("last", Bucket::other);
    pass(1);
  };
  ProfileSession session({.trace = false, .clock = &kFake});
  for (const char* outer : {"one", "two"}) call(outer, "known");
  for (const std::string& name : names) {
    Zone op(name.c_str(), Bucket::dispatch);
    pass(1);
    Zone kernel(name.c_str(), Bucket::linear_algebra);
    pass(2);
  }
  for (const char* outer : {"one", "two", "one"}) call(outer, "not known");
  const Profile p = session.stop();
  EXPECT_EQ(p.zones, static_cast<int64_t>(2 * many + 5 * 3));
  EXPECT_EQ(stack_of(p, "one;last")->calls, 3);
  EXPECT_EQ(stack_of(p, "two;last")->calls, 2);
  EXPECT_NEAR(micros(p, Bucket::dispatch), static_cast<double>(many), 1e-3);
  EXPECT_NEAR(micros(p, Bucket::linear_algebra), 2.0 * static_cast<double>(many), 1e-3);
  ASSERT_EQ(p.ops.size(), many);
  for (const OpRow& row : p.ops) {
    ASSERT_EQ(row.calls, 1) << row.name;
    ASSERT_EQ(row.bucket, Bucket::linear_algebra) << row.name;
    ASSERT_NEAR(row.kernel_seconds * 1e6, 2, 1e-9) << row.name;
    ASSERT_NEAR(row.overhead_seconds * 1e6, 1, 1e-9) << row.name;
  }
}

TEST(Collector, ZonesTooDeepCountForThoseAroundThem) {
  struct Nest {
    static void open(int levels) {
      if (levels == 0) return;
      Zone zone("level", levels % 2 ? Bucket::kernel : Bucket::dispatch);
      pass(1);
      open(levels - 1);
    }
  };
  ProfileSession session(kOnFakeClock);
  Nest::open(kDeepestZone + 50);
  Nest::open(1);
  const Profile p = session.stop();
  EXPECT_EQ(p.zones, kDeepestZone + 1);
  EXPECT_NEAR(p.wall_seconds * 1e6, kDeepestZone + 51, 1e-6);
  add_up(p);
}

TEST(Collector, FlameRowsNameTheStack) {
  ProfileSession session(kOnFakeClock);
  for (int i = 0; i < 3; ++i) {
    Zone outer("train", Bucket::other);
    pass(2);
    Zone inner("backward", Bucket::autograd);
    pass(4);
  }
  pass(1);
  const Profile p = session.stop();
  ASSERT_EQ(p.flame.size(), 3u);
  EXPECT_EQ(p.flame[0].stack, "train;backward");
  EXPECT_EQ(p.flame[0].calls, 3);
  EXPECT_NEAR(p.flame[0].self_seconds * 1e6, 12, 1e-6);
  EXPECT_EQ(p.flame[1].stack, "train");
  EXPECT_EQ(p.flame[2].stack, "(outside all zones)");
  EXPECT_EQ(flame_text(p), "train;backward 12\ntrain 6\n(outside all zones) 1\n");
}

TEST(Collector, ForwardAndBackwardAndLinesAreRowsOfTheirOwn) {
  ProfileSession session(kOnFakeClock);
  const auto call = [](const Site& site) {
    Zone op("add", Bucket::dispatch, site);
    Zone kernel("add", Bucket::kernel, site);
    pass(10);
  };
  const Site here = Site::current();
  const Site there = Site::current();
  call(here);
  call(here);
  call(there);
  {
    Zone backward("backward", Bucket::autograd);
    call(here);
  }
  const Profile p = session.stop();
  ASSERT_EQ(p.ops.size(), 3u);
  EXPECT_EQ(p.ops[0].calls, 2);
  EXPECT_EQ(p.ops[0].site, to_string(here));
  EXPECT_TRUE(row_of(p, "add", true));
  EXPECT_EQ(row_of(p, "add", true)->calls, 1);
}

// --- Sessions ---

TEST(Collector, AnExceptionEndsItsZones) {
  ProfileSession session(kOnFakeClock);
  try {
    Zone op("matmul", Bucket::dispatch);
    Zone kernel("matmul", Bucket::linear_algebra);
    pass(10);
    throw std::runtime_error("no");
  } catch (const std::runtime_error&) {
    pass(5);
  }
  const Profile p = session.stop();
  EXPECT_NEAR(micros(p, Bucket::linear_algebra), 10, 1e-6);
  EXPECT_NEAR(micros(p, Bucket::other), 5, 1e-6);
}

TEST(Collector, OneSessionAtATime) {
  {
    ProfileSession session(kOnFakeClock);
    EXPECT_THROW(ProfileSession another, ValueError);
    pass(10);
    EXPECT_NEAR(session.stop().wall_seconds, 10e-6, 1e-12);
    EXPECT_THROW(session.stop(), ValueError);
    EXPECT_FALSE(context().bits & kProfile);
  }
  {
    ProfileSession left_alone(kOnFakeClock);
    Zone zone("add", Bucket::dispatch);
  }
  EXPECT_FALSE(context().bits & kProfile);
  ProfileSession session(kOnFakeClock);
  pass(3);
  const Profile p = session.stop();
  EXPECT_EQ(p.zones, 0);
  EXPECT_TRUE(p.ops.empty());
  EXPECT_NEAR(micros(p, Bucket::other), 3, 1e-6);
}

TEST(Collector, ZonesThatCrossTheEdgesOfASession) {
  auto first = std::make_unique<ProfileSession>(kOnFakeClock);
  auto open = std::make_unique<Zone>("outer", Bucket::kernel);
  pass(10);
  const Profile p = first->stop();
  EXPECT_NEAR(micros(p, Bucket::kernel), 10, 1e-6);
  EXPECT_EQ(row_of(p, "outer")->calls, 1);

  ProfileSession second(kOnFakeClock);
  {
    Zone inner("inner", Bucket::dispatch);
    pass(4);
  }
  open.reset();  // began under the first
  pass(2);
  const Profile q = second.stop();
  EXPECT_NEAR(micros(q, Bucket::dispatch), 4, 1e-6);
  EXPECT_NEAR(micros(q, Bucket::other), 2, 1e-6);
  EXPECT_FALSE(row_of(q, "outer"));
}

TEST(Collector, StopOnAnotherThreadIsRefused) {
  ProfileSession session(kOnFakeClock);
  std::thread([&] { EXPECT_THROW(session.stop(), ValueError); }).join();
  EXPECT_TRUE(session.running());
}

TEST(Collector, NothingIsSeenWithoutASession) {
  {
    ProfileScope scope("no session");
    Zone zone("add", Bucket::dispatch);
    ones({2}) + ones({2});
  }
  ProfileSession session(kOnFakeClock);
  context().bits &= ~kProfile;
  ones({2}) + ones({2});
  context().bits |= kProfile;
  EXPECT_EQ(session.stop().zones, 0);
}

TEST(Collector, OtherThreadsHaveSumsOfTheirOwn) {
  ProfileSession session(kOnFakeClock);
  pass(10);
  std::thread worker([context_of_caller = context()] {
    ContextGuard guard(context_of_caller);
    Zone zone("decode", Bucket::kernel);
    pass(25);
  });
  worker.join();
  std::thread stranger([] { Zone zone("unseen", Bucket::kernel); });
  stranger.join();
  const Profile p = session.stop();
  EXPECT_NEAR(p.wall_seconds, 35e-6, 1e-12);
  EXPECT_NEAR(micros(p, Bucket::other), 35, 1e-6);  // the profiled thread waited
  EXPECT_TRUE(p.ops.empty());
  ASSERT_EQ(p.other_threads.size(), 1u);
  EXPECT_EQ(p.other_threads[0].zones, 1);
  EXPECT_NEAR(p.other_threads[0].seconds[static_cast<size_t>(Bucket::kernel)] * 1e6, 25, 1e-6);
  ASSERT_EQ(session.trace().threads.size(), 2u);
  ASSERT_EQ(session.trace().threads[1].events.size(), 1u);
  EXPECT_STREQ(session.trace().threads[1].events[0].name, "decode");
}

TEST(Collector, ThreadsRunOnWhileSessionsComeAndGo) {
  std::atomic<bool> done{false};
  std::atomic<int> rounds{0};
  set_default_profiling(true);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      while (!done) {
        Zone outer("outer", Bucket::dispatch);
        Zone inner("inner", Bucket::kernel);
        ++rounds;
      }
    });
  for (int i = 0; i < 20; ++i) {
    ProfileSession session;
    const int seen = rounds;
    while (rounds < seen + 20) std::this_thread::yield();
    const Profile p = session.stop();
    for (const ThreadRow& row : p.other_threads) EXPECT_GT(row.zones, 0);
    add_up(p);
  }
  done = true;
  for (std::thread& t : threads) t.join();
  set_default_profiling(false);
}

// --- The ring ---

TEST(Collector, TheRingKeepsTheLatestEvents) {
  constexpr size_t kEvents = 100;
  ProfileSession session({.ring_bytes = 2 * kEvents * sizeof(TraceEvent), .clock = &kFake});
  for (int i = 0; i < 250; ++i) {
    Zone zone("add", Bucket::kernel);
    pass(1);
  }
  const Profile p = session.stop();
  EXPECT_EQ(p.zones, 250);
  EXPECT_EQ(p.dropped, 150);
  EXPECT_NEAR(micros(p, Bucket::kernel), 250, 1e-6);  // sums lose nothing
  const EventRing& events = session.trace().threads[0].events;
  ASSERT_EQ(events.size(), kEvents);
  for (size_t i = 0; i < kEvents; ++i) EXPECT_EQ(events[i].begin - session.trace().start, 150 + i);
}

TEST(Collector, WithoutATraceNothingIsKeptOrDropped) {
  ProfileSession session({.trace = false, .clock = &kFake});
  {
    Zone zone("add", Bucket::kernel);
    pass(1);
  }
  const Profile p = session.stop();
  EXPECT_EQ(p.dropped, 0);
  EXPECT_EQ(session.trace().threads[0].events.size(), 0u);
  EXPECT_NEAR(micros(p, Bucket::kernel), 1, 1e-6);
}

// --- Observers ---

struct Counter : Observer {
  int kernels = 0, ops = 0, modules = 0;
  void kernel_ran(const KernelCall&, const Site&) override {
    ++kernels;
    pass(1000);  // slow, and it runs ops itself
    ones({3}) + ones({3});
  }
  void op_ran(const OpDef&, std::span<const Tensor* const>, std::span<const Tensor>, bool, const Site&) override {
    ++ops;
  }
  void module_begins(const ModuleCall&) override { ++modules; }
};

TEST(Collector, WhoLooksOnIsToldAndIsNotPartOfTheProgram) {
  Counter counter;
  ProfileSession session({.next = &counter, .clock = &kFake});
  const Tensor a = ones({2});
  nn::Linear layer(2, 2);
  const int before = counter.kernels;
  a + a;
  EXPECT_EQ(counter.kernels, before + 1);
  layer(a);
  EXPECT_EQ(counter.modules, 1);
  const int kernels = counter.kernels;
  const Profile p = session.stop();
  EXPECT_GE(counter.ops, 2);
  a + a;
  EXPECT_EQ(counter.kernels, kernels);
  EXPECT_NEAR(micros(p, Bucket::other), 1000.0 * kernels, 1e-3);
  EXPECT_NEAR(stack_of(p, "(observing)")->self_seconds, 1e-3 * kernels, 1e-9);
  EXPECT_GE(p.overhead_seconds, 1e-3 * kernels);
  EXPECT_EQ(row_of(p, "add")->overhead_seconds, 0);
  add_up(p);
}

TEST(Collector, AnObserverThatWasThereIsToldAndStays) {
  Counter counter;
  set_observer(&counter);
  {
    ProfileSession session(kOnFakeClock);
    ones({2}) + ones({2});
    session.stop();
  }
  EXPECT_GT(counter.kernels, 0);
  EXPECT_EQ(deft::detail::active_observer(), &counter);
  set_observer(nullptr);
}

struct Log : Observer {
  std::set<std::string> seen;
  void kernel_ran(const KernelCall&, const Site&) override { seen.insert("kernel_ran"); }
  void op_ran(const OpDef&, std::span<const Tensor* const>, std::span<const Tensor>, bool, const Site&) override {
    seen.insert("op_ran");
  }
  void backward_begins(std::span<const Tensor>, const BackwardOptions&, const Site&) override {
    seen.insert("backward_begins");
  }
  void node_ran(const Node&) override { seen.insert("node_ran"); }
  void backward_ends() override { seen.insert("backward_ends"); }
  void requires_grad_set(const Tensor&, bool, const Site&) override { seen.insert("requires_grad_set"); }
  void refused(const char*, const std::string&, const Site&) override { seen.insert("refused"); }
  void host_read(const Tensor&, double, const Site&) override { seen.insert("host_read"); }
  void copied(const DeviceCopy&) override { seen.insert("copied"); }
  void module_begins(const ModuleCall&) override { seen.insert("module_begins"); }
  void module_ends(const ModuleCall&) override { seen.insert("module_ends"); }
  void optimizer_begins(const OptimizerStep&) override { seen.insert("optimizer_begins"); }
  void optimizer_ends(const OptimizerStep&) override { seen.insert("optimizer_ends"); }
  void grads_cleared(const void*, bool, const Site&) override { seen.insert("grads_cleared"); }
  void batch_loaded(const void*, int64_t, double, const Site&) override { seen.insert("batch_loaded"); }
  void padded(std::span<const int64_t>, int64_t, const Site&) override { seen.insert("padded"); }
  void plan_missed(const void*, const std::string&, const Site&) override { seen.insert("plan_missed"); }
  void plan_ran(const void*, const Site&) override { seen.insert("plan_ran"); }
  void host_waited(const char*, const Site&) override { seen.insert("host_waited"); }
  void function_ran(const Node&) override { seen.insert("function_ran"); }
};

TEST(Collector, EveryEventIsPassedOn) {
  Log log;
  ProfileSession session({.next = &log});
  nn::Linear layer(2, 2);
  optim::SGD optimizer(layer.parameters(), {.lr = 0.1});
  const Tensor loss = sum(layer(ones({1, 2})));
  loss.backward();
  loss.item<float>();
  optimizer.step();
  optimizer.zero_grad();
  ones({1}).requires_grad_();
  EXPECT_THROW(ones({1}).backward(), GradError);
  Observer& o = *deft::detail::active_observer();
  o.copied({loss, loss, false, false, Site()});
  o.batch_loaded(nullptr, 1, 0, Site());
  o.padded({}, 1, Site());
  o.plan_missed(nullptr, "", Site());
  o.plan_ran(nullptr, Site());
  o.host_waited("item", Site());
  o.function_ran(*layer.forward(ones({1, 2})).impl()->grad_fn);
  session.stop();
  EXPECT_EQ(log.seen.size(), 20u) << testing::PrintToString(log.seen);
}

struct Loud : Observer {
  void kernel_ran(const KernelCall&, const Site&) override { throw std::runtime_error("enough"); }
};

TEST(Collector, AnObserverMayThrow) {
  Loud loud;
  ProfileSession session({.next = &loud, .clock = &kFake});
  EXPECT_THROW(ones({2}) + ones({2}), std::runtime_error);
  EXPECT_TRUE(context().bits & kProfile);
  session.stop();
}

}  // namespace
}  // namespace deft::profile
