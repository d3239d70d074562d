// What the norms share. Internal.
#pragma once

#include "ops/norm.h"

namespace deft::norms {

// Weight or bias, if given: of the wanted shape and of x's type.
void check_factor(const Meta& m, const Shape& wanted, const Meta& x, const char* what, const char* op);
// f32, or f64 for f64.
inline DType statistics_type(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }
// Metas of (dx, dweight, dbias), empty where not wanted; checks that g is like x.
std::array<Meta, 3> backward_metas(const Meta& g, const Meta& x, const Meta& dx, const Shape& factor_sizes,
                                   uint8_t wanted, const char* op);
// Which gradients a node needs; input 0 is x, 1 weight, 2 bias.
uint8_t wanted_grads(const VjpContext& c);
// An input that was given, and saved.
bool has_saved_input(const VjpContext& c, int i);
// Writes zeros.
void clear(const Tensor& t);
// Gradients of (x - mean) * rstd * weight + bias over the dims `over`: (dx, dweight, dbias), composed of public ops.
// Weight has the number of dims of x or is undefined; dweight and dbias are not yet summed.
std::vector<Tensor> composed_grads(const Tensor& g, const Tensor& x, const Tensor& weight, IntList over, double eps);

}  // namespace deft::norms
