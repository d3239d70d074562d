// What samples cannot say about resizing: the order of memory.
#include <gtest/gtest.h>

#include "deft/deft.h"

namespace deft {
namespace {

void check_pad(Tensor x, IntList amounts, PadMode mode) {
  SCOPED_TRACE(static_cast<int>(mode));
  x.requires_grad_(true);
  Tensor last = x.detach().contiguous(MemoryFormat::channels_last).requires_grad_(true);
  Tensor a = pad(x, amounts, mode, 2), b = pad(last, amounts, mode, 2);
  EXPECT_TRUE(a.is_contiguous());
  EXPECT_TRUE(b.is_contiguous(MemoryFormat::channels_last));
  EXPECT_EQ((a - b).abs().amax().item(), 0);
  Tensor g = randn_like(a);
  Tensor da = grad({a}, {x}, {g})[0];
  Tensor db = grad({b}, {last}, {g.contiguous(MemoryFormat::channels_last)})[0];
  EXPECT_TRUE(db.is_contiguous(MemoryFormat::channels_last));
  EXPECT_LE((da - db).abs().amax().item(), 1e-5);  // sums of up to 27 numbers in another order
}

TEST(Resize, PadKeepsChannelsLast) {
  for (PadMode mode : {PadMode::constant, PadMode::reflect, PadMode::replicate, PadMode::circular}) {
    check_pad(randn({2, 5, 6, 7}), {1, 2, 3, 0}, mode);
    check_pad(randn({2, 5, 6, 7}), {0, 0, 2, 1}, mode);
    check_pad(randn({2, 5, 6, 7}), {1, 0, 0, 2, 3, 1}, mode);
    check_pad(randn({2, 3, 4, 5, 6}), {1, 2, 0, 1, 3, 2}, mode);
  }
  check_pad(randn({2, 5, 6, 7}), {-1, 2, 1, -3}, PadMode::constant);
}

}  // namespace
}  // namespace deft
