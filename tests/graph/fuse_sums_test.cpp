// Matmuls that are added to something in place.
#include "graph/training_util.h"

namespace deft {
namespace {

CompileOptions all() {
  CompileOptions o;
  o.passes.cost_model = false;  // CPUs do not gain by it
  return o;
}

struct Case {
  const char* what;
  int sums;  // that become part of a matmul
  std::function<Tensor(const Tensor& x, const Tensor& w)> run;
};

TEST(FuseSums, SameResults) {
  const Case cases[] = {
      {"one", 1,
       [](const Tensor& x, const Tensor& w) {
         Tensor total = x * 1;
         total.add_(matmul(x, w));
         return total * 2;
       }},
      {"two in a row", 2,
       [](const Tensor& x, const Tensor& w) {
         Tensor total = x * 1;
         total.add_(matmul(x, w));
         total.add_(matmul(x * 3, w));
         return total * 2;
       }},
      {"rounded matmuls", 1,
       [](const Tensor& x, const Tensor& w) {
         Tensor total = x * 1;
         total.add_(matmul(x.to(DType::bf16), w.to(DType::bf16)).to(DType::f32));
         return total * 2;
       }},
      {"a factor of the matmul", 1,
       [](const Tensor& x, const Tensor& w) {
         Tensor total = x * 1;
         total.add_(matmul(total, w));
         return total * 2;
       }},
      {"views from before see the sum", 1,
       [](const Tensor& x, const Tensor& w) {
         Tensor total = x * 1, transposed = total.t(), row = total.select(0, 1);
         total.add_(matmul(x, w));
         return matmul(transposed, transposed.t()) + row;
       }},
      {"what was there is read before", 1,
       [](const Tensor& x, const Tensor& w) {
         Tensor total = x * 1, term = matmul(x, w), before = matmul(total, w).exp();
         total.add_(term);
         return total + before;
       }},
      {"written again", 1,
       [](const Tensor& x, const Tensor& w) {
         Tensor total = x * 1;
         total.add_(matmul(x, w));
         total.select(0, 0).mul_(3);
         return matmul(total, w);
       }},
      {"the matmul is read elsewhere", 0,
       [](const Tensor& x, const Tensor& w) {
         Tensor total = x * 1, term = matmul(x, w);
         total.add_(term);
         return total + term.exp();
       }},
      {"a factor is written in between", 0,
       [](const Tensor& x, const Tensor& w) {
         Tensor total = x * 1, factor = x * 2, term = matmul(factor, w);
         factor.mul_(2);
         total.add_(term);
         return total + factor;
       }},
      {"a part of it", 0,
       [](const Tensor& x, const Tensor& w) {
         Tensor total = x * 1;
         total.narrow(0, 0, 8).add_(matmul(x.narrow(0, 0, 8), w));
         return total * 2;
       }},
      {"broadcast", 0,
       [](const Tensor& x, const Tensor& w) {
         Tensor total = x * 1;
         total.add_(matmul(x.narrow(0, 0, 1), w));
         return total * 2;
       }},
      {"the result", 0,
       [](const Tensor& x, const Tensor& w) {
         Tensor total = x * 1;
         return total.add_(matmul(x, w));
       }},
  };
  NoGradGuard no_grad;
  RngScope random({13, 0});
  const Tensor w = randn({32, 32}) / 6;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    auto f = compile([&](const Tensor& x) { return c.run(x, w); }, all());
    f(randn({16, 32}));
    const Tensor x = randn({16, 32}), found = f(x), want = c.run(x, w);
    EXPECT_EQ(f.stats().replays, 1);
    const double bound = contains(c.what, "rounded") ? 0.05 : 1e-5;
    EXPECT_LE((found - want).abs().amax().item(), bound * want.abs().amax().item()) << f.explain();
    const std::string done = "fuse_sums: " + std::to_string(c.sums) + " sums into matmuls";
    EXPECT_EQ(contains(f.explain(), c.sums ? done : "sums into matmuls"), c.sums > 0) << f.explain();
  }
}

TEST(FuseSums, NotOnCpusWhereItIsWeighed) {
  NoGradGuard no_grad;
  const Tensor w = randn({32, 32});
  auto f = compile([&](const Tensor& x) {
    Tensor total = x * 1;
    total.add_(matmul(x, w));
    return total * 2;
  });
  for (int i = 0; i < 2; ++i) f(randn({16, 32}));
  EXPECT_FALSE(contains(f.explain(), "sums into matmuls")) << f.explain();
}

}  // namespace
}  // namespace deft
