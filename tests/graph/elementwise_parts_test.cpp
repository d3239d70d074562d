// Elementwise ops on parts of a buffer, copies, and arithmetic in registers: one pass, and the bits of eager mode.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>

#include "core/grad_mode.h"
#include "graph/compile.h"
#include "nn/nn.h"
#include "ops/all_ops.h"
#include "runtime/parallel.h"

namespace deft {
namespace {

using F = Compiled::Function;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
bool same(const Tensor& a, const Tensor& b) {
  Tensor x = a.contiguous(), y = b.contiguous();
  return x.sizes() == y.sizes() && x.dtype() == y.dtype() &&
         std::memcmp(x.data_ptr(), y.data_ptr(), static_cast<size_t>(x.numel()) * x.element_size()) == 0;
}
CompileOptions without(const char* passes) {
  CompileOptions o;
  o.passes = graph::without({}, passes);
  o.symbolic = false;
  return o;
}

// Captures with some values, and compares with f on others. The text of the plan.
std::string check(const F& f, const std::vector<Tensor>& x, const std::string& name, const char* off = "") {
  NoGradGuard no_grad;
  Compiled compiled = compile(f, without(off));
  compiled.run(x);
  std::vector<Tensor> other;
  for (const Tensor& t : x) other.push_back(randn(t.sizes(), t.dtype()));
  std::vector<Tensor> wanted = f(other), found = compiled.run(other);
  for (size_t i = 0; i < wanted.size(); ++i)
    EXPECT_TRUE(same(found[i], wanted[i])) << name << ", result " << i << "\n" << compiled.explain();
  return compiled.explain();
}
Tensor part(const Tensor& t, int64_t k, int64_t n) { return t.narrow(-1, k * n, n); }

// As an LSTM's gates: two together, two alone, all in place.
F gates(int64_t n) {
  return [n](const std::vector<Tensor>& x) {
    Tensor z = x[0] * 2, c = x[1];
    z.narrow(-1, 0, 2 * n).sigmoid_();
    part(z, 2, n).tanh_();
    part(z, 3, n).add_(1).sigmoid_();
    Tensor next = (part(z, 1, n) * c).addcmul_(part(z, 0, n), part(z, 2, n));
    return std::vector<Tensor>{part(z, 3, n) * tanh(next)};
  };
}

TEST(ElementwiseParts, GatesAreOneChain) {
  for (int64_t n : {1, 5, 16, 300})
    for (int64_t rows : {1, 2, 7}) {
      const std::string name = fmt::format("{} x {}", rows, n);
      std::string text = check(gates(n), {randn({rows, 4 * n}), randn({rows, n})}, name);
      // z, which all parts read, and the rest. A single column of several is no row.
      EXPECT_TRUE((n == 1 && rows > 1) || contains(text, "2 kernels")) << text;
    }
  std::string text = check(gates(40), {randn({3, 2, 160}), randn({3, 2, 40})}, "three dims");
  EXPECT_TRUE(contains(text, "2 kernels")) << text;
  check(gates(40), {randn({3, 160}, DType::bf16), randn({3, 40}, DType::bf16)}, "bf16");
  check(gates(40), {randn({3, 160}, DType::f64), randn({3, 40}, DType::f64)}, "f64");
}

TEST(ElementwiseParts, WhatMustStay) {
  const std::pair<const char*, F> cases[] = {
      {"the buffer is a result",
       [](const auto& x) {
         Tensor z = x[0] * 2;
         part(z, 0, 4).relu_();
         return std::vector<Tensor>{part(z, 0, 4) + 1, z};
       }},
      {"a sum reads all",
       [](const auto& x) {
         Tensor z = x[0] * 2;
         part(z, 1, 4).relu_();
         return std::vector<Tensor>{part(z, 1, 4) + z.sum()};
       }},
      {"parts overlap",
       [](const auto& x) {
         Tensor z = x[0] * 2;
         z.narrow(1, 0, 6).relu_();
         return std::vector<Tensor>{z.narrow(1, 0, 4) + z.narrow(1, 2, 4)};
       }},
      {"parts overlap and one is written",
       [](const auto& x) {
         Tensor z = x[0] * 2;
         z.narrow(1, 0, 6).relu_();
         z.narrow(1, 0, 4).add_(1);
         return std::vector<Tensor>{z.narrow(1, 2, 4) * 3};
       }},
      {"a part reaches beyond",
       [](const auto& x) {
         Tensor z = x[0] * 2;
         z.narrow(1, 2, 4).relu_();
         return std::vector<Tensor>{z.narrow(1, 0, 4) + z.narrow(1, 4, 4)};
       }},
      {"other rows",
       [](const auto& x) {
         Tensor z = x[0] * 2;
         z.narrow(0, 1, 2).narrow(1, 0, 4).relu_();
         return std::vector<Tensor>{z.narrow(0, 0, 2).narrow(1, 0, 4) + 1};
       }},
      {"every other column",
       [](const auto& x) {
         Tensor z = x[0] * 2;
         z.narrow(1, 0, 4).relu_();
         return std::vector<Tensor>{z.slice(1, Slice({}, {}, 2)) * 3};
       }},
      {"written by another op in between",
       [](const auto& x) {
         Tensor z = x[0] * 2;
         part(z, 0, 4).relu_();
         part(z, 0, 4).copy_(part(x[0], 1, 4));
         return std::vector<Tensor>{part(z, 0, 4) + 1};
       }},
  };
  for (const auto& [name, f] : cases) check(f, {randn({3, 8})}, name);
}

TEST(ElementwiseParts, OperandsAreCutAlong) {
  const std::pair<const char*, F> cases[] = {
      {"a tensor",
       [](const auto& x) {
         Tensor z = x[0] * 2;
         z.add_(x[1]);
         return std::vector<Tensor>{part(z, 0, 4) * part(z, 1, 4).relu()};
       }},
      {"a row",
       [](const auto& x) {
         Tensor z = x[0] * 2;
         z.mul_(x[1].narrow(0, 1, 1)).sub_(x[1].narrow(0, 0, 1));
         return std::vector<Tensor>{part(z, 0, 4) - part(z, 1, 4)};
       }},
      {"a column",
       [](const auto& x) {
         Tensor z = x[0] * 2;
         z.mul_(x[1].narrow(1, 3, 1));
         return std::vector<Tensor>{part(z, 1, 4) / part(z, 0, 4)};
       }},
      {"some rows",
       [](const auto& x) {
         Tensor z = x[0] * 2;
         z.mul_(x[1]);
         return std::vector<Tensor>{z.narrow(0, 0, 1) - z.narrow(0, 2, 1)};
       }},
  };
  for (const auto& [name, f] : cases) {
    check(f, {randn({3, 8}), randn({3, 8})}, name);
    check(f, {randn({3, 8}), randn({3, 8})}, name, "merge_equal,remove_unused");
  }
}

TEST(ElementwiseParts, CopiesGoWhereTheyMay) {
  F made = [](const auto& x) {
    Tensor z = (x[0].matmul(x[1])).clone();
    z.add_(1);
    return std::vector<Tensor>{z.relu()};
  };
  EXPECT_TRUE(contains(check(made, {randn({3, 4}), randn({4, 5})}, "made for it"), "1 copies left out"));
  F stands = [](const auto& x) {
    Tensor z = x[0] * 2, copy = part(z, 0, 2).clone();
    part(z, 1, 2).addcmul_(copy, x[1]);
    return std::vector<Tensor>{part(z, 1, 2) + 1};
  };
  EXPECT_TRUE(contains(check(stands, {randn({3, 4}), randn({3, 2})}, "stands"), "1 copies left out"));
  F written = [](const auto& x) {
    Tensor z = x[0] * 2, copy = part(z, 0, 2).clone();
    z.narrow(1, 1, 2).zero_();
    return std::vector<Tensor>{copy + x[1], z};
  };
  EXPECT_FALSE(contains(check(written, {randn({3, 4}), randn({3, 2})}, "written"), "copies left out"));
  F result = [](const auto& x) {
    Tensor z = x[0] * 2, copy = z.clone();
    z.relu_();
    return std::vector<Tensor>{copy, z};
  };
  EXPECT_FALSE(contains(check(result, {randn({3, 4})}, "a result"), "copies left out"));
}

TEST(ElementwiseParts, ViewsThatNobodyReadGoWithCopies) {
  F of_source = [](const auto& x) {
    Tensor z = x[0].matmul(x[1]), unused = part(z, 0, 2);
    return std::vector<Tensor>{z.clone().add_(1)};
  };
  F of_copy = [](const auto& x) {
    Tensor copy = x[0].clone(), unused = part(copy, 0, 2);
    return std::vector<Tensor>{copy + 1};
  };
  for (const F& f : {of_source, of_copy})
    EXPECT_TRUE(contains(check(f, {randn({3, 4}), randn({4, 5})}, "unused views"), "1 copies left out"));
}
// The logarithm of a number is taken in f32, that of its copy in f64.
TEST(ElementwiseParts, CopiesOfNumbersStay) {
  F f = [](const auto& x) {
    pow(2.0, x[0]).backward();
    return std::vector<Tensor>{};
  };
  Compiled compiled = compile(f, without("fold_constants"));
  auto gradient = [&](bool eager) {
    Tensor x = full({}, 0.7, {DType::f64}).requires_grad_();
    eager ? f({x}) : compiled.run({x});
    return x.grad();
  };
  gradient(false);
  EXPECT_TRUE(same(gradient(false), gradient(true))) << compiled.explain();
}

// Ops in place on parts of one buffer, reads and copies of others, all drawn from the seed.
class RandomParts {
 public:
  explicit RandomParts(uint32_t seed, const Tensor& x) : rng_(seed), x_(x), z_(x * 2) {}

