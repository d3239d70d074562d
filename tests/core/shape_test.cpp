// What is known of a tensor without its data: layouts, and the type of a result.
#include "core/shape.h"

#include "core_util.h"

namespace deft {
namespace {

Meta strided(IntList sizes, IntList strides) {
  Meta m = Meta::dense(Shape(sizes), DType::f32, kCPU);
  m.set_strides(Shape(strides));
  return m;
}

TEST(Meta, Layouts) {
  struct Case {
    Meta meta;
    bool contiguous, channels_last, dense, overlaps;
    int64_t span;
  };
  const Case cases[] = {
      {strided({2, 3, 4, 5}, {60, 20, 5, 1}), true, false, true, false, 120},
      {strided({2, 3, 4, 5}, {60, 1, 15, 3}), false, true, true, false, 120},
      {strided({2, 3, 4}, {12, 1, 3}), false, true, true, false, 24},
      {strided({2, 3, 1, 2, 2}, {12, 1, 12, 6, 3}), false, true, true, false, 24},
      {strided({2, 3, 4, 5}, {120, 1, 15, 3}), false, false, false, false, 180},  // every second image
      {strided({3, 4}, {1, 3}), false, false, true, false, 12},
      {strided({3, 4}, {8, 2}), false, false, false, false, 23},
      {strided({3, 4}, {0, 1}), false, false, false, true, 4},
      {strided({3, 4}, {1, 1}), false, false, false, true, 6},
      {strided({3, 4}, {1, 0}), false, false, false, true, 3},
      {strided({2, 3}, {2, 1}), false, false, false, true, 5},  // the rows share an end
      {strided({1, 3}, {77, 1}), true, false, true, false, 3},  // strides of one element mean nothing
      {strided({1, 1, 1, 1}, {5, 6, 7, 8}), true, true, true, false, 1},
      {strided({}, {}), true, false, true, false, 1},
      {strided({0, 3, 2, 2}, {12, 1, 6, 3}), true, false, true, false, 0},
      {strided({2, 0}, {9, 9}), true, false, true, false, 0},
      {strided({1, 2, 3, 1, 1, 2}, {12, 6, 1, 6, 6, 3}), false, false, true, false, 12},  // six dims have no such order
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(to_string(c.meta.sizes) + " with strides " + to_string(c.meta.strides));
    EXPECT_EQ(c.meta.contiguous, c.contiguous);
    EXPECT_EQ(c.meta.is_channels_last(), c.channels_last);
    EXPECT_EQ(c.meta.is_dense(), c.dense);
    EXPECT_EQ(c.meta.overlaps_itself(), c.overlaps);
    EXPECT_EQ(c.meta.span(), c.span);
  }
}

TEST(Meta, OrdersOfStrides) {
  EXPECT_EQ(contiguous_strides(Shape({2, 3, 4})), Shape({12, 4, 1}));
  EXPECT_EQ(channels_last_strides(Shape({2, 3, 4, 5})), Shape({60, 1, 15, 3}));
  EXPECT_EQ(channels_last_strides(Shape({2, 3, 4})), Shape({12, 1, 3}));
  EXPECT_EQ(channels_last_strides(Shape({2, 3, 4, 5, 6})), Shape({360, 1, 90, 18, 3}));
}

// A dimensioned tensor decides within a kind, then a tensor without dims, then a number; a higher kind always.
TEST(ResultType, OfDimsScalarsAndNumbers) {
  enum Rank { number, scalar, dims };
  auto meta = [](DType dtype, Rank rank) {
    Meta m = Meta::dense(rank == dims ? Shape({2}) : Shape(), dtype, kCPU);
    m.wrapped_number = rank == number;
    return m;
  };
  struct Case {
    DType a;
    Rank rank_a;
    DType b;
    Rank rank_b;
    DType result;
  };
  const Case cases[] = {
      {f32, dims, f64, dims, f64},       {f32, dims, f64, scalar, f32},     {f32, dims, f64, number, f32},
      {f32, scalar, f64, number, f32},   {f32, scalar, f64, scalar, f64},   {f64, scalar, f32, dims, f32},
      {bf16, dims, f32, scalar, bf16},   {bf16, dims, f16, dims, f32},      {bf16, scalar, f32, dims, f32},
      {f16, dims, f64, number, f16},     {i64, dims, f32, scalar, f32},     {i64, dims, f64, scalar, f64},
      {i64, dims, bf16, scalar, bf16},   {i64, dims, f64, number, f32},     {i64, scalar, f64, number, f32},
      {u8, dims, i64, scalar, u8},       {u8, dims, i64, number, u8},       {u8, dims, i64, dims, i64},
      {u8, scalar, i64, number, u8},     {i32, dims, i64, scalar, i32},     {boolean, dims, i64, number, i64},
      {boolean, dims, u8, scalar, u8},   {boolean, dims, f64, number, f32}, {boolean, scalar, u8, dims, u8},
      {boolean, number, f16, dims, f16}, {i64, scalar, f16, dims, f16},     {i64, number, f16, scalar, f16},
      {f32, number, f64, number, f64},
  };
  for (const Case& c : cases) {
    const Meta a = meta(c.a, c.rank_a), b = meta(c.b, c.rank_b);
    EXPECT_EQ(result_type(a, b), c.result) << name_of(c.a) << c.rank_a << " and " << name_of(c.b) << c.rank_b;
    EXPECT_EQ(result_type(b, a), c.result) << name_of(c.b) << c.rank_b << " and " << name_of(c.a) << c.rank_a;
    EXPECT_EQ(result_type(a, a), c.a);
  }
}

}  // namespace
}  // namespace deft
