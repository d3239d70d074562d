// deft.Tensor as Python sees it. A plain C type: nanobind's instances cost a hash table entry each.
#pragma once

#include "core/tensor.h"
#include "handles.h"

namespace deft::python {

struct TensorObject {
  PyObject_HEAD Tensor tensor;
  PyObject* weak_list;
};

extern PyTypeObject* tensor_type;
extern PyTypeObject* size_type;

inline bool is_tensor(PyObject* p) { return Py_TYPE(p) == tensor_type || PyType_IsSubtype(Py_TYPE(p), tensor_type); }
inline Tensor& tensor_of(PyObject* p) { return reinterpret_cast<TensorObject*>(p)->tensor; }

// A new reference; None for an undefined tensor.
PyObject* wrap(Tensor&& t);
inline PyObject* wrap(const Tensor& t) { return wrap(Tensor(t)); }
// An instance of `type`, which is Tensor or derives from it.
PyObject* wrap_as(PyTypeObject* type, Tensor&& t);

PyObject* wrap_size(const Shape& shape);
PyObject* python_number(Scalar value);
PyObject* item_of(const Tensor& t);

void add_tensor_type(PyObject* module);

// Python's number protocol, indexing and buffers: the slots of the type.
extern PyType_Slot operator_slots[];
int operator_slot_count();
PyObject* get_item(PyObject* self, PyObject* index);
int set_item(PyObject* self, PyObject* index, PyObject* value);
int get_buffer(PyObject* self, Py_buffer* view, int flags);
void release_buffer(PyObject* self, Py_buffer* view);

}  // namespace deft::python
