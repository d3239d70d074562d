// What the rules about devices make of events: no device is needed. tests/cuda/doctor_test.cpp has the real defects.
#include "doctor/device_rules.h"

#include <gtest/gtest.h>

#include "deft/deft.h"
#include "doctor/rule_util.h"

namespace deft::doctor {
namespace {

// A loop whose steps are the batches of a loader.
template <class R>
struct Loop {
  R rule;
  int loader = 0;
  template <class F>
  void steps(int n, F&& body) {
    for (int i = 0; i < n; ++i) {
      rule.batch_loaded(&loader, 32, 0, Site::current());
      body(i);
    }
  }
  std::vector<Finding> found() {
    std::vector<Finding> all;
    rule.report(all);
    return all;
  }
};

const void* id(int64_t n) { return reinterpret_cast<const void*>(n); }

SeenCopy fetch(const void* host, Site site = Site::current()) {
  return {.to_host = true, .host = host, .kind = "f32[64, 32]", .elements = 2048, .bytes = 8192, .site = site};
}
SeenCopy send(const void* host, Site site = Site::current()) {
  return {.to_host = false, .host = host, .kind = "f32[64, 32]", .elements = 2048, .bytes = 8192, .site = site};
}

// --- D011 --------------------------------------------------------------------------------------------------------

TEST(DevicePingPong, ValuesThatComeBackInEachStepAreFoundAtBothLines) {
  Loop<DevicePingPong> loop;
  uint32_t there = 0, back = 0;
  loop.steps(10, [&](int i) {
    there = __LINE__ + 1;
    loop.rule.seen(fetch(id(100 + i)));
    const void* from[] = {id(1), id(100 + i)};
    EXPECT_TRUE(loop.rule.made(from, id(200 + i)));  // an op on the host
    back = __LINE__ + 1;
    loop.rule.seen(send(id(200 + i)));
  });
  const auto found = loop.found();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].id, "D011");
  EXPECT_EQ(found[0].line, back);
  EXPECT_EQ(found[0].file, __FILE__);
  EXPECT_EQ(found[0].count, 10);
  EXPECT_NE(found[0].message.find("device_rules_test.cpp:" + std::to_string(there)), std::string::npos);
  EXPECT_NE(found[0].message.find("made from"), std::string::npos);
  ASSERT_EQ(found[0].figures[0].first, "mb_per_step");
  EXPECT_DOUBLE_EQ(found[0].figures[0].second, 8192 / 1e6);
}

TEST(DevicePingPong, ValuesOfTheStepBeforeCountAndOlderOnesDoNot) {
  auto found_after = [](int64_t delay) {
    Loop<DevicePingPong> loop;
    loop.steps(20, [&](int i) {
      if (i >= delay) {
        SeenCopy small = send(id(100 + i - delay));
        small.elements = 8;  // too few to be alike by size
        small.kind = "f32[8]";
        loop.rule.seen(small);
      }
      loop.rule.seen(fetch(id(100 + i)));
    });
    return loop.found().size();
  };
  EXPECT_EQ(found_after(1), 1u);
  EXPECT_EQ(found_after(2), 0u);
}

TEST(DevicePingPong, TensorsOfTheSameSizesSentBackAreFound) {
  Loop<DevicePingPong> loop;
  uint32_t back = 0;
  loop.steps(10, [&](int i) {
    loop.rule.seen(fetch(id(100 + i)));
    back = __LINE__ + 1;
    loop.rule.seen(send(id(500 + i)));  // through memory of the program's own
  });
  const auto found = loop.found();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].line, back);
  EXPECT_NE(found[0].message.find("same type and sizes"), std::string::npos);
}

TEST(DevicePingPong, BatchesSentAndResultsFetchedAreSilent) {
  Loop<DevicePingPong> loop;
  loop.steps(20, [&](int i) {
    loop.rule.seen(send(id(100 + i)));   // the next batch
    loop.rule.seen(fetch(id(900 + i)));  // an autoencoder's result, of the same sizes
  });
  EXPECT_TRUE(loop.found().empty());
}

