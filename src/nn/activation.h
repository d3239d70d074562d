// Activations as modules.
#pragma once

#include "nn/module.h"
#include "ops/activation.h"

namespace deft::nn {

#define DEFT_ACTIVATION(Type)                 \
  class Type : public Layer {                 \
   public:                                    \
    Tensor forward(const Tensor& x) override; \
  };
DEFT_ACTIVATION(ReLU6)
DEFT_ACTIVATION(Sigmoid)
DEFT_ACTIVATION(LogSigmoid)
DEFT_ACTIVATION(Tanh)
DEFT_ACTIVATION(SiLU)
DEFT_ACTIVATION(Mish)
DEFT_ACTIVATION(SELU)
DEFT_ACTIVATION(Softsign)
DEFT_ACTIVATION(Tanhshrink)
DEFT_ACTIVATION(Hardsigmoid)
DEFT_ACTIVATION(Hardswish)
#undef DEFT_ACTIVATION

class ReLU : public Layer {
 public:
  explicit ReLU(bool inplace = false) : inplace_(inplace) {}
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

 private:
  bool inplace_;
};

class GELU : public Layer {
 public:
  explicit GELU(GeluApproximation approximate = GeluApproximation::none) : approximate_(approximate) {}
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

 private:
  GeluApproximation approximate_;
};

// Those with one number.
#define DEFT_ACTIVATION(Type, name, value)                \
  class Type : public Layer {                             \
   public:                                                \
    explicit Type(double name = value) : name##_(name) {} \
    Tensor forward(const Tensor& x) override;             \
    std::string describe() const override;                \
                                                          \
   private:                                               \
    double name##_;                                       \
  };
DEFT_ACTIVATION(LeakyReLU, slope, 0.01)
DEFT_ACTIVATION(ELU, alpha, 1)
DEFT_ACTIVATION(CELU, alpha, 1)
DEFT_ACTIVATION(Hardshrink, lambda, 0.5)
DEFT_ACTIVATION(Softshrink, lambda, 0.5)
#undef DEFT_ACTIVATION

class Softplus : public Layer {
 public:
  explicit Softplus(double beta = 1, double threshold = 20) : beta_(beta), threshold_(threshold) {}
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

 private:
  double beta_, threshold_;
};

class Hardtanh : public Layer {
 public:
  explicit Hardtanh(double min = -1, double max = 1) : min_(min), max_(max) {}
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

 private:
  double min_, max_;
};

class Threshold : public Layer {
 public:
  Threshold(double threshold, double value) : threshold_(threshold), value_(value) {}
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

 private:
  double threshold_, value_;
};

// Along one dim.
#define DEFT_ACTIVATION(Type)                 \
  class Type : public Layer {                 \
   public:                                    \
    explicit Type(int64_t dim) : dim_(dim) {} \
    Tensor forward(const Tensor& x) override; \
    std::string describe() const override;    \
                                              \
   private:                                   \
    int64_t dim_;                             \
  };
DEFT_ACTIVATION(Softmax)
DEFT_ACTIVATION(LogSoftmax)
DEFT_ACTIVATION(Softmin)
#undef DEFT_ACTIVATION

// The first half of a dim times the sigmoid of the second.
class GLU : public Layer {
 public:
  explicit GLU(int64_t dim = -1) : dim_(dim) {}
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

 private:
  int64_t dim_;
};

// x where positive, else x times a slope that is learned: one for all, or one for each channel (dim 1).
class PReLU : public Layer {
 public:
  explicit PReLU(int64_t num_parameters = 1, double init = 0.25);
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

  Tensor& weight;  // [1] or [channels]
};

}  // namespace deft::nn