  std::vector<Tensor> run() {
    for (int i = 0; i < 9; ++i) step();
    if (draw(4) == 0) results_.push_back(z_);
    if (results_.empty()) results_.push_back(some_part(z_, 3) + 1);
    return results_;
  }

 private:
  int64_t draw(int64_t n) { return static_cast<int64_t>(rng_() % static_cast<uint32_t>(n)); }
  // Three columns or six, mostly next to other parts, of all rows or two.
  Tensor some_part(const Tensor& t, int64_t columns) {
    const int64_t at = draw(8) == 0 ? draw(13 - columns) : draw(12 / columns) * columns;
    return t.narrow(1, at, columns).narrow(0, narrow_ ? draw(2) * 2 : 0, narrow_ ? 2 : 4);
  }
  void step() {
    narrow_ = draw(4) == 0;
    const int64_t columns = draw(2) ? 3 : 6;
    Tensor a = some_part(z_, columns), b = some_part(draw(3) ? x_ : z_, columns);
    switch (draw(9)) {
      case 0:
        a.tanh_();
        break;
      case 1:
        a.mul_(3).relu_();
        break;
      case 2:
        a.add_(b);
        break;
      case 3:
        a.addcmul_(b, some_part(z_, columns));
        break;
      case 4:
        a.copy_(b);
        break;
      case 5:
        kept_.push_back(a.clone());
        break;
      case 6:
        results_.push_back(a * b + some_part(z_, columns));
        break;
      case 7:
        if (!kept_.empty() && kept_.back().sizes() == a.sizes()) a.sub_(kept_.back());
        break;
      default:
        if (!kept_.empty()) results_.push_back(kept_.back() * 2 - 1);
    }
  }

