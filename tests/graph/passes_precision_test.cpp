#include <gtest/gtest.h>

#include <cstring>

#include "amp/autocast.h"
#include "core/grad_mode.h"
#include "graph/compile.h"
#include "ops/all_ops.h"

namespace deft {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }
bool same(const Tensor& a, const Tensor& b) {
  Tensor x = a.contiguous(), y = b.contiguous();
  return a.sizes() == b.sizes() && a.dtype() == b.dtype() &&
         std::memcmp(x.data_ptr(), y.data_ptr(), static_cast<size_t>(x.numel()) * x.element_size()) == 0;
}
using F = std::function<Tensor(const Tensor&)>;
struct Case {
  const char* note;
  F f;
};
void check(const Case& c, const Tensor& x, const Tensor& y) {
  auto compiled = compile(c.f);
  compiled(x);
  EXPECT_TRUE(same(compiled(y), c.f(y))) << c.note << compiled.explain();
  EXPECT_TRUE(contains(compiled.explain(), c.note)) << c.note << "\n" << compiled.explain();
}

TEST(AssignPrecision, WiderAndBack) {
  NoGradGuard no_grad;
  Tensor x = randn({5, 8}).to(DType::bf16), y = randn({5, 8}).to(DType::bf16);
  const Case cases[] = {
      {"1 casts gone, 0 from", [](const Tensor& t) { return (t * 2).to(DType::f32).to(DType::bf16).softmax(-1); }},
      {"3 casts gone, 0 from",
       [](const Tensor& t) {
         Tensor u = t.to(DType::f64).to(DType::bf16), v = u.to(DType::f32).to(DType::bf16);
         return v.to(DType::f32).to(DType::bf16).softmax(-1);
       }},
      {"0 casts gone, 1 from", [](const Tensor& t) { return t.to(DType::f32).to(DType::f64).softmax(-1); }},
      {"1 casts gone, 0 from",  // the wide one is read too
       [](const Tensor& t) {
         Tensor wide = t.to(DType::f32);
         return wide.to(DType::bf16).softmax(-1).to(DType::f32) + wide.softmax(-1);
       }},
  };
  for (const Case& c : cases) check(c, x, y);
}

// A user who goes back to f32 between two matmuls of an autocast region.
TEST(AssignPrecision, UnderAutocast) {
  NoGradGuard no_grad;
  AutocastGuard amp(DType::bf16);
  Tensor w = randn({8, 8});
  check({"1 casts gone", [&](const Tensor& t) { return linear(linear(t, w).to(DType::f32), w); }}, randn({5, 8}),
        randn({5, 8}));
}

TEST(AssignPrecision, WhatMustStay) {
  NoGradGuard no_grad;
  Tensor x = randn({5, 8}), y = randn({5, 8});
  const F stay[] = {
      [](const Tensor& t) { return t.to(DType::bf16).to(DType::f32).softmax(-1); },  // rounds
      [](const Tensor& t) { return t.to(DType::f16).to(DType::bf16).softmax(-1); },
      [](const Tensor& t) { return (t * 100).to(DType::i64).to(DType::f32).softmax(-1); },
      [](const Tensor& t) {  // written between
        Tensor a = t.to(DType::bf16), b = a.to(DType::f32), c = b.to(DType::bf16);
        a.zero_();
        return c.softmax(-1) + a;
      },
      [](const Tensor& t) {  // the result is written
        Tensor a = t.to(DType::bf16) * 1, c = a.to(DType::f32).to(DType::bf16);
        c.add_(1);
        return a.softmax(-1) + c;
      },
      [](const Tensor& t) {  // the wide one is written
        Tensor a = t.to(DType::bf16) * 1, b = a.to(DType::f32);
        b.add_(1e-3);
        return b.to(DType::bf16) + a.softmax(-1);
      },
  };
  for (const F& f : stay) {
    auto compiled = compile(f);
    compiled(x);
    EXPECT_TRUE(same(compiled(y), f(y))) << compiled.explain();
    EXPECT_FALSE(contains(compiled.explain(), "done: assign_precision: 1 casts gone")) << compiled.explain();
  }
  // A result that goes to the caller is a tensor of its own.
  F f = [](const Tensor& t) { return t.to(DType::f64).to(DType::f32); };
  auto compiled = compile(f);
  compiled(x);
  Tensor found = compiled(y);
  EXPECT_TRUE(same(found, y));
  EXPECT_FALSE(found.shares_storage_with(y));
  auto off = compile(f, {.passes = graph::without({}, "assign_precision")});
  off(x);
  EXPECT_TRUE(contains(off.explain(), "assign_precision: switched off"));
}

}  // namespace
}  // namespace deft
