#include "nn/linear.h"

#include <cmath>

#include "base/check.h"
#include "nn/init.h"
#include "ops/creation.h"
#include "ops/matmul.h"

namespace deft::nn {

Linear::Linear(int64_t in_features, int64_t out_features, bool with_bias)
    : weight(parameter("weight", empty({out_features, in_features}))),
      bias(parameter("bias", with_bias ? empty({out_features}) : Tensor())) {
  // PyTorch's choice: leaky_relu's gain with this slope makes it uniform in +-1 / sqrt(in).
  init::kaiming_uniform_(weight, {.slope = std::sqrt(5.0)});
  double bound = in_features > 0 ? 1 / std::sqrt(static_cast<double>(in_features)) : 0;
  if (with_bias) init::uniform_(bias, -bound, bound);
}

Tensor Linear::forward(const Tensor& x) { return linear(x, weight, bias); }

std::string Linear::describe() const {
  return fmt::format("Linear(in={}, out={}{})", weight.size(1), weight.size(0), bias.defined() ? "" : ", bias=false");
}

Bilinear::Bilinear(int64_t in1_features, int64_t in2_features, int64_t out_features, bool with_bias)
    : weight(parameter("weight", empty({out_features, in1_features, in2_features}))),
      bias(parameter("bias", with_bias ? empty({out_features}) : Tensor())) {
  DEFT_CHECK(in1_features > 0, ValueError, "Bilinear: in1_features must be positive, found {}", in1_features);
  double bound = 1 / std::sqrt(static_cast<double>(in1_features));
  init::uniform_(weight, -bound, bound);
  if (with_bias) init::uniform_(bias, -bound, bound);
}

Tensor Bilinear::forward(const Tensor& a, const Tensor& b, Site site) { return bilinear(a, b, weight, bias, site); }

std::string Bilinear::describe() const {
  return fmt::format("Bilinear(in1={}, in2={}, out={}{})", weight.size(1), weight.size(2), weight.size(0),
                     bias.defined() ? "" : ", bias=false");
}

}  // namespace deft::nn
