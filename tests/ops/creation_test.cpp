#include "ops/creation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "core/grad_mode.h"
#include "ops/copy.h"
#include "ops/reduce.h"
#include "ops/view.h"

namespace deft {
namespace {

constexpr DType kTypes[] = {f32, f64, bf16, f16, i8, u8, i32, i64, boolean};
using Numbers = std::vector<double>;

Numbers values(const Tensor& t) { return t.to_vector<double>(); }

TEST(Creation, ConstantsInEveryType) {
  for (DType t : kTypes) {
    EXPECT_EQ(values(zeros({2, 3}, t)), Numbers(6, 0)) << name_of(t);
    EXPECT_EQ(values(ones({2, 3}, t)), Numbers(6, 1)) << name_of(t);
    EXPECT_EQ(values(full({5}, 3, t)), Numbers(5, t == boolean ? 1 : 3)) << name_of(t);
    EXPECT_EQ(empty({4, 0, 2}, t).numel(), 0);
    EXPECT_EQ(zeros({2}, t).dtype(), t);
  }
  EXPECT_EQ(full({}, 2.5).item(), 2.5);
  EXPECT_EQ(full({2}, 2.9, i32).to_vector<int32_t>(), (std::vector<int32_t>{2, 2}));
  EXPECT_EQ(scalar_tensor(7, i64).item<int64_t>(), 7);
  EXPECT_EQ(scalar_tensor(7, i64).dim(), 0);
  EXPECT_EQ(scalar_tensor((int64_t{1} << 62) + 1, i64).item<int64_t>(), (int64_t{1} << 62) + 1);  // not through double
}

TEST(Creation, DefaultsAreF32OnCpuWithoutGrad) {
  Tensor t = zeros({2});
  EXPECT_EQ(t.dtype(), f32);
  EXPECT_TRUE(t.device().is_cpu());
  EXPECT_FALSE(t.requires_grad());
  EXPECT_EQ(t.version(), 0u);
  EXPECT_EQ(full({2}, 1).version(), 0u);
}

TEST(Creation, RequiresGradHoldsInEveryMode) {
  EXPECT_TRUE(zeros({2}, with_grad()).requires_grad());
  EXPECT_TRUE(zeros({2}, with_grad()).is_leaf());
  NoGradGuard guard;
  EXPECT_TRUE(full({2}, 3, with_grad(f64)).requires_grad());
  EXPECT_THROW(zeros({2}, with_grad(i64)), GradError);
}

TEST(Creation, BadSizesThrow) {
  EXPECT_THROW(zeros({-1, 2}), ShapeError);
  EXPECT_THROW(zeros({std::numeric_limits<int64_t>::max(), 4}), ShapeError);
  EXPECT_THROW(empty({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}), ShapeError);
  EXPECT_THROW(zeros({2}, TensorOptions(f32, Device{DeviceType::cuda, 99})), DeviceError);
}

TEST(Creation, Arange) {
  EXPECT_EQ(values(arange(4)), (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(arange(4).dtype(), i64);
  EXPECT_EQ(values(arange(2, 9, 3)), (Numbers{2, 5, 8}));
  EXPECT_EQ(values(arange(5, 1, -2)), (Numbers{5, 3}));
  EXPECT_EQ(arange(0, 1, 0.25).dtype(), f32);
  EXPECT_EQ(values(arange(0, 1, 0.25)), (Numbers{0, 0.25, 0.5, 0.75}));
  EXPECT_EQ(arange(3, 3).numel(), 0);
  EXPECT_EQ(values(arange(0, 3, 1, bf16)), (Numbers{0, 1, 2}));
  EXPECT_THROW(arange(0, 3, 0), ValueError);
  EXPECT_THROW(arange(0, 3, -1), ValueError);
  EXPECT_THROW(arange(0, NAN, 1), ValueError);
  EXPECT_THROW(arange(0, 1, 1e-300), ShapeError);
  int64_t big = int64_t{1} << 60;  // beyond what a double counts exactly
  EXPECT_EQ(arange(big, big + 3).to_vector<int64_t>(), (std::vector<int64_t>{big, big + 1, big + 2}));
}

TEST(Creation, Linspace) {
  EXPECT_EQ(values(linspace(0, 1, 5, f64)), (Numbers{0, 0.25, 0.5, 0.75, 1}));
  EXPECT_EQ(values(linspace(3, -3, 3)), (Numbers{3, 0, -3}));
  EXPECT_EQ(values(linspace(2, 5, 1)), Numbers{2});
  EXPECT_EQ(linspace(2, 5, 0).numel(), 0);
  EXPECT_EQ(values(linspace(0, 0.1, 7, f64)).back(), 0.1);
  EXPECT_THROW(linspace(0, 1, -1), ValueError);
}

// Sizes around the blocks they are made in, and integers that only i64 holds.
TEST(Creation, LongSequences) {
  for (DType t : {f32, f64, bf16, f16, i32, i64})
    for (int64_t n : {1, 511, 512, 513, 1024, 40001}) {
      Tensor whole = arange(-7, n - 7, 1, t), parts = arange(0.25, 0.25 + 0.5 * static_cast<double>(n), 0.5, t);
      Tensor line = linspace(-1, 2, n, t);
      ASSERT_EQ(whole.numel(), n);
      ASSERT_EQ(parts.numel(), n);
      Numbers first, second, third;
      for (int64_t i = 0; i < n; ++i) {
        double at = static_cast<double>(i), left = static_cast<double>(n - 1 - i),
               step = 3 / static_cast<double>(n - 1);
        first.push_back(at - 7);
        second.push_back(0.25 + at * 0.5);
        third.push_back(2 * i < n ? -1 + (n > 1 ? at * step : 0) : 2 - left * step);
      }
      auto expected = [&](const Numbers& v) {
        if (t == i64 || t == i32) return Numbers(v);
        Tensor wide = empty({n}, f64);
        std::copy(v.begin(), v.end(), wide.data<double>());
        return values(t == f64 ? wide : wide.to(f32).to(t));
      };
      auto truncated = [&](Numbers v) {
        if (!is_floating(t))
          for (double& x : v) x = std::trunc(x);
        return v;
      };
      EXPECT_EQ(values(whole), expected(first)) << name_of(t) << " " << n;
      EXPECT_EQ(values(parts), expected(truncated(second))) << name_of(t) << " " << n;
      // A compiler may fuse the product and the sum, which rounds once instead of twice.
      const Numbers found = values(line), wanted = expected(truncated(third));
      for (size_t i = 0; i < found.size(); ++i)
        ASSERT_NEAR(found[i], wanted[i], epsilon_of(t)) << name_of(t) << " " << n << " at " << i;
    }
  int64_t big = (int64_t{1} << 53) + 3;  // through f64 it would round twice
  EXPECT_EQ(values(arange(big, big + 1, 1, f32)), Numbers{static_cast<double>(static_cast<float>(big))});
}

TEST(Creation, Eye) {
  EXPECT_EQ(values(eye(2)), (Numbers{1, 0, 0, 1}));
  EXPECT_EQ(values(eye(2, 3, i32)), (Numbers{1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(eye(0).numel(), 0);
  EXPECT_EQ(eye(3, 0).numel(), 0);
}

TEST(Creation, LikeKeepsShapeTypeAndLayout) {
  Tensor x = zeros({2, 3, 4, 5}, bf16).contiguous(MemoryFormat::channels_last);
  for (const Tensor& t : {empty_like(x), zeros_like(x), ones_like(x), full_like(x, 3)}) {
    EXPECT_EQ(t.sizes(), x.sizes());
    EXPECT_EQ(t.strides(), x.strides());
    EXPECT_EQ(t.dtype(), bf16);
  }
  EXPECT_EQ(values(full_like(x, 3)), Numbers(120, 3));
  Tensor spread = zeros({6}).slice(0, Slice(0, 6, 2));
  EXPECT_TRUE(ones_like(spread).is_contiguous());
  EXPECT_THROW(zeros_like(Tensor()), ValueError);
  EXPECT_THROW(ones_like(Tensor()), ValueError);
}

TEST(Creation, FromValues) {
  EXPECT_EQ(values(tensor({1.5, 2.5})), (Numbers{1.5, 2.5}));
  EXPECT_EQ(tensor({1.5, 2.5}).dtype(), f64);
  EXPECT_EQ(tensor({1.5f}).dtype(), f32);
  EXPECT_EQ(tensor({true, false}).dtype(), boolean);
  EXPECT_EQ(tensor({1, 2, 3}).dtype(), i32);
  EXPECT_EQ(values(tensor({1, 2, 3}, f16)), (Numbers{1, 2, 3}));
  EXPECT_EQ(tensor(std::vector<float>{}).numel(), 0);
}

TEST(Creation, FromBlobSharesAndFrees) {
  float data[6] = {0, 1, 2, 3, 4, 5};
  int freed = 0;
  {
    Tensor t = from_blob(data, {2, 2}, f32, {3, 1}, [&] { ++freed; });
    EXPECT_EQ(values(t), (Numbers{0, 1, 3, 4}));
    data[3] = 7;
    EXPECT_EQ(t[1][0].item(), 7);
    Tensor view = t[0];
    t = Tensor();
    EXPECT_EQ(freed, 0) << "a view still uses the memory";
  }
  EXPECT_EQ(freed, 1);
  EXPECT_THROW(from_blob(nullptr, {2}), ValueError);
  EXPECT_THROW(from_blob(data, {2}, f32, {1, 1}), ShapeError);
  EXPECT_THROW(from_blob(data, {2}, f32, {-1}), ShapeError);
}

TEST(Copy, ContiguousCopiesOnlyWhenItMust) {
  Tensor x = arange(6).view({2, 3});
  EXPECT_TRUE(x.contiguous().is_same(x));
  Tensor t = x.t().contiguous();
  EXPECT_FALSE(t.shares_storage_with(x));
  EXPECT_EQ(values(t), (Numbers{0, 3, 1, 4, 2, 5}));
  Tensor image = zeros({2, 3, 4, 5});
  EXPECT_TRUE(image.contiguous(MemoryFormat::channels_last).is_contiguous(MemoryFormat::channels_last));
}

TEST(Copy, ToKeepsGradientsInTheirTypes) {
  Tensor x = tensor({1.5, 2.5}, with_grad(f64));
  EXPECT_TRUE(x.to(f64).is_same(x));
  Tensor y = x.to(f32);
  y.backward(tensor({3.0f, 4.0f}));
  EXPECT_EQ(x.grad().dtype(), f64);
  EXPECT_EQ(values(x.grad()), (Numbers{3, 4}));
  EXPECT_EQ(tensor({1.5f}).to(f64).dtype(), f64);
  EXPECT_FALSE(x.to(i64).requires_grad());
}

TEST(Copy, FloatToIntegerSaturates) {
  Tensor x = tensor({1e30, -1e30, double(NAN), 3.9, -3.9});
  EXPECT_EQ(x.to(i32).to_vector<int32_t>(), (std::vector<int32_t>{INT32_MAX, INT32_MIN, 0, 3, -3}));
  EXPECT_EQ(x.to(i64).to_vector<int64_t>(), (std::vector<int64_t>{INT64_MAX, INT64_MIN, 0, 3, -3}));
  EXPECT_EQ(x.to(boolean).to_vector<bool>(), (std::vector<bool>{true, true, true, true, true}));
}

TEST(Copy, FillTruncatesForIntegers) {
  Tensor x = zeros({2}, i32);
  x.fill_(-2.9);
  EXPECT_EQ(x.to_vector<int32_t>(), (std::vector<int32_t>{-2, -2}));
  Tensor big = zeros({1}, i64);
  big.fill_((int64_t{1} << 60) + 1);
  EXPECT_EQ(big.item<int64_t>(), (int64_t{1} << 60) + 1);
}

}  // namespace
}  // namespace deft
