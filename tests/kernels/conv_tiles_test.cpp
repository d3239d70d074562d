// Convolutions on AMX tiles. On machines without AMX, the same calls run on other kernels.
#include "kernels/conv_util.h"
#include "runtime/numerics.h"

namespace deft::test {
namespace {

template <class T>
class ConvTiles : public ::testing::Test {
 protected:
  void check(int rank, int64_t n, int64_t c_in, int64_t c_out, int64_t groups, Dims in, Dims kernel, Dims stride,
             Dims pad, Dims gaps, bool last = true) {
    ::deft::test::check<T>(make(dtype_of<T>, rank, n, c_in, c_out, groups, in, kernel, stride, pad, gaps, last));
  }
};
using TileTypes = ::testing::Types<BFloat16, Half, float>;  // f32 where it is split
TYPED_TEST_SUITE(ConvTiles, TileTypes);

// Rows of AMX tiles are positions of padded rows (conv_amx.cpp): tiles over the ends of rows, whole channels and joined
// taps, residues of a stride, gaps between taps, few columns, weights that stream by in parts, blocks of k, NCHW.
TYPED_TEST(ConvTiles, PositionsOfPaddedRows) {
  this->check(2, 2, 32, 40, 1, {{9, 14, 1}}, kThree, kOne, kOne, kOne);
  this->check(2, 3, 64, 16, 1, {{7, 7, 1}}, kThree, kTwo, kOne, kOne);
  this->check(2, 1, 32, 33, 1, {{13, 16, 1}}, {{3, 5, 1}}, {{3, 2, 1}}, {{1, 2, 0}}, kTwo);
  this->check(2, 2, 96, 20, 2, {{8, 9, 1}}, kThree, kOne, kTwo, kOne);
  this->check(2, 2, 64, 64, 2, {{40, 38, 1}}, kThree, kOne, kOne, kOne);
  this->check(2, 10, 96, 512, 1, {{3, 3, 1}}, kThree, kOne, kOne, kOne);
  this->check(2, 2, 16, 24, 1, {{9, 10, 1}}, kThree, kOne, kOne, kOne);
  this->check(2, 2, 48, 48, 3, {{15, 9, 1}}, kThree, kTwo, kOne, kOne);
  this->check(2, 2, 24, 20, 1, {{9, 11, 1}}, kThree, kOne, kOne, kOne);  // pixels padded with zeros
  this->check(2, 3, 112, 56, 2, {{10, 9, 1}}, kThree, kTwo, kOne, kOne);
  this->check(2, 1, 28, 40, 1, {{9, 14, 1}}, {{2, 3, 1}}, {{2, 3, 1}}, kTwo, kTwo);
  this->check(2, 1, 200, 34, 1, {{6, 5, 1}}, {{3, 4, 1}}, kOne, kTwo, {{1, 2, 1}});
  this->check(2, 1, 3, 40, 1, {{90, 80, 1}}, {{7, 7, 1}}, kTwo, kThree, kOne);
  this->check(3, 2, 32, 18, 1, {{4, 6, 7}}, {{1, 3, 3}}, {{2, 1, 1}}, kOne, kOne);
  this->check(3, 2, 5, 18, 1, {{4, 6, 7}}, {{1, 3, 3}}, {{2, 1, 1}}, kOne, kOne);
  this->check(1, 2, 64, 12, 1, {{200, 1, 1}}, {{5, 1, 1}}, kOne, kTwo, kOne);
}

// Groups that share tiles (conv_merged.cpp): all of a tile, less than that, as many as divide their number, more
// channels out than in.
TYPED_TEST(ConvTiles, GroupsTogether) {
  this->check(2, 2, 32, 32, 8, {{9, 14, 1}}, kThree, kOne, kOne, kOne);
  this->check(2, 1, 64, 64, 4, {{7, 8, 1}}, kThree, kTwo, kOne, kOne);
  this->check(2, 2, 80, 40, 10, {{8, 9, 1}}, {{2, 3, 1}}, {{2, 1, 1}}, kOne, kTwo);
  this->check(2, 1, 12, 36, 6, {{11, 6, 1}}, kThree, kOne, kOne, kOne);
  this->check(2, 1, 32, 64, 32, {{6, 7, 1}}, kThree, kOne, kOne, kOne);
  this->check(2, 3, 24, 24, 2, {{6, 9, 1}}, kThree, kOne, kOne, kOne, false);
  this->check(2, 3, 64, 64, 16, {{64, 66, 1}}, kThree, kOne, kOne, kOne);  // in parts
  this->check(1, 2, 16, 16, 8, {{40, 1, 1}}, {{5, 1, 1}}, kOne, kTwo, kOne);
}

// For any activation of a NaN, the other groups of its tile do not see it.
TYPED_TEST(ConvTiles, NanStaysInItsGroup) {
  using T = TypeParam;
  ConvCall c = make(dtype_of<T>, 2, 1, 32, 32, 8, {{7, 9, 1}}, kThree, kOne, kOne, kOne, true);
  auto x = filled<T>(x_size(c), 1);
  const auto w = filled<T>(w_size(c), 2);
  for (int a = 0; a < 7; ++a) {
    c.x = x.data(), c.w = w.data(), c.activation = static_cast<Activation>(a);
    const T good = x[5];
    Guarded<T> clean(y_size(c)), found(y_size(c));
    c.y = clean.data();
    cpu::conv_forward(c);
    x[5] = T(NAN), c.y = found.data();
    cpu::conv_forward(c);
    x[5] = good;
    for (int64_t i = 0; i < y_size(c); ++i) {
      if (i % 32 / 4 == 1) continue;  // the group of channel 5
      EXPECT_EQ(as_double(found[i]), as_double(clean[i])) << "activation " << a << " at " << i;
    }
  }
}

// Weight gradients (conv_amx_weight.cpp): slots of several images and parts of one, residues, padding shared by two
// rows and more of it, copies by tap, blocks of channels.
TYPED_TEST(ConvTiles, GradientsOfWeights) {
  this->check(2, 24, 32, 40, 1, {{7, 7, 1}}, kThree, kOne, kOne, kOne);
  this->check(2, 3, 20, 17, 1, {{21, 23, 1}}, kThree, kOne, kZero, kOne);
  this->check(2, 5, 64, 16, 2, {{30, 29, 1}}, kThree, kTwo, kOne, kOne);
  this->check(2, 2, 33, 12, 1, {{50, 61, 1}}, {{3, 5, 1}}, {{2, 3, 1}}, {{2, 4, 0}}, kTwo);
  this->check(2, 2, 16, 33, 1, {{75, 80, 1}}, kThree, kOne, kThree, kOne);
  this->check(2, 2, 16, 9, 1, {{75, 80, 1}}, kThree, kOne, kOne, kOne);
  this->check(2, 3, 3, 20, 1, {{75, 80, 1}}, {{7, 7, 1}}, kTwo, kThree, kOne);
  this->check(2, 2, 10, 20, 1, {{40, 33, 1}}, {{2, 5, 1}}, {{1, 3, 1}}, {{1, 5, 0}}, {{3, 2, 1}});
  this->check(2, 1, 4, 8, 1, {{3, 1200, 1}}, kThree, kOne, kOne, kOne);
  this->check(2, 9, 3, 2, 1, {{90, 90, 1}}, kThree, kOne, kOne, kOne);  // in parts
  this->check(2, 8, 16, 4, 1, {{60, 60, 1}}, kThree, kOne, kOne, kOne);
  this->check(2, 3, 20, 40, 1, {{41, 40, 1}}, kOne, kOne, kZero, kOne);
  this->check(2, 3, 20, 40, 1, {{81, 80, 1}}, kOne, kTwo, kZero, kOne);
  this->check(3, 3, 20, 18, 1, {{9, 16, 15}}, {{1, 3, 3}}, {{2, 1, 1}}, kOne, kOne);
  this->check(2, 3, 24, 24, 1, {{30, 30, 1}}, kThree, kOne, kOne, kOne, false);
  this->check(2, 2, 48, 40, 1, {{30, 29, 1}}, kThree, kOne, kOne, kOne);
  this->check(2, 3, 64, 33, 1, {{21, 23, 1}}, {{3, 2, 1}}, kOne, kTwo, kTwo);
  this->check(2, 9, 32, 32, 1, {{62, 61, 1}}, kThree, kOne, kOne, kOne);   // in parts
  this->check(2, 131, 32, 8, 1, {{7, 7, 1}}, kThree, kOne, kOne, kOne);    // an odd number of images side by side
  this->check(2, 3, 70, 40, 1, {{31, 30, 1}}, kThree, kTwo, kOne, kOne);   // tiles of few columns
  this->check(2, 2, 32, 33, 1, {{75, 80, 1}}, kThree, kOne, kZero, kOne);  // slots of fewer rows
  this->check(1, 2, 33, 20, 1, {{9001, 1, 1}}, kThree, kOne, kOne, kOne);  // parts of rows
  this->check(1, 1, 40, 12, 1, {{9000, 1, 1}}, {{4, 1, 1}}, kTwo, {{5, 0, 0}}, kThree);
  this->check(1, 1, 6, 12, 1, {{19000, 1, 1}}, {{5, 1, 1}}, kTwo, {{3, 0, 0}}, kOne);
  this->check(1, 2, 33, 20, 1, {{4001, 1, 1}}, {{7, 1, 1}}, kTwo, {{3, 0, 0}}, kOne);  // taps share copies
  this->check(2, 5, 32, 8, 1, {{20, 30, 1}}, {{5, 5, 1}}, kOne, {{2, 3, 0}}, {{1, 2, 1}});
  this->check(3, 3, 32, 18, 1, {{7, 9, 8}}, {{1, 3, 3}}, {{2, 1, 1}}, kOne, kOne);
  this->check(2, 2, 80, 128, 2, {{17, 18, 1}}, kThree, kOne, kZero, kOne);
  this->check(2, 2, 128, 64, 1, {{24, 23, 1}}, kOne, kOne, kZero, kOne);
}
// Tiles multiply the values past the ends of rows by zero, which must not show.
TYPED_TEST(ConvTiles, InfiniteEdges) {
  ConvCall c = make(dtype_of<TypeParam>, 2, 1, 32, 35, 1, {{34, 33, 1}}, kThree, kOne, kOne, kOne, true);
  auto x = filled<TypeParam>(x_size(c), 1);
  const auto dy = filled<TypeParam>(y_size(c), 2);
  for (int64_t i = 0; i < x.size(); i += c.in[1] * c.c_in) x.data()[i] = TypeParam(INFINITY);  // of channel 0
  c.x = x.data();
  auto dw = filled<TypeParam>(w_size(c), 3);
  cpu::conv_backward_weight(c, dy.data(), dw.data());
  for (int64_t i = 0; i < dw.size(); ++i) {
    const bool reads_them = i / 9 % c.c_in == 0 && i % 3 != 2;  // the last column of the kernel reads no first pixel
    EXPECT_EQ(std::isfinite(as_double(dw[i])), !reads_them) << i;
  }
}
// An infinite pixel is infinite where it is read, as a sum of parts as well.
TYPED_TEST(ConvTiles, InfinitePixels) {
  ConvCall c = make(dtype_of<TypeParam>, 2, 1, 40, 48, 1, {{12, 13, 1}}, kThree, kOne, kOne, kOne, true);
  auto x = filled<TypeParam>(x_size(c), 1), w = filled<TypeParam>(w_size(c), 2);
  const int64_t pixel = 5 * c.in[1] + 6;
  x[pixel * c.c_in + 3] = TypeParam(INFINITY);
  for (int64_t i = 0; i < w.size(); ++i) w[i] = TypeParam(std::abs(static_cast<float>(as_double(w[i]))) + 0.5f);
  c.x = x.data(), c.w = w.data();
  Guarded<TypeParam> y(y_size(c));
  c.y = y.data();
  cpu::conv_forward(c);
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t at = i / c.c_out, row = at / c.out[1], column = at % c.out[1];
    const bool reads_it = std::abs(row - 5) <= 1 && std::abs(column - 6) <= 1;
    EXPECT_EQ(std::isinf(as_double(y[i])), reads_it) << i;
    EXPECT_FALSE(std::isnan(as_double(y[i]))) << i;
  }
}

// f32 in two parts: all three passes, tiles of all heights and widths.
TEST(ConvOfParts, TwoPartsWhereTf32IsAllowed) {
  const auto near = [](const Guarded<float>& found, const Guarded<float>& expected) {
    float most = 0;
    for (int64_t i = 0; i < found.size(); ++i) most = std::max(most, std::abs(expected[i]));
    for (int64_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-4f * most) << i;
  };
  for (const int64_t channels : {32, 48, 64}) {
    ConvCall c = make(DType::f32, 2, 2, 64, channels, 1, {{19, 17, 1}}, kThree, kOne, kOne, kOne, true);
    auto x = filled<float>(x_size(c), 1), w = filled<float>(w_size(c), 2), dy = filled<float>(y_size(c), 3);
    c.x = x.data(), c.w = w.data();
    Guarded<float> y[2] = {dy, dy}, dx[2] = {x, x}, dw[2] = {w, w};
    const bool before = allow_tf32();
    for (int i = 0; i < 2; ++i) {
      set_allow_tf32(i == 1);
      c.y = y[i].data();
      cpu::conv_forward(c);
      cpu::conv_backward_input(c, dy.data(), dx[i].data());
      cpu::conv_backward_weight(c, dy.data(), dw[i].data());
    }
    set_allow_tf32(before);
    near(y[1], y[0]), near(dx[1], dx[0]), near(dw[1], dw[0]);
  }
}

}  // namespace
}  // namespace deft::test
