#include "runtime/dtype.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "runtime/device.h"

namespace deft {
namespace {

constexpr DType kAll[] = {DType::f32, DType::f64, DType::bf16, DType::f16,    DType::i8,
                          DType::u8,  DType::i32, DType::i64,  DType::boolean};
static_assert(std::size(kAll) == kDTypeCount);

TEST(DType, PropertiesMatchTheCppType) {
  for (DType t : kAll) {
    dispatch_all(t, [&]<class T>() {
      EXPECT_EQ(dtype_of<T>, t);
      EXPECT_EQ(sizeof(T), size_of(t)) << name_of(t);
    });
    dispatch_bits(t, [&]<class T>() { EXPECT_EQ(sizeof(T), size_of(t)) << name_of(t); });
    EXPECT_EQ(kFloats.contains(t), is_floating(t)) << name_of(t);
    EXPECT_EQ(kIntegers.contains(t), is_integral(t)) << name_of(t);
    EXPECT_EQ(kBool.contains(t), t == DType::boolean) << name_of(t);
    EXPECT_TRUE(kAllTypes.contains(t));
    EXPECT_EQ(epsilon_of(t) > 0, is_floating(t)) << name_of(t);
  }
}

// The smallest type that holds every value of both, in PyTorch's table (no i16 here: u8 with i8 gives i32).
TEST(DType, PromotionTable) {
  using enum DType;
  const DType order[] = {boolean, u8, i8, i32, i64, f16, bf16, f32, f64};
  const DType table[9][9] = {
      {boolean, u8, i8, i32, i64, f16, bf16, f32, f64},  // bool
      {u8, u8, i32, i32, i64, f16, bf16, f32, f64},      // u8
      {i8, i32, i8, i32, i64, f16, bf16, f32, f64},      // i8
      {i32, i32, i32, i32, i64, f16, bf16, f32, f64},    // i32
      {i64, i64, i64, i64, i64, f16, bf16, f32, f64},    // i64
      {f16, f16, f16, f16, f16, f16, f32, f32, f64},     // f16
      {bf16, bf16, bf16, bf16, bf16, f32, bf16, f32, f64}, {f32, f32, f32, f32, f32, f32, f32, f32, f64},
      {f64, f64, f64, f64, f64, f64, f64, f64, f64},
  };
  for (int i = 0; i < 9; ++i) {
    for (int j = 0; j < 9; ++j)
      EXPECT_EQ(promote(order[i], order[j]), table[i][j]) << name_of(order[i]) << " with " << name_of(order[j]);
  }
}

TEST(DType, PromotionIsSymmetricAssociativeAndIdempotent) {
  for (DType a : kAll) {
    EXPECT_EQ(promote(a, a), a);
    for (DType b : kAll) {
      EXPECT_EQ(promote(a, b), promote(b, a));
      for (DType c : kAll) {
        EXPECT_EQ(promote(promote(a, b), c), promote(a, promote(b, c)))
            << name_of(a) << " " << name_of(b) << " " << name_of(c);
      }
    }
  }
}

TEST(Device, NamesRoundTrip) {
  EXPECT_EQ(to_string(kCPU), "cpu");
  EXPECT_EQ(to_string(Device{DeviceType::cuda, 3}), "cuda:3");
  for (const char* name : {"cpu", "cuda:0", "cuda:7", "cuda:127"}) EXPECT_EQ(to_string(parse_device(name)), name);
}

TEST(Device, OtherNamesThrow) {
  for (const char* name : {"", "CPU", "cpu:0", "cpu ", "gpu", "cuda", "cuda:", "cuda:-1", "cuda:+1", "cuda:01",
                           "cuda:1x", "cuda: 1", "cuda:128", "cuda:99999999999999999999"})
    EXPECT_THROW(parse_device(name), ValueError) << name;
}

}  // namespace
}  // namespace deft