TEST(DevicePingPong, LabelsAndPredictionsAreSilent) {
  Loop<DevicePingPong> loop;
  loop.steps(20, [&](int i) {
    SeenCopy predicted = fetch(id(100 + i)), labels = send(id(500 + i));
    predicted.floating = labels.floating = false;
    predicted.kind = labels.kind = "i64[2048]";
    loop.rule.seen(predicted);
    loop.rule.seen(labels);
  });
  EXPECT_TRUE(loop.found().empty());
}

TEST(DevicePingPong, NowAndThenIsSilent) {
  Loop<DevicePingPong> loop;
  loop.steps(60, [&](int i) {
    if (i % 10) return;
    loop.rule.seen(fetch(id(100 + i)));
    loop.rule.seen(send(id(100 + i)));
  });
  EXPECT_TRUE(loop.found().empty());
}

// --- D012 --------------------------------------------------------------------------------------------------------

TEST(HiddenSyncs, AWaitInEachStepIsFoundWithItsNumber) {
  Loop<HiddenSyncs> loop;
  uint32_t line = 0;
  loop.steps(12, [&](int) {
    for (int k = 0; k < 3; ++k) {
      line = __LINE__ + 1;
      loop.rule.host_waited("item", Site::current());
    }
  });
  const auto found = loop.found();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].id, "D012");
  EXPECT_EQ(found[0].line, line);
  EXPECT_EQ(found[0].count, 36);
  EXPECT_EQ(found[0].figures[0].second, 3);
  EXPECT_NE(found[0].message.find("(item), 3.0 times in each of 12 steps"), std::string::npos) << found[0].message;
}

TEST(HiddenSyncs, EveryTenthStepTheEndOfAnEpochAndTheUnavoidableAreSilent) {
  Loop<HiddenSyncs> loop;
  for (int epoch = 0; epoch < 20; ++epoch) {
    loop.steps(10, [&](int i) {
      if (i == 5) loop.rule.host_waited("item", Site::current());
      loop.rule.host_waited("clip_norm_", Site::current());
    });
    loop.rule.host_waited("item", Site::current());
  }
  loop.steps(1, [&](int) {
    for (int k = 0; k < 60; ++k) loop.rule.host_waited("unique", Site::current());  // many at once, in one step
  });
  EXPECT_TRUE(loop.found().empty());
}

TEST(HiddenSyncs, CountSyncTellsTheObserverOfThreadsThatAreWatched) {
  struct Waits : Observer {
    std::vector<std::string> seen;
    void host_waited(const char* what, const Site& site) override {
      seen.push_back(std::string(what) + " " + std::to_string(site.line()));
    }
  } waits;
  set_observer(&waits);
  count_sync("unwatched", Site::current());
  uint32_t line = 0;
  {
    ProfileScope watched("test");
    line = __LINE__ + 1;
    count_sync("item", Site::current());
  }
  set_observer(nullptr);
  {
    ProfileScope watched("test");
    count_sync("nobody", Site::current());
  }
  EXPECT_EQ(waits.seen, std::vector<std::string>{"item " + std::to_string(line)});
}

// --- D013 --------------------------------------------------------------------------------------------------------

SeenCopy not_blocking(bool pinned, Site site = Site::current()) {
  SeenCopy copy = send(id(7), site);
  copy.non_blocking = true;
  copy.pinned = pinned;
  return copy;
}

TEST(UnpinnedCopies, NonBlockingFromPageableMemoryIsFound) {
  Loop<UnpinnedCopies> loop;
  uint32_t line = 0;
  loop.steps(6, [&](int) {
    line = __LINE__ + 1;
    loop.rule.seen(not_blocking(false));
  });
  const auto found = loop.found();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].id, "D013");
  EXPECT_EQ(found[0].line, line);
  EXPECT_EQ(found[0].count, 6);
}

TEST(UnpinnedCopies, PinnedBlockingOnceAndToTheHostAreSilent) {
  Loop<UnpinnedCopies> loop;
  for (int p = 0; p < 50; ++p) loop.rule.seen(not_blocking(false));  // the parameters, before the loop
  loop.steps(10, [&](int) {
    loop.rule.seen(not_blocking(true));
    loop.rule.seen(send(id(1)));
    SeenCopy back = fetch(id(2));
    back.non_blocking = true;
    loop.rule.seen(back);
  });
  EXPECT_TRUE(loop.found().empty());
}

}  // namespace
}  // namespace deft::doctor
