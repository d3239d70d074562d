#include "nn/ctc_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "base/check.h"
#include "core/describe.h"
#include "core/function.h"
#include "ops/all_ops.h"
#include "runtime/parallel.h"

namespace deft::nn {

namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

struct CtcBatch {
  std::vector<std::vector<int64_t>> labels;
  std::vector<int64_t> steps;
  int64_t blank;
  bool zero_infinity;
};

double log_sum(double a, double b, double c) {
  double largest = std::max({a, b, c});
  if (largest == kNever) return kNever;
  return largest + std::log(std::exp(a - largest) + std::exp(b - largest) + std::exp(c - largest));
}

// One sample: blanks and labels in turns are the states; a step stays, goes on by one, or skips the blank between two
// labels that differ.
template <class T>
class Alignments {
 public:
  Alignments(const T* log_probs, int64_t row, const std::vector<int64_t>& labels, int64_t steps, int64_t blank)
      : log_probs_(log_probs), row_(row), steps_(steps), states_(2 * labels.size() + 1, blank) {
    for (size_t i = 0; i < labels.size(); ++i) states_[2 * i + 1] = labels[i];
  }

  // log P(labels). Keeps the forward variables of all steps where the gradient is wanted, else of two.
  double forward(bool keep) {
    const size_t n = states_.size();
    if (steps_ == 0) return n == 1 ? 0 : kNever;
    alpha_.assign((keep ? static_cast<size_t>(steps_) : 2) * n, kNever);
    for (size_t s = 0; s < std::min<size_t>(n, 2); ++s) alpha_[s] = emitted(0, s);
    const double* before = alpha_.data();
    for (int64_t t = 1; t < steps_; ++t) {
      double* now = alpha_.data() + (keep ? static_cast<size_t>(t) : static_cast<size_t>(t % 2)) * n;
      for (size_t s = 0; s < n; ++s)
        now[s] = emitted(t, s) + log_sum(before[s], s >= 1 ? before[s - 1] : kNever, skips(s) ? before[s - 2] : kNever);
      before = now;
    }
    return log_sum(before[n - 1], n > 1 ? before[n - 2] : kNever, kNever);
  }

  // Adds -scale * P(in state s at step t | labels) to the gradient of every emission. `total` is what forward(true)
  // gave.
  void backward(double total, double scale, T* gradient) {
    const size_t n = states_.size();
    std::vector<double> beta(n, kNever), next(n);
    for (int64_t t = steps_ - 1; t >= 0; --t) {
      next.swap(beta);
      for (size_t s = 0; s < n; ++s) {
        // What follows this state, without its own emission.
        double after = s + 2 >= n ? 0 : kNever;
        if (t < steps_ - 1)
          after = log_sum(next[s], s + 1 < n ? next[s + 1] : kNever, s + 2 < n && skips(s + 2) ? next[s + 2] : kNever);
        double share = std::exp(alpha_[static_cast<size_t>(t) * n + s] + after - total);
        gradient[t * row_ + states_[s]] -= static_cast<T>(scale * share);
        beta[s] = after + emitted(t, s);
      }
    }
  }

 private:
  double emitted(int64_t t, size_t s) const { return static_cast<double>(log_probs_[t * row_ + states_[s]]); }
  bool skips(size_t s) const { return s >= 3 && s % 2 == 1 && states_[s] != states_[s - 2]; }

  const T* log_probs_;
  int64_t row_;  // elements from one step to the next
  int64_t steps_;
  std::vector<int64_t> states_;
  std::vector<double> alpha_;
};

// Calls each(sample, its alignments), samples in parallel.
template <class T, class F>
void for_samples(const Tensor& log_probs, const CtcBatch& batch, const F& each) {
  const int64_t count = log_probs.sizes()[1], classes = log_probs.sizes()[2];
  const T* values = log_probs.data<const T>();
  parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      auto at = static_cast<size_t>(i);
      each(at, Alignments<T>(values + i * classes, count * classes, batch.labels[at], batch.steps[at], batch.blank));
    }
  });
}

template <class T>
Tensor losses(const Tensor& log_probs, const CtcBatch& batch) {
  Tensor result = zeros({log_probs.sizes()[1]}, dtype_of<T>);
  T* out = result.data<T>();
  for_samples<T>(log_probs, batch, [&](size_t i, Alignments<T> sample) {
    double loss = -sample.forward(false);
    out[i] = static_cast<T>(batch.zero_infinity && std::isinf(loss) ? 0 : loss);
  });
  return result;
}

