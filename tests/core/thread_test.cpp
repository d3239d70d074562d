// Modes and threads: raw threads start at the process default, the pool has the caller's modes, backward runs anywhere.
#include <atomic>
#include <thread>

#include "core_util.h"
#include "runtime/parallel.h"

namespace deft {
namespace {

TEST(Threads, RawThreadsStartAtTheProcessDefault) {
  NoGradGuard off;
  bool grad = false;
  std::thread([&] { grad = is_grad_enabled(); }).join();
  EXPECT_TRUE(grad) << "a guard is its thread's own";
  set_default_grad_mode(false);
  std::thread([&] { grad = is_grad_enabled(); }).join();
  EXPECT_FALSE(grad);
  set_default_grad_mode(true);
  std::thread([&] { grad = is_grad_enabled(); }).join();
  EXPECT_TRUE(grad);
  set_grad_enabled(false);  // as the guard left it
}

// Which modes the ranges of a parallel_for over n items see.
struct Seen {
  std::atomic<int> ranges{0}, grad_on{0}, inference_on{0}, recorded{0};
};
void look(Seen& seen, int64_t n) {
  static Tensor w = leaf({4});
  parallel_for(0, n, 64, [&](int64_t, int64_t) {
    ++seen.ranges;
    seen.grad_on += is_grad_enabled();
    seen.inference_on += is_inference_mode_enabled();
    seen.recorded += (w * w).requires_grad();
  });
}

TEST(Threads, RangesHaveTheCallersModesBelowAndAboveTheThreshold) {
  int before = num_threads();
  set_num_threads(4);
  for (int64_t n : {10, 64 * 100}) {
    Seen usual, off, inference;
    look(usual, n);
    no_grad([&] { look(off, n); });
    inference_mode([&] { look(inference, n); });
    EXPECT_EQ(usual.ranges, n == 10 ? 1 : 4);
    EXPECT_EQ(usual.grad_on, usual.ranges);
    EXPECT_EQ(usual.recorded, usual.ranges);
    EXPECT_EQ(off.grad_on, 0);
    EXPECT_EQ(off.recorded, 0);
    EXPECT_EQ(inference.inference_on, inference.ranges);
    EXPECT_EQ(inference.recorded, 0);
  }
  set_num_threads(before);
}

TEST(Threads, BigAndSmallOpsRecordAlike) {
  for (int64_t n : {8, 1 << 20}) {
    Tensor x = ones({n}, with_grad());
    EXPECT_FALSE(no_grad([&] { return x * x; }).requires_grad());
    EXPECT_TRUE((x * x).requires_grad());
  }
}

TEST(Threads, ManyThreadsToggle) {
  Tensor w = leaf({8});
  Tensor view = w.view({2, 4});  // shared, and out of date after the write
  no_grad([&] { w.add_(1); });
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 64; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        int kind = (t + i) % 3;
        if (kind == 0) {
          NoGradGuard off;
          wrong += (w * w).requires_grad();
          EnableGradGuard on;
          wrong += !(w * view.view({8})).requires_grad();
        } else if (kind == 1) {
          InferenceModeGuard inference;
          Tensor y = view * 2;
          wrong += y.requires_grad() || !y.is_inference();
        } else {
          Tensor y = view * view;
          wrong += !y.requires_grad() || y.is_inference();
        }
        wrong += !is_grad_enabled() || is_inference_mode_enabled();
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Threads, ASharedViewIsRefreshedOnce) {
  Tensor x = leaf({8}), y = x * 1, view = y.view({2, 4});
  y.mul_(2);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t) threads.emplace_back([&] { wrong += !(view * 3).requires_grad(); });
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  (view * 3).sum().backward();
  EXPECT_VALUES(x.grad(), 6, 6, 6, 6, 6, 6, 6, 6);
}

TEST(Threads, BackwardOnAnotherThread) {
  Tensor x = leaf({4});
  Tensor y = (x * x).sum();
  std::thread([&] {
    NoGradGuard off;
    y.backward();
  }).join();
  expect_close(x.grad(), x.detach() * 2);
  Tensor z = (x * x * x).sum(), gradient;
  std::thread([&] { gradient = grad({z}, {x}, {}, {.create_graph = true})[0]; }).join();
  EXPECT_TRUE(gradient.requires_grad());
  gradient.sum().backward();
}

TEST(Threads, ConcurrentBackwardIntoSharedLeaves) {
  Tensor w = leaf({16});
  constexpr int kThreads = 16, kSteps = 10;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < kSteps; ++i) (w * 2).sum().backward();
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(values(w.grad()), std::vector<double>(16, 2.0 * kThreads * kSteps));
}

TEST(Threads, DisjointViewsOfOneTensorMayBeWrittenAtOnce) {
  Tensor x = zeros({8, 64});
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      NoGradGuard off;
      for (int i = 0; i < 50; ++i) x[t].add_(1);
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(x.version(), 400u);
  EXPECT_EQ(values(x), std::vector<double>(512, 50.0));
}

}  // namespace
}  // namespace deft
