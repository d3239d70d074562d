// The sum of a loss over pairs of numbers in one pass: the single losses are never in memory.
#pragma once

#include <cstdint>

#include "runtime/dtype.h"

namespace deft::cpu {

enum class PairLossKind : uint8_t {
  squared,   // (x - t)^2
  absolute,  // |x - t|
  huber,     // scale * (d^2 / 2, or width (d - width / 2) where d = |x - t| > width)
  logistic,  // x (1 - t) + log(1 + exp(-x))
};

struct PairLossCall {
  PairLossKind kind;
  DType dtype;  // floating
  int64_t n;
  const void *x, *target;
  double width = 1, scale = 1;
};

// Does not depend on the number of threads.
double pair_loss(const PairLossCall& c);
// dx = g * the slope of each loss in x.
void pair_loss_backward(const PairLossCall& c, double g, void* dx);

}  // namespace deft::cpu
