// Elementwise ops on a GPU beyond what samples try.
#include "cuda_util.h"
#include "ops/case_checks.h"

namespace deft {
namespace {

class CudaElementwise : public GpuTest {};

// Floats of two types, in fours and not, dense, of one value and transposed: as on the CPU, bit for bit.
TEST_F(CudaElementwise, SumsOfTwoTypes) {
  NoGradGuard no_grad;
  struct Pair {
    Tensor a, b;
  };
  for (int64_t width : {64, 62, 61}) {
    const Tensor wide = sample({33, width}, 1), narrow = sample({33, width}, 2).to(DType::bf16);
    const Tensor row = sample({width}, 3).to(DType::f16), transposed = sample({width, 33}, 4).to(DType::bf16).t();
    const Tensor column = sample({33, 1}, 5).to(DType::bf16);
    for (const Pair& p :
         {Pair{wide, narrow}, Pair{narrow, wide}, Pair{narrow, row}, Pair{wide, row}, Pair{wide, transposed},
          Pair{wide, column}, Pair{wide.narrow(1, 1, width - 1), narrow.narrow(1, 1, width - 1)}}) {
      const Tensor a = p.a.to(kCUDA), b = p.b.to(kCUDA);
      EXPECT_TRUE(testing::same_bits(host(a + b), p.a + p.b)) << width;
      EXPECT_TRUE(testing::same_bits(host(a * b), p.a * p.b)) << width;
      EXPECT_TRUE(testing::same_bits(host(a - b), p.a - p.b)) << width;
      EXPECT_TRUE(testing::same_bits(host(a < b), p.a < p.b)) << width;
    }
  }
}

}  // namespace
}  // namespace deft
