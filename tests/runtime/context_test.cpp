#include "runtime/context.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "runtime/numerics.h"
#include "runtime/profile_hook.h"

namespace deft {
namespace {

uint32_t bits_of_new_thread() {
  uint32_t bits = 0;
  std::thread([&] { bits = context().bits; }).join();
  return bits;
}

struct RestoreDefault {
  ~RestoreDefault() { set_default_grad_mode(true); }
};

TEST(Context, StartsWithGradOnAndNotFresh) { EXPECT_EQ(bits_of_new_thread(), 0u); }

TEST(Context, NewThreadsTakeTheProcessDefault) {
  RestoreDefault restore;
  set_default_grad_mode(false);
  int line = __LINE__ - 1;
  EXPECT_EQ(bits_of_new_thread(), kGradOff);
  EXPECT_TRUE(context().bits & kGradOff);
  EXPECT_EQ(context().grad_site.line(), static_cast<uint32_t>(line));
  set_default_grad_mode(true);
  EXPECT_EQ(bits_of_new_thread(), 0u);
  EXPECT_FALSE(context().bits & kGradOff);
}

TEST(Context, DeterministicModeIsForThisThreadAndNewOnes) {
  EXPECT_FALSE(deterministic());
  set_deterministic(true);
  EXPECT_TRUE(deterministic());
  EXPECT_EQ(bits_of_new_thread(), static_cast<uint32_t>(kDeterministic));
  set_deterministic(false);
  EXPECT_FALSE(deterministic());
  EXPECT_EQ(bits_of_new_thread(), 0u);
}

TEST(Context, ARunningThreadKeepsItsMode) {
  RestoreDefault restore;
  std::atomic<int> step{0};
  uint32_t bits = ~0u;
  std::thread other([&] {
    context();
    step = 1;
    while (step != 2) std::this_thread::yield();
    bits = context().bits;
  });
  while (step != 1) std::this_thread::yield();
  set_default_grad_mode(false);
  step = 2;
  other.join();
  EXPECT_EQ(bits, 0u);
}

TEST(Context, GuardInstallsAndRestoresAlsoOnThrow) {
  ExecContext outer = context();
  ExecContext captured = outer;
  captured.bits |= kInference | kAutocast;
  captured.autocast_dtype = DType::bf16;
  try {
    ContextGuard guard(captured);
    EXPECT_EQ(context().bits, captured.bits);
    EXPECT_EQ(context().autocast_dtype, DType::bf16);
    throw 1;
  } catch (int) {
  }
  EXPECT_EQ(context().bits, outer.bits);
  EXPECT_EQ(context().autocast_dtype, outer.autocast_dtype);
}

TEST(Context, TheOutermostSiteIsTheUsers) {
  Site first = Site::current(), second = Site::current();
  EXPECT_EQ(effective_site(second).line(), second.line());
  {
    SiteScope outer(first);
    SiteScope inner(Site::current());
    EXPECT_EQ(effective_site(Site::current()).line(), first.line());
  }
  EXPECT_FALSE(context().has_outer_site);
}

TEST(Context, BitsOfOneThreadAreInvisibleToOthers) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 64; ++t) {
    threads.emplace_back([t, &wrong] {
      uint32_t mine = t & (kGradOff | kInference | kAnomaly | kDeterministic | kAutocast);
      for (int i = 0; i < 200; ++i) {
        ExecContext c = context();
        c.bits = mine;
        ContextGuard guard(c);
        std::this_thread::yield();
        if (context().bits != mine) ++wrong;
      }
      if (context().bits != 0) ++wrong;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Profile, ZonesReachTheHookOnlyInsideAScope) {
  struct Log : ProfileHook {
    std::vector<std::string> lines;
    void begin(const char* zone, Bucket bucket, const Site&) override {
      lines.push_back(std::string("+") + zone + ", " + name_of(bucket));
    }
    void end() override { lines.push_back("-"); }
  } log;
  set_profile_hook(&log);
  { Zone silent("silent", Bucket::other); }
  {
    ProfileScope scope("step");
    EXPECT_STREQ(context().profile_scope, "step");
    Zone outer("outer", Bucket::data_wait);
    Zone inner("inner", Bucket::kernel);
  }
  { Zone silent("silent", Bucket::other); }
  set_profile_hook(nullptr);
  EXPECT_EQ(log.lines, (std::vector<std::string>{"+outer, data wait", "+inner, other kernels", "-", "-"}));
  EXPECT_EQ(context().profile_scope, nullptr);
}

TEST(Profile, AZoneEndsUnderTheHookItBeganUnderOrUnderNone) {
  struct Log : ProfileHook {
    std::string text;
    void begin(const char* zone, Bucket, const Site&) override { text += std::string("+") + zone; }
    void end() override { text += "-"; }
  } first, second;
  ProfileScope scope("step");
  {
    Zone untold("untold", Bucket::other);
    set_profile_hook(&first);
    Zone outer("outer", Bucket::other);
    set_profile_hook(&second);
    { Zone inner("inner", Bucket::other); }
  }
  set_profile_hook(&first);
  { Zone last("last", Bucket::other); }
  set_profile_hook(nullptr);
  EXPECT_EQ(first.text, "+outer+last-");
  EXPECT_EQ(second.text, "+inner-");
}

}  // namespace
}  // namespace deft
