// Bad values that only kernels see: the error names the op and the line, and nothing is harmed.
#include "cuda_util.h"

namespace deft {
namespace {

class CudaFault : public GpuTest {};

template <class E, class F>
std::string fault_of(F&& f) {
  return message_of<E>([&] {
    f();
    synchronize(kCUDA);
  });
}

Tensor numbers(std::vector<int64_t> v) { return tensor(v).to(kCUDA); }

TEST_F(CudaFault, AnIndexOutOfRangeNamesOpAndLine) {
  Tensor x = ones({3, 2}, on_gpu()), index = numbers({0, 1, 7});
  std::string where, text = fault_of<IndexError>([&] { index_select(x, 0, index), where = HERE(); });
  EXPECT_EQ(text.rfind("index_select: found index 7 at position 2, expected 0 <= index < 3", 0), 0u) << text;
  EXPECT_NE(text.find(where), text.npos) << where << " is not in: " << text;
  EXPECT_EQ(text.find('\n'), text.npos) << text;
}

TEST_F(CudaFault, ComesOutWhereTheHostWaits) {
  Tensor x = ones({3}, on_gpu());
  EXPECT_THROW(take(x, numbers({5})).item(), IndexError);
  EXPECT_EQ(x.sum().item(), 3) << "it is reported once";
  EXPECT_THROW(take(x, numbers({-9})).to(kCPU), IndexError);
  EXPECT_NO_THROW(synchronize(kCUDA));
}

TEST_F(CudaFault, ALaterOpReportsItAtTheLatest) {
  Tensor x = ones({3}, on_gpu());
  std::string text = message_of<IndexError>([&] {
    take(x, numbers({5}));
    for (int i = 0; i < 100000; ++i) x + 1;
    ADD_FAILURE() << "no op reported it";
    synchronize(kCUDA);
  });
  EXPECT_NE(text.find("take"), text.npos) << text;
}

TEST_F(CudaFault, OnlyTheBadPartOfTheResultIsLost) {
  Tensor x = sample_on(kCUDA, {1000}), index = numbers(std::vector<int64_t>(2000, 1000));
  EXPECT_THROW((take(x, index), synchronize(kCUDA)), IndexError);
  Tensor good = take(x, numbers({0, 999}));
  EXPECT_EQ(values(good)[0], values(x)[0]);
}

TEST_F(CudaFault, WritesOutOfRangeAreNotMade) {
  set_guard_words(true);
  int64_t before = check_guard_words();
  {
    Tensor x = zeros({8}, on_gpu()), source = ones({4}, on_gpu());
    for (std::vector<int64_t> bad : {std::vector<int64_t>{0, 8, 1, 9}, {0, -1, 1, 1 << 20}}) {
      Tensor index = numbers(bad);
      EXPECT_THROW((scatter_add(x, 0, index, source), synchronize(kCUDA)), IndexError);
      EXPECT_THROW((x.clone().scatter_(0, index, source), synchronize(kCUDA)), IndexError);
      EXPECT_THROW((index_add(x, 0, index, source), synchronize(kCUDA)), IndexError);
    }
    expect_all(x, 0);
  }
  EXPECT_EQ(check_guard_words() - before, 0);
  set_guard_words(false);
}

TEST_F(CudaFault, OtherOps) {
  Tensor x = sample_on(kCUDA, {4, 3});
  EXPECT_NE(fault_of<IndexError>([&] { gather(x, 1, numbers({3}).view({1, 1})); }).find("gather"), std::string::npos);
  EXPECT_NE(fault_of<IndexError>([&] { embedding(numbers({4}), x); }).find("embedding"), std::string::npos);
  EXPECT_NE(fault_of<IndexError>([&] { cross_entropy(x, numbers({0, 1, 2, 3})); }).find("target 3"), std::string::npos);
  EXPECT_NE(fault_of<IndexError>([&] { x.index({numbers({-5})}); }).find("index -5"), std::string::npos);
  EXPECT_NE(fault_of<IndexError>([&] { one_hot(numbers({2}), 2); }).find("one_hot"), std::string::npos);
  EXPECT_NE(fault_of<ValueError>([&] { bernoulli(full({3}, 1.5, on_gpu())); }).find("bernoulli"), std::string::npos);
  EXPECT_NO_THROW(synchronize(kCUDA));
}

TEST_F(CudaFault, InBackwardItIsReportedToo) {
  Tensor x = sample_on(kCUDA, {4, 3}).requires_grad_();
  EXPECT_THROW((embedding(numbers({1, 9}), x).sum().backward(), synchronize(kCUDA)), IndexError);
  x.zero_grad();
  embedding(numbers({1, 1}), x).sum().backward();
  EXPECT_EQ(values(x.grad().sum({1})), (std::vector<double>{0, 6, 0, 0}));
}

}  // namespace
}  // namespace deft
