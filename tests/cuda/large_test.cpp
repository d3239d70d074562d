// Tensors of more than 2^31 elements: nothing may count in 32 bits.
#include "cuda_util.h"

namespace deft {
namespace {

constexpr int64_t kMany = (int64_t{1} << 31) + 4098;

class CudaLarge : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (device_properties(kCUDA).memory_bytes < int64_t{30} << 30) GTEST_SKIP() << "needs a card of 30 GB";
  }
  void TearDown() override {
    GpuTest::TearDown();
    if (!IsSkipped()) trim_device_memory(kCUDA);
  }
};

// Zeros with a one at the very end and threes before it.
Tensor marked() {
  Tensor x = zeros({kMany}, on_gpu(DType::u8));
  x.narrow(0, kMany - 3, 2).fill_(3);
  x[kMany - 1].fill_(1);
  return x;
}
std::vector<double> ending(const Tensor& x) { return values(x.narrow(0, kMany - 4, 4)); }
const std::vector<double> kEnding = {0, 3, 3, 1};

TEST_F(CudaLarge, FillAddSum) {
  Tensor x = full({kMany}, 2, on_gpu(DType::u8));
  expect_all(x, 2);
  EXPECT_EQ(x.sum().item<int64_t>(), 2 * kMany);
  Tensor y = x + x;
  expect_all(y, 4);
  y.add_(1);
  expect_all(y, 5);
  EXPECT_EQ((y == 5).sum().item<int64_t>(), kMany);
}

TEST_F(CudaLarge, CopyAndCast) {
  Tensor x = marked();
  EXPECT_EQ(ending(x), kEnding);
  EXPECT_EQ(ending(x.clone()), kEnding);
  Tensor b = x.to(DType::bf16);
  EXPECT_EQ(ending(b), kEnding);
  EXPECT_EQ(ending(b.to(DType::u8)), kEnding);
  EXPECT_EQ(ending(b * 2), (std::vector<double>{0, 6, 6, 2}));
  b = Tensor();
  Tensor transposed = x.view({2, kMany / 2}).t().contiguous();
  EXPECT_EQ(values(transposed.narrow(0, kMany / 2 - 2, 2)), (std::vector<double>{0, 3, 0, 1}));
  EXPECT_EQ(ending(flip(flip(x, {0}), {0})), kEnding);
}

TEST_F(CudaLarge, ReductionsFindTheEnd) {
  Tensor x = marked();
  EXPECT_EQ(x.sum().item<int64_t>(), 7);
  EXPECT_EQ(x.amax().item<int64_t>(), 3);
  EXPECT_EQ(x.argmax().item<int64_t>(), kMany - 3);
  EXPECT_EQ(count_nonzero(x).item<int64_t>(), 3);
  EXPECT_TRUE(x.any().item<int64_t>());
  EXPECT_EQ(values(x.view({2, kMany / 2}).sum({1})), (std::vector<double>{0, 7}));
  EXPECT_EQ(values(x.view({kMany / 2, 2}).sum({0})), (std::vector<double>{3, 4}));
  EXPECT_EQ(x.to(DType::bf16).sum().item(), 7);
}

TEST_F(CudaLarge, IndexingAtTheEnd) {
  Tensor x = marked();
  Tensor at = tensor<int64_t>({0, kMany - 1, kMany - 2}).to(kCUDA);
  EXPECT_VALUES(index_select(x, 0, at), 0, 1, 3);
  EXPECT_VALUES(take(x, at), 0, 1, 3);
  EXPECT_VALUES(x.gather(0, at), 0, 1, 3);
  EXPECT_VALUES(x.index({at}), 0, 1, 3);
  x.index_put_({at}, 9);
  EXPECT_EQ(ending(x), (std::vector<double>{0, 3, 9, 9}));
  EXPECT_VALUES(nonzero(x), 0, static_cast<double>(kMany - 3), static_cast<double>(kMany - 2),
                static_cast<double>(kMany - 1));
  EXPECT_VALUES(masked_select(x, x == 9), 9, 9, 9);
  x.masked_fill_(x == 9, 4);
  EXPECT_EQ(ending(x), (std::vector<double>{0, 3, 4, 4}));
}

TEST_F(CudaLarge, CatAndWhere) {
  Tensor x = marked();
  Tensor halves = cat({x.narrow(0, 0, kMany / 2), x.narrow(0, kMany / 2, kMany - kMany / 2)});
  EXPECT_EQ(ending(halves), kEnding);
  EXPECT_EQ(ending(where(x == 3, x, 8)), (std::vector<double>{8, 3, 3, 8}));
}

TEST_F(CudaLarge, RandomNumbersDoNotRepeat) {
  manual_seed(4);
  Tensor x = randint(0, 200, {kMany}, on_gpu(DType::u8));
  Tensor start = x.narrow(0, 0, 4096), wrapped = x.narrow(0, int64_t{1} << 31, 4096);
  EXPECT_LT((start == wrapped).sum().item<int64_t>(), 200);
  EXPECT_NEAR(x.sum().item() / static_cast<double>(kMany), 99.5, 0.01);
}

TEST_F(CudaLarge, ProductsOfManyRows) {
  constexpr int64_t rows = (int64_t{1} << 17) + 1, width = 1 << 14;
  Tensor x = ones({rows, width}, on_gpu(DType::bf16)), w = ones({8, width}, on_gpu(DType::bf16));
  x[rows - 1].fill_(2);
  Tensor y = linear(x, w);
  EXPECT_EQ(y[rows - 2].amin().item(), width);
  EXPECT_EQ(y[rows - 1].amax().item(), 2 * width);
  Tensor p = softmax(x, 1);
  EXPECT_NEAR(p[rows - 1].sum().item(), 1, 0.01);
  EXPECT_EQ(layer_norm(x, {width})[rows - 1].abs().amax().item(), 0);
}

TEST_F(CudaLarge, ToTheHostAndBack) {
  Tensor x = marked();
  Tensor h = x.to(kCPU);
  EXPECT_EQ(values(h.narrow(0, kMany - 4, 4)), kEnding);
  EXPECT_EQ(ending(h.to(kCUDA)), kEnding);
}

}  // namespace
}  // namespace deft
