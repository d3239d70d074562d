// Gradients of many slices of one tensor: one tensor of zeros for all of them, and the same values as before.
#include <map>

#include "core/hooks.h"
#include "core_util.h"
#include "ops/gradcheck.h"
#include "ops/shape_ops.h"
#include "runtime/profile_hook.h"

namespace deft {
namespace {

// How often each op runs while it lives.
struct OpCounts : ProfileHook {
  std::map<std::string, int> count;
  OpCounts() { set_profile_hook(this); }
  ~OpCounts() override { set_profile_hook(nullptr); }
  void begin(const char* zone, Bucket bucket, const Site&) override { count[zone] += bucket == Bucket::dispatch; }
  void end() override {}
};

template <class F>
std::map<std::string, int> ops_in(F&& f) {
  OpCounts counts;
  ProfileScope scope("test");
  f();
  return counts.count;
}

TEST(SliceGrad, OneTensorOfZerosForAllParts) {
  Tensor x = leaf({50, 3});
  auto zeros_made = [&](const std::vector<Tensor>& parts) {
    std::vector<Tensor> sums;
    for (const Tensor& p : parts) sums.push_back((p * p).sum());
    Tensor total = stack(sums).sum();
    auto counts = ops_in([&] { total.backward(); });
    expect_close(x.grad(), 2 * x.detach());
    x.zero_grad();
    return counts["slice_backward"];
  };
  EXPECT_EQ(zeros_made(x.unbind()), 1);
  EXPECT_EQ(zeros_made(x.unbind(1)), 1);
  EXPECT_EQ(zeros_made(x.split(7)), 1);
  EXPECT_EQ(zeros_made(x.chunk(3, 1)), 1);
  std::vector<Tensor> rows;
  for (int64_t i = 0; i < 50; ++i) rows.push_back(x[i]);
  EXPECT_EQ(zeros_made(rows), 1);
}

TEST(SliceGrad, OverlapsStepsAndOtherUses) {
  auto f = [](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    Tensor x = in[0] * 2;
    Tensor a = x.slice(0, Slice(0, 6, 2)), b = x.slice(0, Slice(1, 4)), c = x.select(1, 1), d = x.narrow(1, 1, 2);
    return {a * a, b.sum() * c, d * d * d, x.select(0, -1) * x.select(0, -1), x.sum() * c};
  };
  std::vector<Tensor> inputs{leaf({6, 3})};
  EXPECT_NO_THROW(gradcheck(f, inputs));
  EXPECT_NO_THROW(gradgradcheck(f, inputs));
}

TEST(SliceGrad, SharedGradientsAreNotWrittenTo) {
  // Addition hands one gradient to both sides; the parts of x that come later must not reach y.
  Tensor x = leaf({4, 2}), y = leaf({4, 2}, 2);
  Tensor part = x[1] * 3;
  ((x + y).sum() + part.sum()).backward();
  EXPECT_VALUES(y.grad(), 1, 1, 1, 1, 1, 1, 1, 1);
  EXPECT_VALUES(x.grad(), 1, 1, 4, 4, 1, 1, 1, 1);
}

TEST(SliceGrad, HooksAndCaptures) {
  Tensor x = leaf({4, 2});
  Tensor h = x * 1;
  int calls = 0;
  h.register_hook([&](const Tensor& g) {
    ++calls;
    EXPECT_EQ(g.sizes(), Shape({4, 2}));
    return g * 2;
  });
  std::vector<Tensor> parts = h.unbind();
  Tensor total = parts[0].sum() + parts[1].sum() * 3 + parts[3].sum();
  std::vector<Tensor> found = grad({total}, {h}, {}, {.retain_graph = true});
  EXPECT_VALUES(found[0], 2, 2, 6, 6, 0, 0, 2, 2);
  total.backward();
  EXPECT_EQ(calls, 2);
  EXPECT_VALUES(x.grad(), 2, 2, 6, 6, 0, 0, 2, 2);
}

TEST(SliceGrad, LeavesNothing) {
  Tensor x = leaf({8, 2});
  expect_leaves_nothing([&] {
    std::vector<Tensor> parts = x.unbind();
    (parts[0] * parts[1] + parts[2]).sum().backward();
    x.zero_grad();
  });
}

}  // namespace
}  // namespace deft
