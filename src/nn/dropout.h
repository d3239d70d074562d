// Zeroing at random while training; the identity in eval mode.
#pragma once

#include "nn/module.h"

namespace deft::nn {

class DropoutBase : public Layer {
 public:
  std::string describe() const override;
  double p() const { return p_; }

 protected:
  explicit DropoutBase(double p);
  double p_;
};

// Single elements; the rest grows by 1 / (1 - p).
class Dropout : public DropoutBase {
 public:
  explicit Dropout(double p = 0.5) : DropoutBase(p) {}
  Tensor forward(const Tensor& x) override;
};

// Whole channels of N,C,... . Dropout1d and Dropout3d also take C,... without the batch dimension.
class Dropout1d : public DropoutBase {
 public:
  explicit Dropout1d(double p = 0.5) : DropoutBase(p) {}
  Tensor forward(const Tensor& x) override;
};
class Dropout2d : public DropoutBase {
 public:
  explicit Dropout2d(double p = 0.5) : DropoutBase(p) {}
  Tensor forward(const Tensor& x) override;
};
class Dropout3d : public DropoutBase {
 public:
  explicit Dropout3d(double p = 0.5) : DropoutBase(p) {}
  Tensor forward(const Tensor& x) override;
};

// For SELU: dropped elements take its lower limit, which keeps mean and variance.
class AlphaDropout : public DropoutBase {
 public:
  explicit AlphaDropout(double p = 0.5) : DropoutBase(p) {}
  Tensor forward(const Tensor& x) override;
};

}  // namespace deft::nn
