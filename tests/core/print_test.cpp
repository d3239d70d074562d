// Tensors as text.
#include <cmath>
#include <sstream>

#include "core_util.h"

namespace deft {
namespace {

TEST(Print, Numbers) {
  EXPECT_EQ(tensor({1.f, 2.f, 3.f}).to_string(), "[1., 2., 3.]");
  EXPECT_EQ(tensor({1.5f, -2.f}).to_string(), "[ 1.5000, -2.0000]");
  EXPECT_EQ(tensor<int64_t>({1, -20, 300}).to_string(), "[  1, -20, 300]");
  EXPECT_EQ(tensor<bool>({true, false}).to_string(), "[ True, False]");
  EXPECT_EQ(arange(6).view({2, 3}).to_string(), "[[0, 1, 2],\n [3, 4, 5]]");
  EXPECT_EQ(arange(8).view({2, 2, 2}).to_string(), "[[[0, 1],\n  [2, 3]],\n\n [[4, 5],\n  [6, 7]]]");
  EXPECT_EQ(zeros({2}).to_string(), "[0., 0.]");
}

TEST(Print, StridedViewsPrintTheirOwnElements) {
  EXPECT_EQ(arange(6).view({2, 3}).t().to_string(), "[[0, 3],\n [1, 4],\n [2, 5]]");
  EXPECT_EQ(arange(10).slice(0, Slice(1, {}, 3)).to_string(), "[1, 4, 7]");
  EXPECT_EQ(arange(2).expand({2, 2}).to_string(), "[[0, 1],\n [0, 1]]");
}

TEST(Print, Scalars) {
  EXPECT_EQ(scalar_tensor(3.25).to_string(), "3.2500");
  EXPECT_EQ(scalar_tensor(7).to_string(), "7.");
  EXPECT_EQ(scalar_tensor(7, DType::i64).to_string(), "7");
  EXPECT_EQ(scalar_tensor(1e10).to_string(), "1.0000e+10");
}

TEST(Print, ScientificWhenTheRangeAsks) {
  EXPECT_EQ(tensor({0.00001f, 1.f}).to_string(), "[1.0000e-05, 1.0000e+00]");
  EXPECT_EQ(tensor({1.5f, 10000.f}).to_string(), "[1.5000e+00, 1.0000e+04]");
  EXPECT_EQ(tensor({1.f, 999.f}).to_string(), "[  1., 999.]");
  EXPECT_EQ(tensor({1.f, 2000.f}).to_string(), "[1.0000e+00, 2.0000e+03]");
}

// At the limits themselves numbers are still written out.
TEST(Print, LimitsOfTheRange) {
  EXPECT_EQ(tensor({1.f, 1000.f}).to_string(), "[   1., 1000.]");
  EXPECT_EQ(tensor({1.f, 1001.f}).to_string(), "[1.0000e+00, 1.0010e+03]");
  EXPECT_EQ(tensor({1e8f, 2e5f}).to_string(), "[100000000.,    200000.]");
  EXPECT_EQ(tensor({1.00000008e8f}).to_string(), "[1.0000e+08]");
  EXPECT_EQ(tensor({1e-4, 0.0}).to_string(), "[0.0001, 0.0000], dtype=f64");
  EXPECT_EQ(tensor({9.9e-5, 0.0}).to_string(), "[9.9000e-05, 0.0000e+00], dtype=f64");
  EXPECT_EQ(tensor({0.25f, -250.f}).to_string(), "[   0.2500, -250.0000]");
}

TEST(Print, NanAndInf) {
  EXPECT_EQ(tensor({NAN, INFINITY, -INFINITY, 1.f}).to_string(), "[ nan,  inf, -inf,   1.]");
  EXPECT_EQ(tensor({NAN, 0.5f}).to_string(), "[   nan, 0.5000]");
}

TEST(Print, NotesComeLast) {
  EXPECT_EQ(tensor({1.0}).to_string(), "[1.], dtype=f64");
  EXPECT_EQ(ones({1}, DType::bf16).to_string(), "[1.], dtype=bf16");
  EXPECT_EQ(ones({1}, DType::u8).to_string(), "[1], dtype=u8");
  Tensor x = ones({2}, with_grad());
  EXPECT_EQ(x.to_string(), "[1., 1.], requires_grad");
  EXPECT_EQ((x * x).to_string(), "[1., 1.], grad_fn=<mul>");
  EXPECT_EQ(ones({1}, with_grad(DType::f64)).to_string(), "[1.], dtype=f64, requires_grad");
}

TEST(Print, Empty) {
  EXPECT_EQ(zeros({0}).to_string(), "[]");
  EXPECT_EQ(zeros({0, 3}).to_string(), "[], size=[0, 3]");
  EXPECT_EQ(zeros({2, 0}, DType::f64).to_string(), "[], size=[2, 0], dtype=f64");
  EXPECT_EQ(Tensor().to_string(), "(undefined)");
}

TEST(Print, LongTensorsAreSummarised) {
  EXPECT_EQ(arange(1001).to_string(), "[   0,    1,    2,  ...,  998,  999, 1000]");
  std::string square = arange(10000).view({100, 100}).to_string();
  EXPECT_EQ(square.substr(0, 46), "[[   0,    1,    2,  ...,   97,   98,   99],\n ");
  EXPECT_NE(square.find(",\n ...,\n "), std::string::npos);
  EXPECT_EQ(std::count(square.begin(), square.end(), '\n'), 6);
  EXPECT_NE(arange(1000).to_string().find(" 500"), std::string::npos);
}

TEST(Print, LongRowsAreWrapped) {
  std::string s = arange(100).to_string();
  std::istringstream lines(s);
  std::string line;
  int count = 0;
  while (std::getline(lines, line)) {
    EXPECT_LE(line.size(), 81u);
    ++count;
  }
  EXPECT_EQ(count, 5);
}

// Lines of all dims and widths are as full as they can be.
TEST(Print, LinesAreFilled) {
  for (int dims = 1; dims <= 5; ++dims) {
    for (size_t width = 1; width <= 18; ++width) {
      std::vector<int64_t> sizes(static_cast<size_t>(dims), 1);
      sizes.back() = 200;
      const int64_t value = static_cast<int64_t>(std::pow(10, width - 1));
      std::istringstream lines(full(sizes, static_cast<double>(value), DType::i64).to_string());
      std::string line;
      std::getline(lines, line);
      EXPECT_LE(line.size(), 80u) << dims << " dims, numbers of " << width;
      EXPECT_GT(line.size() + width + 2, 80u) << dims << " dims, numbers of " << width;
      std::getline(lines, line);
      EXPECT_EQ(line.substr(0, static_cast<size_t>(dims) + 1), std::string(static_cast<size_t>(dims), ' ') + "1");
    }
  }
}

TEST(Print, ShownEdgesOfLongTensors) {
  EXPECT_EQ(arange(1001).view({7, 143}).to_string().substr(0, 44), "[[   0,    1,    2,  ...,  140,  141,  142],");
  const std::string narrow = arange(1002).view({167, 6}).to_string();  // rows of six are whole
  EXPECT_EQ(narrow.substr(0, 39), "[[   0,    1,    2,    3,    4,    5],\n");
  EXPECT_NE(narrow.find("\n ...,\n"), std::string::npos);
  EXPECT_EQ(arange(1000).to_string().find("..."), std::string::npos);
}

TEST(Print, Stream) {
  std::ostringstream out;
  out << tensor({1.f}) << " and " << Tensor();
  EXPECT_EQ(out.str(), "[1.] and (undefined)");
}

TEST(Print, ChangesNothing) {
  Tensor x = leaf({3}), y = x * x;
  Alive before;
  y.to_string();
  EXPECT_EQ(Alive(), before);
  EXPECT_EQ(y.version(), 0u);
}

}  // namespace
}  // namespace deft
