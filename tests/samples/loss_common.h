// Helpers for the samples of losses.
#pragma once

#include <algorithm>

#include "ops/loss.h"
#include "samples/reference.h"

namespace deft::loss_reference {

using Values = std::vector<double>;

inline Tensor tensor_of(const Values& v, const Shape& sizes) {
  Tensor t = empty(sizes, DType::f64);
  std::copy(v.begin(), v.end(), t.data<double>());
  return t;
}
inline double total(const Values& v) {
  double sum = 0;
  for (double x : v) sum += x;
  return sum;
}
// mean divides by `count`.
inline Tensors reduced_values(const Values& v, const Shape& sizes, Reduction r, double count) {
  if (r == Reduction::none) return {tensor_of(v, sizes)};
  return {tensor_of({r == Reduction::mean ? total(v) / count : total(v)}, {})};
}
inline Tensors reduced_values(const Values& v, const Shape& sizes, Reduction r) {
  return reduced_values(v, sizes, r, static_cast<double>(v.size()));
}

inline constexpr Reduction kReductions[] = {Reduction::mean, Reduction::sum, Reduction::none};
inline std::string name_of(Reduction r) { return r == Reduction::mean ? "mean" : r == Reduction::sum ? "sum" : "none"; }
inline std::string python(Reduction r) { return "reduction='" + name_of(r) + "'"; }

inline double at(const Tensor& t, int64_t i) { return t.data<double>()[t.numel() == 1 ? 0 : i]; }

inline Arg probability(Shape sizes) { return real(sizes, 0.05, 0.95); }
inline Arg constant(Arg a) {
  a.grad = false;
  return a;
}

}  // namespace deft::loss_reference
