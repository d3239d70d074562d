// What is kept of tensors' bytes: when, for how long, and how much of it.
#include "core/derived_cache.h"

#include <cstdlib>
#include <thread>

#include "core/dlpack.h"
#include "core/rounded_copy.h"
#include "core_util.h"
#include "runtime/memory.h"

namespace deft {
namespace {

constexpr int64_t kBytes = 1000;  // of a derived object

class DerivedCache : public testing::Test {
 protected:
  DerivedCache() : outer_(derived_cache_limit()) {
    clear_derived_cache();
    set_derived_cache_limit(1 << 20);
    before_ = derived_cache_stats();
  }
  ~DerivedCache() override {
    clear_derived_cache();
    set_derived_cache_limit(outer_);
  }

  // Null, or the sum of the tensor when the object was made.
  std::shared_ptr<const double> look(const Tensor& t, int64_t detail = 0, int64_t bytes = kBytes) {
    return std::static_pointer_cast<const double>(find_derived(t, {DerivedKind::gemm_b, {detail}}, [&] {
      ++made;
      return Derived{std::make_shared<const double>(t.sum().item()), bytes};
    }));
  }
  // Looks often enough for it to be kept.
  std::shared_ptr<const double> keep(const Tensor& t, int64_t detail = 0, int64_t bytes = kBytes) {
    EXPECT_EQ(look(t, detail, bytes), nullptr) << "kept at first sight";
    return look(t, detail, bytes);
  }
  DerivedCacheStats since() const {
    DerivedCacheStats s = derived_cache_stats();
    s.hits -= before_.hits, s.misses -= before_.misses, s.kept -= before_.kept;
    s.dropped -= before_.dropped, s.evicted -= before_.evicted;
    return s;
  }
  // Whether the next look takes it for new.
  void expect_forgotten(const Tensor& t) {
    EXPECT_EQ(look(t), nullptr);
    std::shared_ptr<const double> again = look(t);
    ASSERT_TRUE(again);
    EXPECT_EQ(*again, t.sum().item()) << "made of bytes from before the write";
  }

  std::atomic<int> made = 0;

