#include "nn/dropout.h"

#include <cmath>

#include "base/check.h"
#include "core/describe.h"
#include "ops/activation.h"
#include "ops/binary.h"
#include "ops/creation.h"
#include "ops/random.h"

namespace deft::nn {

DropoutBase::DropoutBase(double p) : p_(p) {
  DEFT_CHECK(p >= 0 && p <= 1, ValueError, "Dropout: the probability lies in [0, 1], found {}", p);
}
std::string DropoutBase::describe() const { return fmt::format("{}(p={})", Module::describe(), p_); }

Tensor Dropout::forward(const Tensor& x) { return dropout(x, p_, is_training()); }

namespace {

Tensor drop_channels(const Tensor& x, int rank, double p, bool training, const Module& layer) {
  DEFT_CHECK(x.dim() == rank || x.dim() == rank - 1, ShapeError,
             "{}: takes {} dimensions, or {} without a batch, found {}", layer.describe(), rank, rank - 1,
             describe(x.meta()));
  if (x.dim() == rank) return feature_dropout(x, p, training);
  return feature_dropout(x.unsqueeze(0), p, training).squeeze(0);
}

}  // namespace

Tensor Dropout1d::forward(const Tensor& x) { return drop_channels(x, 3, p_, is_training(), *this); }
Tensor Dropout2d::forward(const Tensor& x) { return feature_dropout(x, p_, is_training()); }
Tensor Dropout3d::forward(const Tensor& x) { return drop_channels(x, 5, p_, is_training(), *this); }

Tensor AlphaDropout::forward(const Tensor& x) {
  if (!is_training() || p_ == 0) return x;
  if (p_ == 1) return x * 0;
  constexpr double kLimit = -kSeluScale * kSeluAlpha;  // of selu at minus infinity
  double scale = 1 / std::sqrt((kLimit * kLimit * p_ + 1) * (1 - p_));
  Tensor keep = bernoulli(full(x.sizes(), 1 - p_, {x.dtype(), x.device()}));
  // scale * (kept ? x : limit) + the shift that takes the mean back to 0.
  Tensor shift = (1 - keep) * (kLimit * scale) - kLimit * scale * p_;
  return x * (keep * scale) + shift;
}

}  // namespace deft::nn
