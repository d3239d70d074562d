// x times the transpose of a weight, and the form of two inputs.
#pragma once

#include "nn/module.h"

namespace deft::nn {

class Linear : public Layer {
 public:
  Linear(int64_t in_features, int64_t out_features, bool bias = true);
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

  Tensor& weight;  // [out, in]
  Tensor& bias;    // [out]; undefined without one
};

// y[o] = a^T weight[o] b + bias[o].
class Bilinear : public Layer {
 public:
  Bilinear(int64_t in1_features, int64_t in2_features, int64_t out_features, bool bias = true);
  using Layer::forward;
  Tensor forward(const Tensor& a, const Tensor& b, Site site = Site::current());
  Tensor operator()(const Tensor& a, const Tensor& b, Site site = Site::current()) { return forward(a, b, site); }
  std::string describe() const override;

  Tensor& weight;  // [out, in1, in2]
  Tensor& bias;    // [out]; undefined without one
};

}  // namespace deft::nn
