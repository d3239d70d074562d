#include "nn/activation.h"

#include "base/check.h"
#include "core/describe.h"
#include "ops/binary.h"
#include "ops/creation.h"
#include "ops/softmax.h"
#include "ops/ternary.h"
#include "ops/unary.h"

namespace deft::nn {

Tensor ReLU6::forward(const Tensor& x) { return relu6(x); }
Tensor Sigmoid::forward(const Tensor& x) { return sigmoid(x); }
Tensor LogSigmoid::forward(const Tensor& x) { return log_sigmoid(x); }
Tensor Tanh::forward(const Tensor& x) { return tanh(x); }
Tensor SiLU::forward(const Tensor& x) { return silu(x); }
Tensor Mish::forward(const Tensor& x) { return mish(x); }
Tensor SELU::forward(const Tensor& x) { return selu(x); }
Tensor Softsign::forward(const Tensor& x) { return softsign(x); }
Tensor Tanhshrink::forward(const Tensor& x) { return tanhshrink(x); }
Tensor Hardsigmoid::forward(const Tensor& x) { return hardsigmoid(x); }
Tensor Hardswish::forward(const Tensor& x) { return hardswish(x); }

Tensor ReLU::forward(const Tensor& x) {
  if (!inplace_) return relu(x);
  Tensor same = x;
  return same.relu_();
}
std::string ReLU::describe() const { return inplace_ ? "ReLU(inplace)" : "ReLU"; }

Tensor GELU::forward(const Tensor& x) { return gelu(x, approximate_); }
std::string GELU::describe() const { return approximate_ == GeluApproximation::tanh ? "GELU(tanh)" : "GELU"; }

Tensor LeakyReLU::forward(const Tensor& x) { return leaky_relu(x, slope_); }
std::string LeakyReLU::describe() const { return fmt::format("LeakyReLU(slope={})", slope_); }
Tensor ELU::forward(const Tensor& x) { return elu(x, alpha_); }
std::string ELU::describe() const { return fmt::format("ELU(alpha={})", alpha_); }
Tensor CELU::forward(const Tensor& x) { return celu(x, alpha_); }
std::string CELU::describe() const { return fmt::format("CELU(alpha={})", alpha_); }
Tensor Hardshrink::forward(const Tensor& x) { return hardshrink(x, lambda_); }
std::string Hardshrink::describe() const { return fmt::format("Hardshrink(lambda={})", lambda_); }
Tensor Softshrink::forward(const Tensor& x) { return softshrink(x, lambda_); }
std::string Softshrink::describe() const { return fmt::format("Softshrink(lambda={})", lambda_); }

Tensor Softplus::forward(const Tensor& x) { return softplus(x, beta_, threshold_); }
std::string Softplus::describe() const { return fmt::format("Softplus(beta={}, threshold={})", beta_, threshold_); }
Tensor Hardtanh::forward(const Tensor& x) { return hardtanh(x, min_, max_); }
std::string Hardtanh::describe() const { return fmt::format("Hardtanh(min={}, max={})", min_, max_); }
Tensor Threshold::forward(const Tensor& x) { return threshold(x, threshold_, value_); }
std::string Threshold::describe() const { return fmt::format("Threshold({}, value={})", threshold_, value_); }

Tensor Softmax::forward(const Tensor& x) { return softmax(x, dim_); }
std::string Softmax::describe() const { return fmt::format("Softmax(dim={})", dim_); }
Tensor LogSoftmax::forward(const Tensor& x) { return log_softmax(x, dim_); }
std::string LogSoftmax::describe() const { return fmt::format("LogSoftmax(dim={})", dim_); }
Tensor Softmin::forward(const Tensor& x) { return softmin(x, dim_); }
std::string Softmin::describe() const { return fmt::format("Softmin(dim={})", dim_); }

Tensor GLU::forward(const Tensor& x) {
  DEFT_CHECK(x.dim() > 0 && x.size(dim_) % 2 == 0, ShapeError, "GLU: dimension {} of shape {} cannot be cut in half",
             dim_, deft::to_string(x.sizes()));
  int64_t half = x.size(dim_) / 2;
  return x.narrow(dim_, 0, half) * sigmoid(x.narrow(dim_, half, half));
}
std::string GLU::describe() const { return fmt::format("GLU(dim={})", dim_); }

PReLU::PReLU(int64_t num_parameters, double init) : weight(parameter("weight", full({num_parameters}, init))) {}
Tensor PReLU::forward(const Tensor& x) {
  int64_t slopes = weight.numel();
  DEFT_CHECK(slopes == 1 || (x.dim() >= 2 && x.size(1) == slopes), ShapeError,
             "PReLU: {} slopes for an input {}; dimension 1 must have that size", slopes, deft::describe(x.meta()));
  Shape sizes;
  for (int i = 0; i < x.dim(); ++i) sizes.push_back(i == 1 ? slopes : 1);
  Tensor w = slopes == 1 ? weight : weight.view(sizes);
  return where(x > 0, x, x * w);
}
std::string PReLU::describe() const { return fmt::format("PReLU({})", weight.numel()); }

}  // namespace deft::nn
