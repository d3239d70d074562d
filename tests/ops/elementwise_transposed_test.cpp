// Inputs that lie the other way round than the result: kernels/cpu/elementwise/elementwise_transposed.cpp.
#include <gtest/gtest.h>

#include "core/grad_mode.h"
#include "ops/all_ops.h"
#include "runtime/parallel.h"

namespace deft {
namespace {

bool same(const Tensor& a, const Tensor& b) { return a.strides() == b.strides() && (a == b).all().item() != 0; }

// y lies as `order` says, x and the wanted result row by row.
void check(IntList sizes, IntList order, DType x_type, DType y_type) {
  Tensor x = randn(sizes).to(x_type);
  Shape transposed = x.sizes(), back = x.sizes();
  for (int i = 0; i < transposed.size(); ++i) transposed[i] = x.size(order[i]), back[static_cast<int>(order[i])] = i;
  Tensor y = randn(transposed).to(y_type).permute(back), plain = y.contiguous();
  ASSERT_EQ(y.sizes(), x.sizes());
  EXPECT_TRUE(same(x + y, x + plain));
  EXPECT_TRUE(same((x < y).to(DType::f32), (x < plain).to(DType::f32)));
  EXPECT_TRUE(same(where(x > 0, y, x), where(x > 0, plain, x)));
  Tensor a = x.clone(), b = x.clone();
  a.mul_(y), b.mul_(plain);
  EXPECT_TRUE(same(a, b));
}

TEST(ElementwiseTransposed, AllOrders) {
  NoGradGuard no_grad;
  const int before = num_threads();
  for (int threads : {1, 3}) {
    set_num_threads(threads);
    for (DType type : {DType::f32, DType::f64, DType::bf16, DType::i8}) {
      check({70, 130}, {1, 0}, DType::f32, type);
      check({300, 257}, {1, 0}, type, type);
      check({5, 33, 7, 129}, {3, 1, 2, 0}, DType::f32, type);
      check({3, 4, 40, 50}, {1, 0, 3, 2}, DType::f64, type);
    }
  }
  set_num_threads(before);
}

// Two inputs that are transposed in different ways, one that is broadcast, and steps backwards.
TEST(ElementwiseTransposed, MixedInputs) {
  NoGradGuard no_grad;
  Tensor x = randn({40, 50, 60}), a = randn({60, 50, 40}).permute({2, 1, 0}), b = randn({40, 60, 50}).transpose(1, 2);
  EXPECT_TRUE(same(where(x > 0, a, b), where(x > 0, a.contiguous(), b.contiguous())));
  Tensor row = randn({60, 1, 1}).permute({2, 1, 0});
  EXPECT_TRUE(same(x + row + a, x + row.contiguous() + a.contiguous()));
  Tensor part = randn({130, 100}).t().narrow(0, 3, 80).narrow(1, 5, 120), y = randn({80, 120});
  EXPECT_TRUE(same(y - part, y - part.contiguous()));
}

}  // namespace
}  // namespace deft
