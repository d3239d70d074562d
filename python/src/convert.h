// Python values to what ops take. `fits` asks, `get` converts and throws TypeError where it cannot.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "tensor_object.h"

namespace deft::python {

// --- Element types and devices are Python objects of their own.
struct DTypeBox {
  DType dtype;
};
PyObject* wrap(DType t);  // always the same object for the same type
PyObject* wrap(Device d);
bool is_dtype(PyObject* p);
DType to_dtype(PyObject* p);
Device to_device(PyObject* p);
const char* torch_name(DType t);
void add_types(PyObject* module);
DType default_dtype();

// --- Numbers
inline bool is_bool(PyObject* p) { return p == Py_True || p == Py_False; }
bool is_number(PyObject* p);   // Python's and NumPy's
bool is_integer(PyObject* p);  // whatever has __index__, but tensors of more than one element and bools
Scalar to_scalar(PyObject* p);
int64_t to_int(PyObject* p);
double to_double(PyObject* p);
bool to_bool(PyObject* p);
std::string to_text(PyObject* p);

// A few whole numbers without an allocation.
class Ints {
 public:
  void push(int64_t v);
  IntList list() const { return {values_.data(), size_}; }
  operator IntList() const { return list(); }
  size_t size() const { return size_; }
  int64_t operator[](size_t i) const { return values_[i]; }

 private:
  std::array<int64_t, 2 * kMaxDims> values_;
  size_t size_ = 0;
};
Ints to_ints(PyObject* p);  // a number, a sequence of them, or a Size
Ints to_ints(PyObject* const* items, Py_ssize_t count);
std::vector<int64_t> to_int_vector(PyObject* p);
std::vector<Tensor> to_tensors(PyObject* p);  // any iterable

// Which dims to reduce: None and () mean all.
struct Dims {
  Ints ints;
  bool all = true;
  operator IntList() const { return ints.list(); }
};

// A tensor or a number.
struct Operand {
  const Tensor* tensor = nullptr;
  Scalar scalar = 0;
};
bool fits_operand(PyObject* p);
Operand to_operand(PyObject* p);

// Calls f(a, b) with what the two are; at least one is a tensor.
template <class F>
Tensor with_operands(const Operand& a, const Operand& b, F&& f) {
  if (a.tensor && b.tensor) return f(*a.tensor, *b.tensor);
  if (a.tensor) return f(*a.tensor, b.scalar);
  if (b.tensor) return f(a.scalar, *b.tensor);
  fail(PyExc_TypeError, "at least one of the two arguments must be a Tensor");
}

// "float32" or None where torch has a dtype argument, and the same for devices.
struct Options {
  std::optional<DType> dtype;
  std::optional<Device> device;
  bool requires_grad = false;
  TensorOptions with(DType otherwise) const {
    return {dtype.value_or(otherwise), device.value_or(kCPU), requires_grad};
  }
};

}  // namespace deft::python