template <class T>
Tensor gradient(const Tensor& log_probs, const Tensor& grad, const CtcBatch& batch) {
  Tensor result = zeros_like(log_probs);
  T* out = result.data<T>();
  std::vector<double> scales = grad.to_vector<double>();
  const int64_t classes = log_probs.sizes()[2];
  for_samples<T>(log_probs, batch, [&](size_t i, Alignments<T> sample) {
    double total = sample.forward(true);
    if (total == kNever && batch.zero_infinity) return;
    sample.backward(total, scales[i], out + static_cast<int64_t>(i) * classes);
  });
  return result;
}

struct CtcLosses : Function<CtcLosses> {
  static constexpr bool once_differentiable = true;
  static Tensor forward(FunctionContext& ctx, const Tensor& log_probs, const std::shared_ptr<const CtcBatch>& batch) {
    ctx.save_for_backward({log_probs});
    ctx.set("batch", batch);
    return log_probs.dtype() == DType::f64 ? losses<double>(log_probs, *batch) : losses<float>(log_probs, *batch);
  }
  static Tensors backward(FunctionContext& ctx, const Tensors& grads) {
    Tensor log_probs = ctx.saved()[0];
    const CtcBatch& batch = *ctx.get<std::shared_ptr<const CtcBatch>>("batch");
    return {log_probs.dtype() == DType::f64 ? gradient<double>(log_probs, grads[0], batch)
                                            : gradient<float>(log_probs, grads[0], batch)};
  }
};

void check(const Tensor& log_probs, const CtcBatch& batch) {
  DEFT_CHECK(log_probs.dim() == 3, ShapeError, "ctc_loss: log_probs have shape {}, expected [steps, batch, classes]",
             to_string(log_probs.sizes()));
  DEFT_CHECK(is_floating(log_probs.dtype()), DTypeError, "ctc_loss: log_probs are {}, expected a floating type",
             describe(log_probs.meta()));
  const Shape& sizes = log_probs.sizes();
  auto count = static_cast<size_t>(sizes[1]);
  DEFT_CHECK(
      batch.labels.size() == count && batch.steps.size() == count, ShapeError,
      "ctc_loss: found {} label sequences and {} lengths for a batch of {}; there must be one of each per sample",
      batch.labels.size(), batch.steps.size(), count);
  DEFT_CHECK(batch.blank >= 0 && batch.blank < sizes[2], ValueError,
             "ctc_loss: found blank {}, expected a class below {}", batch.blank, sizes[2]);
  for (size_t i = 0; i < count; ++i) {
    DEFT_CHECK(batch.steps[i] >= 0 && batch.steps[i] <= sizes[0], ValueError,
               "ctc_loss: sample {} has {} steps, expected at most the {} of log_probs", i, batch.steps[i], sizes[0]);
    for (int64_t label : batch.labels[i])
      DEFT_CHECK(label >= 0 && label < sizes[2], IndexError,
                 "ctc_loss: sample {} has label {}, expected a class below {}", i, label, sizes[2]);
  }
}

}  // namespace

Tensor ctc_loss(const Tensor& log_probs, const std::vector<std::vector<int64_t>>& labels,
                const std::vector<int64_t>& steps, const CtcLossOptions& options, Site site) {
  auto batch = std::make_shared<const CtcBatch>(CtcBatch{labels, steps, options.blank, options.zero_infinity});
  check(log_probs, *batch);
  DType computed = log_probs.dtype() == DType::f64 ? DType::f64 : DType::f32;
  Tensor dense = log_probs.to(kCPU, site).to(computed, site).contiguous(MemoryFormat::contiguous, site);
  Tensor losses = CtcLosses::apply({dense, site}, std::shared_ptr<const CtcBatch>(batch));
  losses = losses.to(log_probs.dtype(), site).to(log_probs.device(), site);
  if (options.reduction == Reduction::none) return losses;
  if (options.reduction == Reduction::sum) return losses.sum(site);
  std::vector<double> counts;
  for (const auto& sequence : labels) counts.push_back(static_cast<double>(std::max<size_t>(sequence.size(), 1)));
  return (losses / tensor(counts).to(losses.dtype(), site).to(losses.device(), site)).mean(site);
}

}  // namespace deft::nn
