// Filling parameters with their first values, as in PyTorch. All write in place, without a graph, and return the
// tensor.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace deft::nn::init {

Tensor& uniform_(Tensor& x, double low = 0, double high = 1);
Tensor& normal_(Tensor& x, double mean = 0, double std = 1);
// The part of a normal distribution within [low, high].
Tensor& trunc_normal_(Tensor& x, double mean = 0, double std = 1, double low = -2, double high = 2);
Tensor& constant_(Tensor& x, Scalar value);
Tensor& zeros_(Tensor& x);
Tensor& ones_(Tensor& x);
Tensor& eye_(Tensor& x);  // a matrix

// What a layer's weight is followed by.
enum class Nonlinearity : uint8_t { linear, sigmoid, tanh, relu, leaky_relu, selu };
// The factor that keeps the variance; `slope` is leaky_relu's.
double gain(Nonlinearity nonlinearity, double slope = 0.01);

// The inputs that an output is a sum of, and the outputs that an input takes part in, for a weight [out, in,
// kernel...].
struct Fans {
  int64_t in, out;
};
Fans fans(const Tensor& weight);

enum class FanMode : uint8_t { in, out };
struct KaimingOptions {
  double slope = 0;  // of leaky_relu
  FanMode mode = FanMode::in;
  Nonlinearity nonlinearity = Nonlinearity::leaky_relu;
};
Tensor& xavier_uniform_(Tensor& x, double gain = 1);
Tensor& xavier_normal_(Tensor& x, double gain = 1);
Tensor& kaiming_uniform_(Tensor& x, const KaimingOptions& options = {});
Tensor& kaiming_normal_(Tensor& x, const KaimingOptions& options = {});
// Orthonormal rows, or columns where there are fewer, times `gain`; dims after the first count as one.
Tensor& orthogonal_(Tensor& x, double gain = 1);

}  // namespace deft::nn::init