  std::mt19937 rng_;
  Tensor x_, z_;
  std::vector<Tensor> kept_, results_;
  bool narrow_ = false;
};

TEST(ElementwiseParts, RandomPrograms) {
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    check([seed](const auto& x) { return RandomParts(seed, x[0]).run(); }, {randn({4, 12})},
          fmt::format("seed {}", seed));
    if (HasFailure()) return;
  }
}

TEST(ElementwiseParts, CellsAreTwoProductsAndChains) {
  NoGradGuard no_grad;
  nn::LSTMCell lstm(12, 20);
  nn::GRUCell gru(12, 20);
  F of_lstm = [&](const auto& x) {
    nn::LSTMCellResult r = lstm(x[0], x[1], x[2]);
    return std::vector<Tensor>{r.hidden, r.cell};
  };
  F of_gru = [&](const auto& x) { return std::vector<Tensor>{gru(x[0], x[1])}; };
  for (const auto& [f, kernels] : {std::pair{of_lstm, "4 kernels"}, std::pair{of_gru, "3 kernels"}})
    for (int64_t rows : {1, 3}) {
      std::vector<Tensor> x{randn({rows, 12}), randn({rows, 20}), randn({rows, 20})};
      Compiled fast = compile(f, without("")), plain = compile(f, without("fuse_elementwise"));
      fast.run(x), plain.run(x);
      std::vector<Tensor> a = fast.run(x), b = plain.run(x), eager = f(x);
      EXPECT_TRUE(rows > 1 || contains(fast.explain(), kernels)) << fast.explain();
      for (size_t i = 0; i < a.size(); ++i) {
        EXPECT_TRUE(same(a[i], b[i])) << rows << " rows, result " << i << "\n" << fast.explain();
        EXPECT_LE((a[i] - eager[i]).abs().amax().item(), 1e-6);
      }
    }
}

// --- Arithmetic in registers.

// At regular distances a special value, which formulas may treat in a way of their own.
Tensor special_values(int64_t n, int64_t every) {
  Tensor t = randn({n});
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const float rare[] = {0.0f, -0.0f, inf, -inf, nan, 1e-40f, 3e38f};
  for (int64_t i = 0; i < n; ++i)
    if (i % every == 0) t.data<float>()[i] = rare[static_cast<size_t>(i / every) % std::size(rare)];
  return t;
}

const std::pair<const char*, F> kArithmetic[] = {
    {"as a network does",
     [](const auto& x) {
       Tensor y = x[0];
       for (int i = 0; i < 5; ++i) y = (y * 1.5 + x[1]).relu() - 0.25;
       return std::vector<Tensor>{y};
     }},
    {"every op",
     [](const auto& x) {
       Tensor y = maximum(x[0] + x[1], x[0] - x[1]) / x[1];
       return std::vector<Tensor>{minimum(-y.abs().sqrt(), x[0].square() * x[1])};
     }},
    {"either side", [](const auto& x) { return std::vector<Tensor>{2 / (1 - (x[0] - (x[1] - x[0] * 3)))}; }},
    {"results that are read again",
     [](const auto& x) {
       Tensor a = x[0] * x[1], b = a + 1, c = b * b, d = c - a;
       return std::vector<Tensor>{(d / b - c) * a + d};
     }},
    {"a tensor with itself", [](const auto& x) { return std::vector<Tensor>{(x[0] * x[0] + x[1] * x[1]).sqrt()}; }},
    {"numbers alone", [](const auto& x) { return std::vector<Tensor>{(x[0] + 1e-3) * 1e3 - 7}; }},
    {"in place",
     [](const auto& x) {
       Tensor y = x[0] + x[1];
       y.mul_(y).sub_(x[0]).div_(3);
       return std::vector<Tensor>{y};
     }},
};

TEST(ElementwiseLinks, SameBits) {
  NoGradGuard no_grad;
  for (const auto& [name, f] : kArithmetic)
    for (int64_t n : {1, 7, 31, 32, 33, 64, 100, 511, 545, 1024, 5000}) {
      std::vector<Tensor> x{special_values(n, 3), special_values(n, 4)};
      Compiled compiled = compile(f, without(""));
      compiled.run(x);
      Tensor wanted = f(x)[0], found = compiled.run(x)[0];
      for (int64_t i = 0; i < n; ++i) {
        const float a = wanted.data<float>()[i], b = found.data<float>()[i];
        ASSERT_TRUE(std::memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b))
            << name << ", " << i << " of " << n << ": " << b << " instead of " << a;
      }
    }
}

