// New tensors from sizes, values or memory.
#pragma once

#include <initializer_list>
#include <vector>

#include "core/tensor.h"

namespace deft {

Tensor empty(IntList sizes, TensorOptions options = {}, Site site = Site::current());  // bytes are arbitrary
Tensor zeros(IntList sizes, TensorOptions options = {}, Site site = Site::current());
Tensor ones(IntList sizes, TensorOptions options = {}, Site site = Site::current());
Tensor full(IntList sizes, Scalar value, TensorOptions options = {}, Site site = Site::current());
Tensor scalar_tensor(Scalar value, TensorOptions options = {}, Site site = Site::current());
// start, start + step, ... below end. i64 if all three are integers, otherwise f32, unless a type is given.
Tensor arange(Scalar start, Scalar end, Scalar step = 1, Site site = Site::current());
Tensor arange(Scalar end, Site site = Site::current());
Tensor arange(Scalar start, Scalar end, Scalar step, TensorOptions options, Site site = Site::current());
Tensor linspace(double start, double end, int64_t steps, TensorOptions options = {}, Site site = Site::current());
Tensor eye(int64_t n, int64_t m = -1, TensorOptions options = {}, Site site = Site::current());
// Shape, type, device and memory order of x.
Tensor empty_like(const Tensor& x, Site site = Site::current());
Tensor zeros_like(const Tensor& x, Site site = Site::current());
Tensor ones_like(const Tensor& x, Site site = Site::current());
Tensor full_like(const Tensor& x, Scalar value, Site site = Site::current());

// A 1-d tensor of the values; `view()` gives it a shape.
template <class T>
Tensor tensor(const std::vector<T>& values, TensorOptions options = {dtype_of<T>}, Site site = Site::current());
template <class T>
Tensor tensor(std::initializer_list<T> values, TensorOptions options = {dtype_of<T>}, Site site = Site::current()) {
  return tensor(std::vector<T>(values), options, site);
}
// Around memory of the caller's, which must stay valid until `on_free` is called. Strides in elements; empty =
// row-major.
Tensor from_blob(void* data, IntList sizes, TensorOptions options = {}, IntList strides = {},
                 std::function<void()> on_free = nullptr, Site site = Site::current());

}  // namespace deft
