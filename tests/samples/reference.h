// Plain loops over f64 data, for the `expect` side of samples.
#pragma once

#include <functional>

#include "ops/creation.h"
#include "ops/sample.h"

namespace deft::reference {

using Row = std::vector<double>;

inline std::vector<int64_t> complete_dims(const Shape& sizes, std::vector<int64_t> dims) {
  if (dims.empty())
    for (int i = 0; i < sizes.size(); ++i) dims.push_back(i);
  if (sizes.empty()) dims.clear();
  for (int64_t& d : dims)
    if (d < 0) d += sizes.size();
  return dims;
}

// f(values in row-major order) for every position of the dims that are left.
inline Tensor reduce(const Tensor& x, std::vector<int64_t> dims, bool keepdim,
                     const std::function<double(const Row&)>& f) {
  dims = complete_dims(x.sizes(), dims);
  Shape out, kept = x.sizes();
  for (int i = 0; i < x.dim(); ++i) {
    bool reduced = std::count(dims.begin(), dims.end(), i) > 0;
    if (reduced) kept[i] = 1;
    if (!reduced || keepdim) out.push_back(kept[i]);
  }
  Tensor y = zeros(out, DType::f64);
  std::vector<Row> rows(static_cast<size_t>(y.numel()));
  for (int64_t flat = 0; flat < x.numel(); ++flat) {
    int64_t rest = flat, at = 0, step = 1;
    for (int i = x.dim() - 1; i >= 0; --i) {
      if (kept[i] == x.sizes()[i] && kept[i] != 1) at += rest % x.sizes()[i] * step;
      step *= kept[i];
      rest /= x.sizes()[i];
    }
    rows[static_cast<size_t>(at)].push_back(x.data<double>()[flat]);
  }
  for (int64_t i = 0; i < y.numel(); ++i) y.data<double>()[i] = f(rows[static_cast<size_t>(i)]);
  return y;
}

// Replaces every row along `dim` by f(row).
inline Tensor map_rows(const Tensor& x, int64_t dim, const std::function<Row(const Row&)>& f) {
  Tensor y = zeros(x.sizes(), DType::f64);
  if (x.numel() == 0) return y;
  if (x.dim() == 0) {
    y.data<double>()[0] = f({x.data<double>()[0]})[0];
    return y;
  }
  int d = static_cast<int>(dim < 0 ? dim + x.dim() : dim);
  int64_t n = x.sizes()[d], inner = x.strides()[d];
  for (int64_t start = 0; start < x.numel(); ++start) {
    if (start / inner % n) continue;
    Row row;
    for (int64_t i = 0; i < n; ++i) row.push_back(x.data<double>()[start + i * inner]);
    Row out = f(row);
    for (int64_t i = 0; i < n; ++i) y.data<double>()[start + i * inner] = out[static_cast<size_t>(i)];
  }
  return y;
}

// Element `flat` of a row-major tensor has these coordinates.
inline Shape coordinates(const Shape& sizes, int64_t flat) {
  Shape at = sizes;
  for (int d = sizes.size() - 1; d >= 0; --d) {
    at[d] = flat % sizes[d];
    flat /= sizes[d];
  }
  return at;
}
inline int64_t place_of(const Shape& sizes, const Shape& at) {
  int64_t flat = 0;
  for (int d = 0; d < sizes.size(); ++d) flat = flat * sizes[d] + at[d];
  return flat;
}
inline double& element(const Tensor& x, const Shape& at) { return x.data<double>()[place_of(x.sizes(), at)]; }
// A tensor made element by element from coordinates.
inline Tensor build(const Shape& sizes, const std::function<double(const Shape&)>& f) {
  Tensor y = zeros(sizes, DType::f64);
  for (int64_t i = 0; i < y.numel(); ++i) y.data<double>()[i] = f(coordinates(sizes, i));
  return y;
}

inline std::string python_list(const std::vector<int64_t>& v) {
  std::string s = "[";
  for (size_t i = 0; i < v.size(); ++i) s += (i ? ", " : "") + std::to_string(v[i]);
  return s + "]";
}

}  // namespace deft::reference
