#include "nn/init.h"

#include <cmath>

#include "base/check.h"
#include "core/describe.h"
#include "core/grad_mode.h"
#include "ops/creation.h"
#include "ops/random.h"
#include "ops/unary.h"

namespace deft::nn::init {

namespace {

constexpr double kSqrt2 = 1.41421356237309504880;

double normal_share_below(double x) { return 0.5 * std::erfc(-x / kSqrt2); }

// Makes the rows of `rows` orthonormal, first to last. Each is projected twice: once leaves an error of the condition.
void orthonormalize(std::vector<double>& rows, size_t count, size_t n) {
  for (size_t i = 0; i < count; ++i) {
    double* row = rows.data() + i * n;
    for (int pass = 0; pass < 2; ++pass) {
      for (size_t j = 0; j < i; ++j) {
        const double* other = rows.data() + j * n;
        double dot = 0;
        for (size_t k = 0; k < n; ++k) dot += row[k] * other[k];
        for (size_t k = 0; k < n; ++k) row[k] -= dot * other[k];
      }
    }
    double squares = 0;
    for (size_t k = 0; k < n; ++k) squares += row[k] * row[k];
    for (size_t k = 0; k < n; ++k) row[k] /= std::sqrt(squares);
  }
}

double kaiming_std(const Tensor& x, const KaimingOptions& options) {
  Fans f = fans(x);
  auto fan = static_cast<double>(options.mode == FanMode::in ? f.in : f.out);
  return gain(options.nonlinearity, options.slope) / std::sqrt(fan);
}

double xavier_std(const Tensor& x, double factor) {
  Fans f = fans(x);
  return factor * std::sqrt(2 / static_cast<double>(f.in + f.out));
}

}  // namespace

Tensor& uniform_(Tensor& x, double low, double high) {
  NoGradGuard no_grad;
  return deft::uniform_(x, low, high);
}

Tensor& normal_(Tensor& x, double mean, double std) {
  NoGradGuard no_grad;
  return deft::normal_(x, mean, std);
}

Tensor& trunc_normal_(Tensor& x, double mean, double std, double low, double high) {
  DEFT_CHECK(low < high, ValueError, "trunc_normal_: low must be less than high, found {} and {}", low, high);
  NoGradGuard no_grad;
  // The inverse distribution function of uniform numbers between its values at the ends.
  double first = normal_share_below((low - mean) / std), last = normal_share_below((high - mean) / std);
  Tensor u = empty(x.sizes(), {DType::f64, x.device()});
  deft::uniform_(u, 2 * first - 1, 2 * last - 1);
  return x.copy_(erfinv(u).mul_(std * kSqrt2).add_(mean).clamp_(low, high));
}

Tensor& constant_(Tensor& x, Scalar value) {
  NoGradGuard no_grad;
  return x.fill_(value);
}
Tensor& zeros_(Tensor& x) { return init::constant_(x, 0); }
Tensor& ones_(Tensor& x) { return init::constant_(x, 1); }

Tensor& eye_(Tensor& x) {
  DEFT_CHECK(x.dim() == 2, ShapeError, "eye_: needs a matrix, found {}", describe(x.meta()));
  NoGradGuard no_grad;
  return x.copy_(eye(x.size(0), x.size(1), {x.dtype(), x.device()}));
}

double gain(Nonlinearity nonlinearity, double slope) {
  switch (nonlinearity) {
    case Nonlinearity::tanh:
      return 5.0 / 3;
    case Nonlinearity::relu:
      return kSqrt2;
    case Nonlinearity::leaky_relu:
      return std::sqrt(2 / (1 + slope * slope));
    case Nonlinearity::selu:
      return 0.75;
    case Nonlinearity::linear:
    case Nonlinearity::sigmoid:
      break;
  }
  return 1;
}

Fans fans(const Tensor& weight) {
  DEFT_CHECK(weight.dim() >= 2, ShapeError,
             "init: a weight needs at least 2 dimensions to have inputs and outputs, found {}",
             describe(weight.meta()));
  int64_t kernel = 1;
  for (int i = 2; i < weight.dim(); ++i) kernel *= weight.size(i);
  return {weight.size(1) * kernel, weight.size(0) * kernel};
}

// A uniform distribution in [-b, b] has standard deviation b / sqrt(3).
Tensor& xavier_uniform_(Tensor& x, double factor) {
  double bound = std::sqrt(3.0) * xavier_std(x, factor);
  return init::uniform_(x, -bound, bound);
}
Tensor& xavier_normal_(Tensor& x, double factor) { return init::normal_(x, 0, xavier_std(x, factor)); }

Tensor& kaiming_uniform_(Tensor& x, const KaimingOptions& options) {
  if (x.numel() == 0) return x;
  double bound = std::sqrt(3.0) * kaiming_std(x, options);
  return init::uniform_(x, -bound, bound);
}
Tensor& kaiming_normal_(Tensor& x, const KaimingOptions& options) {
  if (x.numel() == 0) return x;
  return init::normal_(x, 0, kaiming_std(x, options));
}

Tensor& orthogonal_(Tensor& x, double factor) {
  DEFT_CHECK(x.dim() >= 2, ShapeError, "orthogonal_: needs at least 2 dimensions, found {}", describe(x.meta()));
  if (x.numel() == 0) return x;
  NoGradGuard no_grad;
  int64_t rows = x.size(0), columns = x.numel() / rows;
  int64_t count = std::min(rows, columns), length = std::max(rows, columns);
  std::vector<double> basis = randn({count, length}, DType::f64).to_vector<double>();
  orthonormalize(basis, static_cast<size_t>(count), static_cast<size_t>(length));
  Tensor q = tensor(basis).view({count, length});
  if (rows > columns) q = q.t();
  return x.copy_(q.reshape(x.sizes()).mul(factor).to(x.device()));
}

}  // namespace deft::nn::init