// The target is the eighth input, and changes places with the first.
TEST(ElementwiseLinks, AsManyOperandsAsThereMayBe) {
  F f = [](const auto& x) {
    Tensor y = (((((x[0] + x[1]) * x[2]) - x[3]) + x[4]) * x[5]) + x[6], target = x[7];
    return std::vector<Tensor>{target.add_(y)};
  };
  std::vector<Tensor> x;
  for (int i = 0; i < 8; ++i) x.push_back(randn({100}));
  NoGradGuard no_grad;
  Compiled compiled = compile(f, without(""));
  compiled.run(x);
  std::vector<Tensor> y = x;
  y[7] = x[7].clone();
  compiled.run(y);
  EXPECT_TRUE(same(y[7], f(x)[0])) << compiled.explain();
}

TEST(ElementwiseLinks, SameBitsForAnyNumberOfThreads) {
  NoGradGuard no_grad;
  const int before = num_threads();
  std::vector<Tensor> x{randn({300, 1001}), randn({300, 1001})};
  for (const auto& [name, f] : kArithmetic) {
    Compiled compiled = compile(f, without(""));
    compiled.run(x);
    Tensor first = compiled.run(x)[0].clone();
    for (int threads : {1, 2, 3}) {
      set_num_threads(threads);
      EXPECT_TRUE(same(compiled.run(x)[0], first)) << name << ", " << threads << " threads";
    }
    set_num_threads(before);
  }
}

}  // namespace
}  // namespace deft
