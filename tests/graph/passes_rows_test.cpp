#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cstring>

#include "amp/autocast.h"
#include "core/grad_mode.h"
#include "graph/compile.h"
#include "ops/all_ops.h"
#include "runtime/parallel.h"

namespace deft {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }
bool same(const Tensor& a, const Tensor& b) {
  Tensor x = a.contiguous(), y = b.contiguous();
  return a.sizes() == b.sizes() && a.dtype() == b.dtype() &&
         std::memcmp(x.data_ptr(), y.data_ptr(), static_cast<size_t>(x.numel()) * x.element_size()) == 0;
}

using F = std::function<Tensor(const std::vector<Tensor>&)>;
CompileOptions without(const std::string& names) { return {.passes = graph::without({}, names)}; }
Compiled compile_list(const F& f, CompileOptions options = without("cost_model")) {
  return compile([f](const std::vector<Tensor>& x) { return std::vector<Tensor>{f(x)}; }, options);
}

struct Case {
  const char* name;
  int saved;  // passes over memory
  F f;
};
// Two tensors of rows, a row, another row.
std::vector<Tensor> inputs(int64_t rows, int64_t n, DType type) {
  return {randn({rows, n}).to(type), randn({rows, n}).to(type), randn({n}).to(type), randn({1, n}).to(type)};
}
Shape row(const Tensor& x) { return Shape{x.sizes().back()}; }

std::vector<Case> cases() {
  return {
      {"scale and mask before softmax", 1, [](const auto& x) { return (x[0] * 0.125 + x[2]).softmax(-1); }},
      {"cast after softmax", 1, [](const auto& x) { return x[0].softmax(-1).to(DType::f16); }},
      {"both sides", 2, [](const auto& x) { return ((x[0] + x[1]).softmax(-1) * x[1]).relu(); }},
      {"log_softmax", 2, [](const auto& x) { return -(x[0] * 2).log_softmax(-1); }},
      {"residual before layer_norm", 1, [](const auto& x) { return layer_norm(x[0] + x[1], row(x[0]), x[2], x[2]); }},
      {"activation after layer_norm", 1, [](const auto& x) { return silu(layer_norm(x[0], row(x[0]), x[2])); }},
      {"rms_norm", 2, [](const auto& x) { return rms_norm(x[0] + x[3], row(x[0]), x[2]) * x[1] + 1; }},
      {"rows that are read again", 2,
       [](const auto& x) {
         Tensor y = layer_norm(x[0] + x[1], row(x[0]));
         return y.to(DType::f64) + y;  // the sum reads both
       }},
      {"rows over two dims", 2,
       [](const auto& x) {
         Tensor y = x[0].view({x[0].size(0), 2, -1}), z = x[1].view(y.sizes());
         return layer_norm(y + z, {2, y.size(2)}).tanh();
       }},
  };
}

TEST(FuseRows, SameBitsInOnePass) {
  NoGradGuard no_grad;
  for (DType type : {DType::f32, DType::bf16, DType::f64}) {
    for (auto [rows, n] : {std::pair<int64_t, int64_t>{701, 800}, {3, 80002}, {2, 6}, {9, 2}}) {
      std::vector<Tensor> x = inputs(rows, n, type), y = inputs(rows, n, type);
      for (const Case& c : cases()) {
        Compiled compiled = compile_list(c.f);
        compiled.run(x);
        std::string text = compiled.explain(), wanted = fmt::format("fuse_rows: {} passes", c.saved);
        EXPECT_TRUE(contains(text, wanted)) << c.name << "\n" << text;
        EXPECT_TRUE(same(compiled.run(y)[0], c.f(y))) << c.name << " " << name_of(type) << " " << rows;
        EXPECT_TRUE(same(compiled.run(x)[0], c.f(x))) << c.name << " " << name_of(type) << " " << rows;
      }
    }
  }
}