 private:
  size_t outer_;
  DerivedCacheStats before_;
};

Tensor weight(double value = 1) { return full({32, 32}, value, {DType::f64}); }

TEST_F(DerivedCache, SecondSightKeeps) {
  Tensor w = weight();
  int64_t live = memory_live()[MemoryCategory::workspace];
  EXPECT_EQ(look(w), nullptr);
  EXPECT_EQ(made, 0);
  std::shared_ptr<const double> first = look(w);
  ASSERT_TRUE(first);
  EXPECT_EQ(look(w), first);
  EXPECT_EQ(made, 1);
  EXPECT_EQ(since().hits, 1);
  EXPECT_EQ(since().misses, 2);
  EXPECT_EQ(since().objects, 1);
  EXPECT_EQ(since().bytes, kBytes);
  EXPECT_EQ(memory_live()[MemoryCategory::workspace], live + kBytes);
  clear_derived_cache();
  EXPECT_EQ(since().dropped, 1);
  EXPECT_EQ(memory_live()[MemoryCategory::workspace], live);
}

TEST_F(DerivedCache, FormsAndViewsAreToldApart) {
  Tensor w = weight();
  auto a = keep(w, 1), b = keep(w, 2), c = keep(w.narrow(0, 0, 16)), d = keep(w.narrow(0, 16, 16)), e = keep(w.t());
  EXPECT_EQ(since().objects, 5);
  EXPECT_EQ(look(w, 1), a);
  EXPECT_EQ(look(w, 2), b);
  EXPECT_EQ(look(w.narrow(0, 0, 16)), c);
  EXPECT_EQ(look(w.narrow(0, 16, 16)), d);
  EXPECT_EQ(look(w.t()), e);  // another header, the same bytes
}

TEST_F(DerivedCache, EveryWriteCounts) {
  Tensor w = weight(), alias = w.detach(), view = w.select(0, 3);
  const std::function<void()> writes[] = {
      [&] { w.add_(1); },
      [&] { alias.mul_(2); },
      [&] { view.fill_(7); },
      [&] { w.copy_(weight(5)); },
      [&] { w.t().narrow(1, 4, 2).zero_(); },
      [&] {
        NoGradGuard guard;
        w.sub_(weight(0.5));
      },
      [&] {
        InferenceModeGuard guard;
        w.add_(3);
      },
  };
  for (const auto& write : writes) {
    ASSERT_TRUE(keep(w));
    write();
    expect_forgotten(w);
    w.add_(1);
  }
}

TEST_F(DerivedCache, PointersThatMayBeWrittenThrough) {
  Tensor w = weight();
  ASSERT_TRUE(keep(w));
  w.data<double>()[5] = 100;
  expect_forgotten(w);
  DeftDLManagedTensor* exported = to_dlpack(w);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(look(w), nullptr);
  exported->deleter(exported);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(look(w), nullptr) << "who knows who still has the pointer";
  std::vector<double> bytes(1024, 1);
  Tensor blob = from_blob(bytes.data(), {32, 32}, {DType::f64});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(look(blob), nullptr);
}

TEST_F(DerivedCache, MemoryOfOthersWhoCountTheirWrites) {
  std::vector<double> bytes(1024, 1);
  int freed = 0;
  Tensor blob = from_blob(bytes.data(), {32, 32}, {DType::f64}, {}, [&freed] { ++freed; });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(look(blob), nullptr);
  trust_versions(*blob.impl()->storage);
  std::shared_ptr<const double> first = keep(blob);
  ASSERT_TRUE(first);
  EXPECT_EQ(*first, 1024);
  bytes[5] = 100;
  blob.impl()->storage->bump_version("somebody", {});
  expect_forgotten(blob);
  blob = Tensor();
  EXPECT_EQ(freed, 1) << "the memory is still theirs";
  EXPECT_EQ(since().objects, 0);
}

TEST_F(DerivedCache, EndsWithItsStorage) {
  int64_t live = memory_live()[MemoryCategory::workspace];
  const void* address = nullptr;
  [[maybe_unused]] int reused = 0;
  for (int i = 0; i < 20; ++i) {
    Tensor w = weight(i);
    reused += w.impl()->storage == address;
    address = w.impl()->storage;
    EXPECT_EQ(look(w), nullptr) << "found what was made of the tensor that lay here before";
    Tensor view = w.narrow(0, 0, 4);
    std::shared_ptr<const double> mine = look(w);
    w = Tensor();
    EXPECT_EQ(since().objects, 1) << "a view keeps the storage";
    view = Tensor();
    EXPECT_EQ(since().objects, 0);
    EXPECT_EQ(*mine, 1024 * i) << "whoever uses the object keeps it";
  }
#ifndef DEFT_ASAN  // which uses no memory again
  EXPECT_GT(reused, 0) << "the test means nothing";
#endif
  EXPECT_EQ(since().dropped, 20);
  EXPECT_EQ(memory_live()[MemoryCategory::workspace], live);
}

TEST_F(DerivedCache, NotesOfShortLivedTensorsAreBounded) {
  std::vector<Tensor> many;
  for (int i = 0; i < 1030; ++i) {
    many.push_back(weight());
    EXPECT_EQ(look(many.back()), nullptr);
  }
  EXPECT_TRUE(look(many.back()));
  EXPECT_EQ(look(many.front()), nullptr) << "the oldest notes are lost";
}

TEST_F(DerivedCache, OnlyWithVersions) {
  Tensor w;
  {
    InferenceModeGuard guard;
    w = weight();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(look(w), nullptr);
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(look(w), nullptr);
  Tensor usual = weight();
  InferenceModeGuard guard;
  EXPECT_TRUE(keep(usual)) << "made outside it has a version";
}

TEST_F(DerivedCache, NotInTraining) {
  Tensor w = weight();
  w.requires_grad_();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(look(w), nullptr);
  Tensor x = weight(2);
  x.requires_grad_();
  Tensor y = x * w;
  y.register_hook([&](const Tensor& g) {
    for (int i = 0; i < 3; ++i) EXPECT_EQ(look(w), nullptr);
    return g;
  });
  y.sum().backward();
  NoGradGuard guard;
  EXPECT_TRUE(keep(w));
}

TEST_F(DerivedCache, KeptInStepByItsMaker) {
  Tensor w = weight();
  w.requires_grad_();  // weights in training have such forms too
  const DerivedForm form{DerivedKind::rounded_copy, {}};
  EXPECT_EQ(kept_derived(w, form), nullptr);
  const Derived one{std::make_shared<const double>(1), kBytes}, two{std::make_shared<const double>(2), kBytes};
  keep_derived(w, form, one);
  EXPECT_EQ(kept_derived(w, form), one.object);
  EXPECT_EQ(kept_derived(w, {DerivedKind::rounded_copy, {1}}), nullptr);
  {
    NoGradGuard off;
    w.add_(1);
  }
  EXPECT_EQ(kept_derived(w, form), nullptr) << "somebody wrote the tensor";
  keep_derived(w, form, one);
  EXPECT_EQ(kept_derived(w, form), one.object);
  keep_derived(w, form, two);
  EXPECT_EQ(kept_derived(w, form), two.object);
  EXPECT_EQ(since().objects, 1);
  EXPECT_EQ(since().bytes, kBytes);
  w.data<double>();
  EXPECT_EQ(kept_derived(w, form), nullptr) << "may be written through the pointer";
  keep_derived(w, form, one);
  set_derived_cache_limit(0);
  EXPECT_EQ(kept_derived(w, form), nullptr);
  keep_derived(w, form, one);
  EXPECT_EQ(kept_derived(w, form), nullptr);
}

TEST_F(DerivedCache, LimitEvictsWhatWasUsedLongestAgo) {
  set_derived_cache_limit(2 * kBytes);
  Tensor a = weight(1), b = weight(2), c = weight(3);
  ASSERT_TRUE(keep(a) && keep(b));
  ASSERT_TRUE(look(a));
  ASSERT_TRUE(keep(c));
  EXPECT_EQ(since().evicted, 1);
  EXPECT_EQ(since().bytes, 2 * kBytes);
  int before = made;
  EXPECT_TRUE(look(a));
  EXPECT_TRUE(look(c));
  EXPECT_EQ(made, before) << "b should have gone";
  EXPECT_EQ(look(b), nullptr);
  set_derived_cache_limit(kBytes);
  EXPECT_EQ(since().objects, 1);
  EXPECT_TRUE(look(c));
  EXPECT_EQ(made, before) << "c was used last";
}

TEST_F(DerivedCache, MoreThanTheLimitKeepsAPart) {
  set_derived_cache_limit(3 * kBytes);
  std::vector<Tensor> layers;
  for (int i = 0; i < 5; ++i) layers.push_back(weight(i));
  for (int round = 0; round < 4; ++round) {
    for (const Tensor& w : layers) look(w);
  }
  int64_t hits = since().hits;
  int before = made;
  for (const Tensor& w : layers) look(w);
  EXPECT_EQ(since().hits - hits, 3);
  EXPECT_EQ(made, before) << "made what finds no room, again and again";
  for (int i = 0; i < 3; ++i) look(layers[3]), look(layers[4]);  // the others rest
  EXPECT_GE(since().evicted, 2);
  EXPECT_EQ(since().bytes, 3 * kBytes);
}

TEST_F(DerivedCache, StaleObjectsMakeRoomFirst) {
  set_derived_cache_limit(2 * kBytes);
  Tensor a = weight(1), b = weight(2), c = weight(3);
  ASSERT_TRUE(keep(a) && keep(b));
  EXPECT_EQ(look(c), nullptr);
  EXPECT_TRUE(look(a) && look(b));
  b.add_(1);
  EXPECT_TRUE(look(c));
  EXPECT_EQ(since().evicted, 0);
  EXPECT_EQ(since().dropped, 1);
  int before = made;
  EXPECT_TRUE(look(a));
  EXPECT_EQ(made, before);
}

// One byte decides.
TEST_F(DerivedCache, WhatIsUsedStaysIfRoomLacksAByte) {
  for (int64_t lacking : {0, 1}) {
    clear_derived_cache();
    set_derived_cache_limit(2 * kBytes);
    Tensor used = weight(1), other = weight(2);
    ASSERT_TRUE(keep(used));
    EXPECT_EQ(look(other, 0, kBytes + lacking), nullptr);
    EXPECT_TRUE(look(used));
    EXPECT_TRUE(look(other, 0, kBytes + lacking));
    EXPECT_EQ(since().objects, lacking ? 1 : 2);
    const int before = made;
    EXPECT_TRUE(look(used));
    EXPECT_EQ(made, before) << "used between the two looks at the other";
  }
  EXPECT_EQ(since().evicted, 0);
}

// The note of a copy weighs nothing and ends with the copy, the next write, or the cache.
TEST_F(DerivedCache, RoundedCopies) {
  Tensor w = full({32, 32}, 1.0);
  EXPECT_EQ(find_rounded_copy(w), nullptr);
  auto copy = std::make_shared<const Tensor>(w.to(DType::bf16));
  keep_rounded_copy(w, copy);
  EXPECT_EQ(find_rounded_copy(w), copy);
  EXPECT_EQ(since().objects, 1);
  EXPECT_EQ(since().bytes, 0);
  w.add_(1);
  EXPECT_EQ(find_rounded_copy(w), nullptr);
  keep_rounded_copy(w, copy);  // in step again
  EXPECT_EQ(find_rounded_copy(w), copy);
  EXPECT_EQ(since().kept, 1);
  auto other = std::make_shared<const Tensor>(w.to(DType::bf16));
  keep_rounded_copy(w, other);
  EXPECT_EQ(find_rounded_copy(w), other);
  EXPECT_EQ(since().objects, 1);
  other.reset();
  EXPECT_EQ(find_rounded_copy(w), nullptr) << "nobody has a share in it";
  keep_rounded_copy(w, copy);
  set_derived_cache_limit(0);
  set_derived_cache_limit(1 << 20);
  EXPECT_EQ(find_rounded_copy(w), nullptr) << "an empty cache knows nothing";
}

TEST_F(DerivedCache, TooLargeForTheLimit) {
  Tensor a = weight(), b = weight();
  ASSERT_TRUE(keep(a));
  EXPECT_TRUE(keep(b, 0, 2 << 20)) << "this call may use it";
  EXPECT_EQ(since().objects, 1);
  EXPECT_EQ(look(b, 0, 2 << 20), nullptr);
  EXPECT_TRUE(look(a));
}

TEST_F(DerivedCache, Off) {
  Tensor w = weight();
  ASSERT_TRUE(keep(w));
  set_derived_cache_limit(0);
  EXPECT_EQ(since().objects, 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(look(w), nullptr);
  EXPECT_EQ(made, 1);
  set_derived_cache_limit(1 << 20);
  EXPECT_TRUE(keep(w));
}

TEST(DerivedCacheLimit, FromTheEnvironment) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process of its own, which has not read it yet
  const auto exit_if = [](const char* text, size_t limit) {
    setenv("DEFT_PACK_CACHE", text, 1);
    std::exit(derived_cache_limit() == limit ? 0 : 1);
  };
  EXPECT_EXIT(exit_if("4096", 4096), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(exit_if("0", 0), testing::ExitedWithCode(0), "");
  for (const char* bad : {"", "-1", "12x", "1e9"}) {
    EXPECT_EXIT(exit_if(bad, size_t{1} << 30), testing::ExitedWithCode(0), "DEFT_PACK_CACHE=.* is not a whole") << bad;
  }
}

TEST_F(DerivedCache, MakingMayFail) {
  Tensor w = weight(), other = weight();
  ASSERT_TRUE(keep(other));
  const DerivedForm form{DerivedKind::gemm_b, {9}};
  const auto fails = [&]() -> Derived { throw ValueError("no"); };
  EXPECT_EQ(find_derived(w, form, fails), nullptr);
  EXPECT_THROW(find_derived(w, form, fails), ValueError);
  EXPECT_EQ(since().objects, 1);
  const auto too_much = [&]() -> Derived { throw OutOfMemoryError("no"); };
  EXPECT_EQ(find_derived(w, form, too_much), nullptr) << "the call goes on without";
  EXPECT_EQ(since().objects, 0) << "what is kept makes room";
}

TEST_F(DerivedCache, MakesRoomWhenMemoryRunsOut) {
  Tensor w = weight();
  ASSERT_TRUE(keep(w));
  constexpr size_t kHuge = size_t{1} << 46;
  try {
    free_buffer(allocate_buffer(kHuge), kHuge);
    GTEST_SKIP() << "this system promises memory that it does not have";
  } catch (const OutOfMemoryError&) {
  }
  EXPECT_EQ(since().objects, 0);
}

TEST_F(DerivedCache, ObjectsMayOwnTensors) {
  Tensor w = weight();
  {
    Tensor cast = weight(3);
    ASSERT_TRUE(keep(cast));
    const auto make = [&] { return Derived{std::make_shared<const Tensor>(cast), kBytes}; };
    const DerivedForm form{DerivedKind::gemm_b, {4}};
    find_derived(w, form, make);
    ASSERT_TRUE(find_derived(w, form, make));
  }
  EXPECT_EQ(since().objects, 2);
  w = Tensor();  // ends the object, which ends the other storage
  EXPECT_EQ(since().objects, 0);
}

TEST_F(DerivedCache, Threads) {
  set_derived_cache_limit(5 * kBytes);
  Tensor shared = weight(4);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int n = 0; n < 4; ++n) {
    threads.emplace_back([&, n] {
      NoGradGuard guard;
      Tensor own = weight(n);
      for (int i = 0; i < 300; ++i) {
        if (auto found = look(shared)) wrong += *found != 4096;
        if (auto found = look(own)) wrong += *found != own.sum().item();
        if (i % 7 == 0) own.add_(1);
        if (i % 11 == 0) own = weight(i);
        if (i % 50 == 0) clear_derived_cache();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(since().hits, 100);
  EXPECT_LE(since().bytes, 5 * kBytes);
}

}  // namespace
}  // namespace deft
