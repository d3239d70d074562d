#include "nn/masking.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "data/padding.h"
#include "nn/nn.h"
#include "ops/gradcheck.h"

namespace deft::nn {
namespace {

const std::vector<int64_t> kLengths{3, 0, 5, 1};
Tensor mask() { return data::padding_mask(kLengths); }
constexpr double kPoison[] = {NAN, INFINITY, 3e38, -1e30};

// x with `value` where there is no token.
Tensor poisoned(const Tensor& x, double value) { return where(mask().unsqueeze(2), x, full_like(x, value)); }
Tensor some_input() {
  RngScope rng({11, 0});
  return randn({4, 5, 6});
}
bool close(const Tensor& a, const Tensor& b) { return (a - b).abs().amax().item() <= 1e-6; }
void expect_same(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.sizes(), b.sizes());
  EXPECT_TRUE(eq(a, b).all().item<bool>());
}

TEST(Masking, MeanOverTokens) {
  Tensor x = some_input(), mean = masked_mean(x, mask());
  for (int64_t i = 0; i < 4; ++i) {
    int64_t n = kLengths[static_cast<size_t>(i)];
    Tensor expected = n == 0 ? zeros({6}) : x[i].narrow(0, 0, n).mean({0});
    EXPECT_TRUE(close(mean[i], expected)) << i;
  }
  for (double value : kPoison) expect_same(masked_mean(poisoned(x, value), mask()), mean);
}

TEST(Masking, GradientsStopAtThePadding) {
  for (double value : kPoison) {
    Tensor x = poisoned(some_input(), value).requires_grad_();
    masked_mean(x, mask()).sum().backward();
    Tensor g = x.grad();
    EXPECT_TRUE(std::isfinite(g.sum().item()));
    EXPECT_NEAR(g.abs().sum().item(), take_tokens(g, mask()).abs().sum().item(), 1e-4);  // summed in another order
    EXPECT_NEAR(g[2][0][0].item(), 0.2, 1e-7);
  }
  std::vector<Tensor> inputs{some_input().to(DType::f64).requires_grad_()};
  gradcheck([](auto& in) { return std::vector<Tensor>{masked_mean(in[0], mask())}; }, inputs);
  gradcheck([](auto& in) { return std::vector<Tensor>{put_tokens(take_tokens(in[0], mask()), mask())}; }, inputs);
}

TEST(Masking, TokensThereAndBack) {
  Tensor x = some_input(), tokens = take_tokens(x, mask());
  EXPECT_EQ(tokens.sizes(), (Shape{9, 6}));
  expect_same(tokens[3], x[2][0]);
  expect_same(put_tokens(tokens, mask()), mask_padding(x, mask()));
  for (double value : kPoison) expect_same(take_tokens(poisoned(x, value), mask()), tokens);
  Tensor numbers = arange(20).view({4, 5});
  EXPECT_EQ(take_tokens(numbers, mask()).to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2, 10, 11, 12, 13, 14, 15}));
}

// Statistics of the tokens alone, whatever fills the rows up, and however far.
TEST(Masking, BatchNormOfTokens) {
  Tensor x = some_input();
  auto run = [&](const Tensor& batch, const Tensor& where, BatchNorm1d& norm) {
    return put_tokens(norm(take_tokens(batch, where)), where);
  };
  BatchNorm1d norm(6);
  Tensor expected = run(x, mask(), norm), tokens = take_tokens(x, mask());
  EXPECT_TRUE(close(norm.running_mean, tokens.mean({0}) * 0.1));
  for (double value : kPoison) {
    BatchNorm1d other(6);
    Tensor wider = data::pad_to(poisoned(x, value), 9, value);
    expect_same(run(wider, data::padding_mask(kLengths, 9), other).narrow(1, 0, 5), expected);
    expect_same(other.running_mean, norm.running_mean);
    expect_same(other.running_var, norm.running_var);
  }
}

// Micro-batches with different numbers of tokens, the last window with fewer of them.
void check_windows(DType dtype, double tolerance) {
  RngScope rng({3, 0});
  Linear head(8, 11);
  head.to(dtype);
  Tensor x = randn({14, 6, 8}).to(dtype), targets = randint(0, 11, {14, 6});
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 14; ++i) lengths.push_back(i * i % 7);
  targets = targets.masked_fill(logical_not(data::padding_mask(lengths, 6)), -100);
  for (auto [begin, end] : {std::pair{0, 9}, {9, 14}}) {  // a whole window of 3 x 3 rows, and a rest of 3 + 2
    Tensor rows = x.narrow(0, begin, end - begin), wanted = targets.narrow(0, begin, end - begin);
    head.zero_grad();
    Tensor whole = cross_entropy(head(rows).reshape({-1, 11}), wanted.reshape({-1}));
    whole.backward();
    Tensor weight = head.weight.grad().clone(), bias = head.bias.grad().clone();

    head.zero_grad();
    int64_t tokens = count_tokens(wanted);
    double loss = 0, mean_of_means = 0;
    for (int64_t i = begin; i < end; i += 3) {
      int64_t n = std::min<int64_t>(3, end - i);
      Tensor part = token_cross_entropy(head(x.narrow(0, i, n)), targets.narrow(0, i, n), tokens);
      part.backward();
      loss += part.item();
      mean_of_means += part.item() * static_cast<double>(tokens) /
                       static_cast<double>(count_tokens(targets.narrow(0, i, n))) /
                       std::ceil(static_cast<double>(end - begin) / 3);
    }
    EXPECT_NEAR(loss, whole.item(), tolerance);
    EXPECT_TRUE((head.weight.grad() - weight).abs().amax().item() <= tolerance);
    EXPECT_TRUE((head.bias.grad() - bias).abs().amax().item() <= tolerance);
    EXPECT_GT(std::abs(mean_of_means - whole.item()), 1e-4);  // the usual mistake would be seen
  }
}
TEST(Masking, MicroBatchesEqualTheWholeBatch) {
  check_windows(DType::f32, 1e-6);
  check_windows(DType::f64, 1e-14);
}

TEST(Masking, LossIgnoresWhatIsNoTarget) {
  RngScope rng({4, 0});
  Tensor logits = randn({4, 5, 7}), targets = randint(0, 7, {4, 5}).masked_fill(logical_not(mask()), -100);
  Tensor expected = token_cross_entropy(logits, targets, 9);
  for (double value : kPoison) {
    Tensor x = poisoned(logits, value).requires_grad_();
    Tensor loss = token_cross_entropy(x, targets, 9);
    EXPECT_EQ(loss.item(), expected.item());
    loss.backward();
    EXPECT_TRUE(std::isfinite(x.grad().abs().sum().item()));
    EXPECT_EQ(x.grad()[1].abs().sum().item(), 0);
  }
  EXPECT_EQ(count_tokens(targets), 9);
  EXPECT_EQ(count_tokens(targets, 3), ne(targets, 3).sum().item<int64_t>());
}

TEST(Masking, Mistakes) {
  Tensor x = some_input();
  EXPECT_THROW(masked_mean(x, ones({4, 6}, DType::boolean)), ShapeError);
  EXPECT_THROW(masked_mean(x, ones({4, 5})), ShapeError);
  EXPECT_THROW(put_tokens(zeros({8, 6}), mask()), ShapeError);
  EXPECT_THROW(token_cross_entropy(x, zeros({4, 5}, DType::i64), 0), ValueError);
  EXPECT_THROW(token_cross_entropy(x, zeros({4, 6}, DType::i64), 3), ShapeError);
}

}  // namespace
}  // namespace deft::nn
