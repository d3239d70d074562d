// What integers and bools do where PyTorch raises, and where it does not.
#include <functional>

#include "core/core_util.h"
#include "core/function.h"
#include "graph/compile.h"
#include "ops/activation.h"
#include "ops/attention.h"
#include "ops/gather_scatter.h"
#include "ops/loss.h"
#include "ops/norm.h"
#include "ops/resize.h"
#include "ops/ternary.h"

namespace deft {
namespace {

Tensor bools(std::vector<bool> v) { return tensor(v); }
Tensor whole(std::initializer_list<int64_t> v, DType t = DType::i64) { return tensor<int64_t>(v).to(t); }

TEST(Integers, DivisionByZeroRaises) {
  for (DType t : {DType::i8, DType::u8, DType::i32, DType::i64}) {
    Tensor x = whole({7, 3}, t), zero = whole({2, 0}, t);
    using Divide = std::function<Tensor(const Tensor&, const Tensor&)>;
    for (const Divide& f :
         {Divide([](auto&a, auto&b) { return floor_divide(a, b); }),
          Divide([](auto&a, auto&b) { return remainder(a, b); }), Divide([](auto&a, auto&b) { return fmod(a, b); })}) {
      expect_error<ValueError>([&] { f(x, zero); }, "divided by 0");
      expect_error<ValueError>([&] { f(x, scalar_tensor(0, t)); }, "divided by 0");
      expect_error<ValueError>([&] { f(x.expand({3, 2}), zero.unsqueeze(0)); }, "divided by 0");
      EXPECT_EQ(f(zeros({0}, t), scalar_tensor(0, t)).numel(), 0);
      EXPECT_NO_THROW(f(zero, x));
      EXPECT_NO_THROW(f(x.to(DType::f32), zero));  // floats have infinities
    }
    expect_error<ValueError>([&] { floor_divide(x, 0); }, "divided by 0");
    expect_error<ValueError>([&] { remainder(5, zero); }, "divided by 0");
    Tensor y = x.clone();
    expect_error<ValueError>([&] { y.fmod_(zero); }, "divided by 0");
    EXPECT_VALUES(y, 7, 3);  // nothing was written
    NoGradGuard no_grad;
    expect_error<ValueError>([&] { y.remainder_(zero); }, "divided by 0");
  }
}

TEST(Integers, NegativePowers) {
  for (DType t : {DType::i8, DType::u8, DType::i64, DType::boolean}) {
    Tensor x = ones({2}, t);
    expect_error<ValueError>([&] { x.pow(-1); }, "not whole numbers");
    expect_error<ValueError>([&] { x.pow_(-2); }, "not whole numbers");
    if (t == DType::i8 || t == DType::u8) expect_error<ValueError>([&] { x.pow(300); }, "does not fit");
  }
  EXPECT_VALUES(whole({2, -1, -1, 1}).pow(whole({-1, -1, -2, -5})), 0, -1, 1, 1);  // a tensor of powers does not raise
  EXPECT_EQ(whole({2}).pow(-1.0).dtype(), DType::f32);
  EXPECT_VALUES(whole({2}).pow(-1.0), 0.5);
}

TEST(Integers, ValuesThatDoNotFit) {
  Tensor x = zeros({2}, DType::i8), mask = bools({true, false});
  const std::vector<std::function<void()>> bad = {
      [&] { full({2}, 300, DType::i8); },
      [&] { full_like(x, -129); },
      [&] { x.fill_(128.0); },
      [&] { x.new_full({1}, 1e9); },
      [&] { x.masked_fill(mask, 300); },
      [&] { where(mask, x, 300); },
      [&] { scatter(x, 0, whole({0}), 300); },
      [&] {
        pad(x, {1, 1}, PadMode::constant, 300);
      },
      [&] { threshold(x, 0, 300); },
      [&] { full({2}, -256, DType::u8); },
      [&] { full({2}, -1.0, DType::u8); },
      [&] { full({2}, NAN, DType::i32); },
      [&] { full({2}, 3e9, DType::i32); },
      [&] { full({2}, 1e19, DType::i64); },
      [&] { full({2}, 1e6, DType::f16); },
      [&] { full({2}, 1e39, DType::bf16); },
      [&] { full({2}, 1e39); },
  };
  for (size_t i = 0; i < bad.size(); ++i) {
    SCOPED_TRACE(i);
    expect_error<ValueError>(bad[i], "does not fit into");
  }
  EXPECT_VALUES(x, 0, 0);
  EXPECT_VALUES(full({1}, -1, DType::u8), 255);
  EXPECT_VALUES(full({1}, 127.9, DType::i8), 127);
  EXPECT_VALUES(full({1}, INFINITY, DType::f16), INFINITY);
  EXPECT_VALUES(full({1}, 3, DType::boolean), 1);
  EXPECT_VALUES(x + 300, 44, 44);  // arithmetic wraps
  EXPECT_EQ(where(mask, x, 0.5).dtype(), DType::f32);
}

TEST(Integers, BoolsInArithmetic) {
  Tensor b = bools({true, false, true}), c = bools({true, true, false}), f = ones({3});
  const std::vector<std::function<void()>> bad = {
      [&] { b - c; },
      [&] { b - f; },
      [&] { f - b; },
      [&] { f - true; },
      [&] { b - 1; },
      [&] { 1 - b; },
      [&] { f.sub_(b); },
      [&] {
        whole({1, 2, 3}) - true;
      },
      [&] { b.pow(c); },
      [&] { pow(true, b); },
      [&] { b.clamp(false, true); },
      [&] { b.neg(); },
      [&] { clamp(b, c, b); },
      [&] { bitwise_left_shift(b, c); },
      [&] { hypot(b, c); },
      [&] { logaddexp(whole({1}), whole({2})); },
      [&] { hypot(whole({1}), whole({2})); },
      [&] { hardtanh(b); },
      [&] { threshold(b, 0, 1); },
  };
  for (size_t i = 0; i < bad.size(); ++i) {
    SCOPED_TRACE(i);
    expect_error<DTypeError>(bad[i], "does not take");
  }
  EXPECT_VALUES(b.pow(2), 1, 0, 1);
  EXPECT_EQ(b.pow(2).dtype(), DType::i64);
  EXPECT_EQ(b.pow(true).dtype(), DType::boolean);
  EXPECT_VALUES(b.pow(false), 1, 1, 1);
  EXPECT_VALUES(pow(2, b), 2, 1, 2);
  EXPECT_VALUES(whole({7, -7, 0}).pow(b), 7, 1, 0);
  EXPECT_VALUES(b.pow(0.5), 1, 0, 1);
  EXPECT_EQ(b.clamp(0, 1).dtype(), DType::i64);
  EXPECT_VALUES(b.clamp(1), 1, 1, 1);
  EXPECT_VALUES(b.clamp(0.5, 1), 1, 0.5, 1);
  EXPECT_EQ(b.clamp(0.5, 1).dtype(), DType::f32);
  auto [values_of, at] = max(b, 0);
  EXPECT_EQ(values_of.dtype(), DType::boolean);
  EXPECT_VALUES(values_of, 1);
  EXPECT_VALUES(at, 0);
  EXPECT_VALUES(min(b, 0)[1], 1);
  EXPECT_EQ(b.sign().dtype(), DType::boolean);
  EXPECT_VALUES(b.sign(), 1, 0, 1);
  EXPECT_VALUES(bitwise_left_shift(b, 1), 2, 0, 2);
  EXPECT_VALUES(bitwise_left_shift(whole({7, -7, 0}), b), 14, -7, 0);
  EXPECT_VALUES(bitwise_right_shift(b, 1), 0, 0, 0);
}

TEST(Integers, FunctionsOfFloatsThatTakeThem) {
  Tensor x = whole({7, -7, 0});
  EXPECT_EQ(hypot(x, ones({3})).dtype(), DType::f32);
  EXPECT_VALUES(hypot(whole({3}), tensor<double>({4})), 5);
  EXPECT_VALUES(threshold(x, 1, -3), 7, -3, -3);
  EXPECT_VALUES(threshold(x, 0.5, 1.7), 7, 1, 1);
  EXPECT_EQ(threshold(x.to(DType::i8), 0, 1).dtype(), DType::i8);
  EXPECT_VALUES(hardtanh(x), 1, -1, 0);
  EXPECT_VALUES(hardtanh(x, -1.5, 2.5), 2, -1, 0);
  EXPECT_VALUES(hardtanh(whole({7, 3}, DType::u8), 0, 4), 4, 3);
  Tensor y = x.clone(), z = x.clone();
  EXPECT_VALUES(hardtanh_(y, -2, 2), 2, -2, 0);
  EXPECT_VALUES(threshold_(z, 0, 4), 7, 4, 4);
}

TEST(Integers, PadsThatCropInEveryMode) {
  Tensor x = arange(6.0).view({1, 1, 6});
  auto padded = [&](int64_t a, int64_t b, PadMode mode) { return values(pad(x, {a, b}, mode)); };
  using V = std::vector<double>;
  EXPECT_EQ(padded(-1, 4, PadMode::reflect), (V{1, 2, 3, 4, 5, 4, 3, 2, 1}));
  EXPECT_EQ(padded(-4, 5, PadMode::reflect), (V{4, 5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(padded(2, -1, PadMode::replicate), (V{0, 0, 0, 1, 2, 3, 4}));
  EXPECT_EQ(padded(-4, 5, PadMode::replicate), (V{4, 5, 5, 5, 5, 5, 5}));
  EXPECT_EQ(padded(-1, 2, PadMode::circular), (V{1, 2, 3, 4, 5, 1, 2}));
  EXPECT_EQ(padded(2, -1, PadMode::circular), (V{3, 4, 0, 1, 2, 3, 4}));
  EXPECT_EQ(padded(-4, 1, PadMode::circular), (V{4, 5, 4}));
  for (PadMode mode : {PadMode::reflect, PadMode::replicate, PadMode::circular}) {
    EXPECT_EQ(padded(-1, -2, mode), (V{1, 2, 3}));
    expect_error<ShapeError>([&] { padded(-7, 0, mode); }, "pad");
  }
  expect_error<ShapeError>([&] { padded(-3, -3, PadMode::reflect); }, "leave nothing");
  expect_error<ShapeError>([&] { padded(-3, 6, PadMode::reflect); }, "pad");
  Tensor leaf_x = x.clone().requires_grad_();
  pad(leaf_x, {-1, 2}, PadMode::reflect).sum().backward();
  EXPECT_VALUES(leaf_x.grad(), 0, 1, 1, 2, 2, 1);
}

TEST(Losses, BroadcastAndSaySoOnce) {
  Tensor x = tensor<double>({1, 2, 3, 4, 5, 6}).view({2, 3}), t = tensor<double>({1, 1, 1});
  testing::internal::CaptureStderr();
  EXPECT_VALUES(mse_loss(x, t), 55.0 / 6);
  EXPECT_VALUES(l1_loss(x, t), 2.5);
  EXPECT_VALUES(huber_loss(x, t, Reduction::sum), 0 + 0.5 + 1.5 + 2.5 + 3.5 + 4.5);
  EXPECT_EQ(smooth_l1_loss(x.narrow(1, 0, 1), t, Reduction::none).sizes(), (Shape{2, 3}));
  EXPECT_EQ(kl_div(x, t.narrow(0, 0, 1), KlReduction::none).sizes(), (Shape{2, 3}));
  std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(said.find("rarely meant"), said.rfind("rarely meant")) << said;  // at most once in a process
  Tensor a = x.clone().requires_grad_(), b = t.clone().requires_grad_();
  mse_loss(a, b, Reduction::sum).backward();
  EXPECT_VALUES(a.grad(), 0, 2, 4, 6, 8, 10);
  EXPECT_VALUES(b.grad(), -6, -10, -14);
  expect_error<ShapeError>([&] { mse_loss(x, ones({2}, DType::f64)); }, "mse_loss");
  expect_error<ShapeError>([&] { binary_cross_entropy_with_logits(x, t); }, "must match");
  expect_error<ShapeError>([&] { binary_cross_entropy(x.sigmoid(), t); }, "must match");
}

TEST(InPlace, WritesBeforeBackwardThatPyTorchAllows) {
  // The gradients must be those of the values before the write.
  auto check = [](const char* what, const std::function<Tensor(const Tensors&)>& f, const Tensors& inputs,
                  std::vector<size_t> written) {
    SCOPED_TRACE(what);
    std::vector<Tensor> want;
    for (bool write : {false, true}) {
      Tensors leaves, used;
      for (const Tensor& t : inputs) leaves.push_back(t.clone().requires_grad_());
      for (const Tensor& t : leaves) used.push_back(t * 1);
      Tensor y = f(used).square().sum();
      if (write)
        for (size_t i : written) used[i].mul_(3);
      y.backward();
      for (size_t i = 0; i < leaves.size(); ++i)
        if (write)
          expect_close(leaves[i].grad(), want[i], std::to_string(i));
        else
          want.push_back(leaves[i].grad());
    }
  };
  for (Reduction r : {Reduction::mean, Reduction::sum, Reduction::none})
    check("l1_loss", [r](const Tensors& t) { return l1_loss(t[0], t[1], r); }, {sample({3, 4}), sample({3, 4}, 2)},
          {0, 1});
  auto attend = [](const Tensors& t) { return scaled_dot_product_attention(t[0], t[1], t[2]); };
  check("attention", attend, {sample({4, 8}), sample({4, 8}, 2), sample({4, 8}, 3)}, {0, 1});
  check("attention", attend, {sample({1, 2, 4, 8}), sample({1, 2, 4, 8}, 2), sample({1, 2, 4, 6}, 3)}, {0, 1});
  check("attention", [](const Tensors& t) { return scaled_dot_product_attention(t[0], t[1], t[2], t[3]); },
        {sample({1, 2, 4, 8}), sample({1, 2, 4, 8}, 2), sample({1, 2, 4, 8}, 3), sample({4, 4}, 4)}, {0, 1, 3});
  check("instance_norm", [](const Tensors& t) { return instance_norm(t[0], {}, {}, t[1]); },
        {sample({2, 3, 4}), sample({3}, 2)}, {1});
}

TEST(Attention, FewerHeadsOfKeys) {
  Tensor q = leaf({2, 4, 3, 5}), k = leaf({2, 2, 6, 5}, 2), v = leaf({2, 1, 6, 5}, 3);
  Tensor y = scaled_dot_product_attention(q, k, v, {}, 0, false, {}, true);
  auto repeated = [](const Tensor& t, int64_t n) {
    return t.unsqueeze(2).expand({2, t.size(1), n, 6, 5}).reshape({2, 4, 6, 5});
  };
  Tensor want = scaled_dot_product_attention(q, repeated(k, 2), repeated(v, 4));
  expect_close(y, want);
  Tensor g = sample({2, 4, 3, 5}, 9);
  y.backward(g);
  std::vector<Tensor> grads = {q.grad().clone(), k.grad().clone(), v.grad().clone()};
  for (Tensor* t : {&q, &k, &v}) t->zero_grad();
  want.backward(g);
  expect_close(grads[0], q.grad());
  expect_close(grads[1], k.grad());
  expect_close(grads[2], v.grad());
  auto fast = compile([&](const Tensor& x) { return scaled_dot_product_attention(x, k, v, {}, 0, true, {}, true); });
  Tensor x = sample({2, 4, 3, 5}, 11);
  NoGradGuard no_grad;
  expect_close(fast(x), scaled_dot_product_attention(x, k, v, {}, 0, true, {}, true));
  expect_error<ShapeError>(
      [&] { scaled_dot_product_attention(q, q.narrow(1, 0, 3), q.narrow(1, 0, 3), {}, 0, false, {}, true); },
      "multiple");
  EXPECT_EQ(scaled_dot_product_attention(q[0], k[0], v[0], {}, 0, false, {}, true).sizes(), (Shape{4, 3, 5}));
}

}  // namespace
}  // namespace deft