// Strips of these sizes have several rows, one, or one at the end.
TEST(FuseRows, SumsOfRows) {
  NoGradGuard no_grad;
  const Case sums[] = {
      {"sum of squares", 1, [](const auto& x) { return (x[0] * x[0]).sum({-1}); }},
      {"mean of differences", 1, [](const auto& x) { return (x[0] - x[1]).abs().mean({1}); }},
      {"with its dim", 1, [](const auto& x) { return x[0] / (x[0] + x[2]).exp().sum({-1}, true); }},
      {"largest", 1, [](const auto& x) { return (x[0] * x[3] + 1).amax({-1}) - 1; }},
      {"smallest of a cast", 1, [](const auto& x) { return x[0].to(DType::f16).amin({1}); }},
      {"two dims", 1,
       [](const auto& x) {
         return (x[0].view({x[0].size(0), 2, -1}) * 3).sum({1, 2});
       }},
      {"integers", 1, [](const auto& x) { return (x[0] > x[1]).sum({-1}); }},
  };
  for (DType type : {DType::f32, DType::bf16, DType::f64}) {
    for (auto [rows, n] : {std::pair<int64_t, int64_t>{701, 800}, {66, 1000}, {3, 60000}, {2, 6}, {9, 2}, {131, 500}}) {
      std::vector<Tensor> x = inputs(rows, n, type), y = inputs(rows, n, type);
      for (const Case& c : sums) {
        Compiled compiled = compile_list(c.f);
        compiled.run(x);
        std::string text = compiled.explain();
        EXPECT_TRUE(contains(text, "= fused_rows(")) << c.name << " " << name_of(type) << rows << "\n" << text;
        EXPECT_TRUE(same(compiled.run(y)[0], c.f(y))) << c.name << " " << name_of(type) << " " << rows;
      }
    }
  }
  std::vector<Tensor> x = inputs(9, 70000, DType::f32), few = inputs(64, 64, DType::f32);
  for (const F& f :
       {F([](const auto& in) { return (in[0] * 2).sum({0}); }), F([](const auto& in) { return (in[0] * 2).sum(); }),
        F([](const auto& in) { return (in[0] * 2).sum({1}); })}) {  // rows too long
    Compiled compiled = compile_list(f);
    compiled.run(x);
    EXPECT_FALSE(contains(compiled.explain(), "= fused_rows(")) << compiled.explain();
  }
  Compiled small = compile_list(sums[0].f, {});
  small.run(few);
  EXPECT_TRUE(contains(small.explain(), "which gains nothing")) << small.explain();
  Compiled large = compile_list(sums[0].f, {});
  large.run(inputs(512, 1024, DType::f32));
  EXPECT_TRUE(contains(large.explain(), "= fused_rows(")) << large.explain();
}

TEST(FuseRows, ThreadsDoNotShow) {
  NoGradGuard no_grad;
  std::vector<Tensor> x = inputs(333, 1000, DType::f32);
  Compiled compiled = compile_list(cases()[2].f);
  compiled.run(x);
  int before = num_threads();
  Tensor many = compiled.run(x)[0];
  set_num_threads(1);
  Tensor one = compiled.run(x)[0];
  set_num_threads(before);
  EXPECT_TRUE(same(one, many));
}

TEST(FuseRows, UnderAutocast) {
  NoGradGuard no_grad;
  AutocastGuard amp(DType::bf16);
  Tensor w = randn({512, 512});
  F f = [&](const auto& x) {
    Tensor y = layer_norm(linear(x[0], w) + x[1], {512});
    return linear(y, w) + y;
  };
  std::vector<Tensor> x = {randn({600, 512}), randn({600, 512})};
  Compiled compiled = compile_list(f, without("cost_model,fuse_epilogues"));
  compiled.run(x);
  // The sum goes into the norm, and so does the cast for the second matmul; f32 rows are kept for the residual.
  EXPECT_TRUE(contains(compiled.explain(), "fuse_rows: 2 passes")) << compiled.explain();
  EXPECT_TRUE(same(compiled.run(x)[0], f(x)));
}

TEST(FuseRows, WhatMustStay) {
  NoGradGuard no_grad;
  const std::pair<const char*, F> stay[] = {
      {"another dim", [](const auto& x) { return (x[0] + x[1]).softmax(0); }},
      {"a column repeats", [](const auto& x) { return (x[0] * x[1].narrow(1, 0, 1)).softmax(-1); }},
      {"read by others",
       [](const auto& x) {
         Tensor s = x[0] + x[1];
         return s.softmax(-1).clone() + s;
       }},
      {"another order", [](const auto& x) { return (x[0].t() + x[1].t()).softmax(-1); }},
      {"written between",
       [](const auto& x) {
         Tensor a = x[0] * 1, s = a + x[1];
         a.zero_();
         return s.softmax(-1).clone() + a;
       }},
  };
  std::vector<Tensor> x = inputs(701, 800, DType::f32), y = inputs(701, 800, DType::f32);
  for (const auto& [name, f] : stay) {
    Compiled compiled = compile_list(f, without("cost_model,fuse_elementwise"));
    compiled.run(x);
    EXPECT_FALSE(contains(compiled.explain(), "= fused_rows(")) << name << "\n" << compiled.explain();
    EXPECT_TRUE(same(compiled.run(y)[0], f(y))) << name;
  }
  for (int i : {0, 2}) {  // too little to save
    Compiled small = compile_list(cases()[static_cast<size_t>(i)].f, {});
    small.run(x);
    EXPECT_TRUE(contains(small.explain(), i ? "two passes of" : "a pass of")) << small.explain();
    EXPECT_FALSE(contains(small.explain(), "= fused_rows("));
  }
  Compiled large = compile_list(cases()[2].f, {});
  large.run(inputs(5000, 1000, DType::f32));
  EXPECT_TRUE(contains(large.explain(), "= fused_rows(")) << large.explain();
  Compiled off = compile_list(cases()[0].f, without("fuse_rows"));
  off.run(x);
  EXPECT_TRUE(contains(off.explain(), "fuse_rows: switched off"));
  EXPECT_TRUE(contains(off.explain(), "= softmax("));
}

}  // namespace
}  // namespace deft
