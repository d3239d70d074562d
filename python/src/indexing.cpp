// x[...] and x[...] = value.
#include <vector>

#include "convert.h"
#include "ops/all_ops.h"

namespace deft::python {

Tensor build_tensor(PyObject* data, std::optional<DType> dtype);

namespace {

std::optional<int64_t> slice_end(PyObject* p) {
  if (p == Py_None) return {};
  return to_int(p);
}

TensorIndex to_index(PyObject* p) {
  if (PyLong_CheckExact(p)) return to_int(p);
  if (PySlice_Check(p)) {
    auto* s = reinterpret_cast<PySliceObject*>(p);
    int64_t step = s->step == Py_None ? 1 : to_int(s->step);
    if (step <= 0) fail(PyExc_ValueError, "step must be greater than zero");
    return Slice(slice_end(s->start), slice_end(s->stop), step);
  }
  if (p == Py_None) return NewAxis();
  if (p == Py_Ellipsis) return Ellipsis();
  if (is_bool(p)) return p == Py_True;
  if (is_tensor(p)) {
    const Tensor& t = tensor_of(p);
    if (is_integral(t.dtype()) && t.dtype() != DType::i64) return t.to(DType::i64, here());
    return t;
  }
  if (PyIndex_Check(p) && !PySequence_Check(p)) return to_int(p);
  if (PySequence_Check(p) && !PyUnicode_Check(p)) {
    Tensor t = build_tensor(p, {});
    if (t.numel() == 0 && is_floating(t.dtype())) t = t.to(DType::i64);  // []
    return is_integral(t.dtype()) ? t.to(DType::i64) : t;
  }
  fail(PyFloat_Check(p) ? PyExc_IndexError : PyExc_TypeError,
       "tensors are indexed by integers, slices, None, Ellipsis, and integer or bool tensors and lists, not %s",
       Py_TYPE(p)->tp_name);
}

std::vector<TensorIndex> to_indices(PyObject* index) {
  std::vector<TensorIndex> r;
  if (PyTuple_Check(index)) {
    const Py_ssize_t n = PyTuple_GET_SIZE(index);
    r.reserve(static_cast<size_t>(n));
    for (Py_ssize_t i = 0; i < n; ++i) r.push_back(to_index(PyTuple_GET_ITEM(index, i)));
  } else {
    r.push_back(to_index(index));
  }
  return r;
}

// What is written takes the type of what it is written into, and leading dims of size 1 are dropped.
Tensor fitting_value(PyObject* value, const Tensor& x) {
  Tensor v = is_tensor(value) ? tensor_of(value) : build_tensor(value, x.dtype());
  if (v.dtype() != x.dtype()) v = v.to(x.dtype(), here());
  if (v.device() != x.device() && v.dim() == 0) v = v.to(x.device(), here());
  return v;
}

}  // namespace

PyObject* get_item(PyObject* self, PyObject* index) {
  try {
    const Tensor& x = tensor_of(self);
    if (PyLong_CheckExact(index) && x.dim() > 0) return wrap(select(x, 0, to_int(index), here()));
    return wrap(x.index(to_indices(index), here()));
  } catch (...) {
    return translate_exception();
  }
}

int set_item(PyObject* self, PyObject* index, PyObject* value) {
  try {
    if (!value) fail(PyExc_TypeError, "elements of a Tensor cannot be deleted");
    Tensor& x = tensor_of(self);
    std::vector<TensorIndex> indices = to_indices(index);
    if (!is_tensor(value) && is_number(value))
      x.index_put_(indices, to_scalar(value), false, here());
    else
      x.index_put_(indices, fitting_value(value, x), false, here());
    return 0;
  } catch (...) {
    translate_exception();
    return -1;
  }
}

}  // namespace deft::python
