#include "models/mlp.h"

#include "base/check.h"

namespace deft::models {

Mlp::Mlp(const std::vector<int64_t>& widths) {
  DEFT_CHECK(widths.size() >= 2, ValueError, "Mlp: needs at least an input and an output width, found {}",
             widths.size());
  for (size_t i = 0; i + 1 < widths.size(); ++i) layers_.add<nn::Linear>(widths[i], widths[i + 1]);
}

Tensor Mlp::forward(const Tensor& x) {
  Tensor y = x.dim() > 2 ? x.flatten(1) : x;
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (i) y = relu(y);
    y = layers_[i](y);
  }
  return y;
}

}  // namespace deft::models
