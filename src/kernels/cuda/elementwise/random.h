// Random numbers: the same as on the CPU, element by element. `n` elements are contiguous unless stated otherwise.
#pragma once

#include "kernels/cuda/device/encoder.h"
#include "kernels/cuda/device/iteration.h"
#include "runtime/random.h"

namespace deft::cuda {

void fill_uniform(Encoder& e, DType dtype, void* out, int64_t n, PhiloxState draw, double low, double high);
void fill_normal(Encoder& e, DType dtype, void* out, int64_t n, PhiloxState draw, double mean, double std);
void fill_randint(Encoder& e, DType dtype, void* out, int64_t n, PhiloxState draw, int64_t low, int64_t high);
// 1 with the probability given for the element, else 0.
void bernoulli(Encoder& e, DType dtype, const void* p, void* out, int64_t n, PhiloxState draw);
// Zero with probability p, else in * scale. Any strides; elements are numbered row-major over `sizes`.
void dropout(Encoder& e, int ndim, const int64_t* sizes, const Operand& in, const Operand& out, PhiloxState draw,
             double p, double scale);

}  // namespace deft::cuda
