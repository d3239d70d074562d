// The CTC loss against the sum over all alignments, one by one, and its gradient against differences.
#include "nn/ctc_loss.h"

#include <cmath>
#include <limits>

#include "nn_util.h"
#include "ops/gradcheck.h"

namespace deft::nn {
namespace {

using Labels = std::vector<std::vector<int64_t>>;

// What a sequence of classes says: repetitions joined, blanks dropped.
std::vector<int64_t> read(const std::vector<int64_t>& path, int64_t blank) {
  std::vector<int64_t> said;
  for (size_t i = 0; i < path.size(); ++i)
    if (path[i] != blank && (i == 0 || path[i] != path[i - 1])) said.push_back(path[i]);
  return said;
}

// The probability of the labels by every sequence of classes.
double probability(const Tensor& log_probs, int64_t sample, int64_t steps, const std::vector<int64_t>& labels,
                   int64_t blank) {
  const int64_t classes = log_probs.sizes()[2];
  std::vector<int64_t> path(static_cast<size_t>(steps), 0);
  double total = 0;
  while (true) {
    if (read(path, blank) == labels) {
      double sum = 0;
      for (int64_t t = 0; t < steps; ++t)
        sum += log_probs.select(0, t).select(0, sample).select(0, path[static_cast<size_t>(t)]).item();
      total += std::exp(sum);
    }
    size_t digit = 0;
    while (digit < path.size() && ++path[digit] == classes) path[digit++] = 0;
    if (digit == path.size()) return total;
  }
}

Tensor scores(int64_t steps, int64_t batch, int64_t classes) {
  Tensor x = (arange(0, steps * batch * classes) * 0.7).sin().to(f64) * 2;
  return x.view({steps, batch, classes});
}

TEST(CtcLoss, IsTheSumOverAllAlignments) {
  Tensor log_probs = scores(5, 4, 3).log_softmax(2);
  const Labels labels{{1, 2}, {1, 1}, {}, {0, 2, 0}};
  const std::vector<int64_t> steps{5, 4, 3, 5};
  for (int64_t blank : {0, 1, 2}) {
    Labels said;
    for (const auto& row : labels) {  // none of them is the blank
      said.emplace_back();
      for (int64_t label : row)
        said.back().push_back((label + blank) % 3 == blank ? (blank + 1) % 3 : (label + blank) % 3);
    }
    Tensor losses = ctc_loss(log_probs, said, steps, {.blank = blank, .reduction = Reduction::none});
    for (size_t i = 0; i < said.size(); ++i) {
      double expected = -std::log(probability(log_probs, static_cast<int64_t>(i), steps[i], said[i], blank));
      EXPECT_NEAR(losses.select(0, static_cast<int64_t>(i)).item(), expected, 1e-12 * (1 + expected)) << i;
    }
  }
}

TEST(CtcLoss, Gradient) {
  const Labels labels{{1, 2}, {1, 1, 2}, {}};
  for (Reduction reduction : {Reduction::none, Reduction::sum, Reduction::mean})
    gradcheck(
        [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
          return {ctc_loss(in[0].log_softmax(2), labels, {6, 5, 2}, {.reduction = reduction})};
        },
        {scores(6, 3, 4).requires_grad_()});
}

TEST(CtcLoss, ManyStepsOfAFarTargetStayFinite) {  // exp(-20000) is 0: sums are of logarithms
  Tensor log_probs = zeros({1000, 1, 3}) - 20;
  log_probs.select(2, 0).fill_(0);
  Labels labels(1);
  for (int i = 0; i < 400; ++i) labels[0].push_back(1 + i % 2);
  double loss = ctc_loss(log_probs, labels, {1000}, {.reduction = Reduction::sum}).item();
  EXPECT_NEAR(loss, 400 * 20, 700);
}

TEST(CtcLoss, LabelsThatDoNotFit) {
  Tensor log_probs = scores(3, 2, 3).log_softmax(2).requires_grad_();
  const Labels labels{{1, 1, 1}, {2}};  // three equal labels want five steps
  Tensor losses = ctc_loss(log_probs, labels, {3, 0}, {.reduction = Reduction::none});
  EXPECT_EQ(losses.to_vector<double>(), std::vector<double>(2, std::numeric_limits<double>::infinity()));
  Tensor zero = ctc_loss(log_probs, labels, {3, 0}, {.reduction = Reduction::sum, .zero_infinity = true});
  EXPECT_EQ(zero.item(), 0);
  zero.backward();
  EXPECT_EQ(log_probs.grad().abs().sum().item(), 0);
}

TEST(CtcLoss, WrongArguments) {
  Tensor x = zeros({3, 1, 4});
  EXPECT_THROW(ctc_loss(zeros({3, 4}), {{1}}, {3}), ShapeError);
  EXPECT_THROW(ctc_loss(zeros({3, 1, 4}).to(i64), {{1}}, {3}), DTypeError);
  EXPECT_THROW(ctc_loss(x, {{1}, {2}}, {3}), ShapeError);
  EXPECT_THROW(ctc_loss(x, {{1}}, {4}), ValueError);
  EXPECT_THROW(ctc_loss(x, {{4}}, {3}), IndexError);
  EXPECT_THROW(ctc_loss(x, {{1}}, {3}, {.blank = 4}), ValueError);
}

}  // namespace
}  // namespace deft::nn
