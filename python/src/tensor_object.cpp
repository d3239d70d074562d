#include "tensor_object.h"

#include <Python.h>
#include <structmember.h>

#include <iterator>
#include <new>
#include <vector>

#include "convert.h"
#include "core/describe.h"
#include "core/grad_mode.h"
#include "core/node.h"
#include "exchange.h"
#include "ops/all_ops.h"

namespace deft::python {

PyTypeObject* tensor_type;
PyTypeObject* size_type;

namespace {

// Memory of Tensors that are gone, for the next ones: a step makes and drops thousands.
constexpr size_t kSpareTensors = 256;
#ifndef Py_GIL_DISABLED
TensorObject* spare[kSpareTensors];
size_t spare_count = 0;
#endif

TensorObject* new_object(PyTypeObject* type) {
#ifndef Py_GIL_DISABLED
  if (type == tensor_type && spare_count > 0) {
    TensorObject* o = spare[--spare_count];
    PyObject_Init(reinterpret_cast<PyObject*>(o), type);
    return o;
  }
#endif
  return reinterpret_cast<TensorObject*>(checked(type->tp_alloc(type, 0)));
}

void dealloc(PyObject* self) {
  auto* o = reinterpret_cast<TensorObject*>(self);
  PyTypeObject* type = Py_TYPE(self);
  if (o->weak_list) PyObject_ClearWeakRefs(self);
  o->tensor.~Tensor();
#ifndef Py_GIL_DISABLED
  if (type == tensor_type && spare_count < kSpareTensors) {
    spare[spare_count++] = o;
    Py_DECREF(type);
    return;
  }
#endif
  type->tp_free(self);
  Py_DECREF(type);  // types made at run time are counted by their objects
}

// Every getter is `PyObject* f(const Tensor&)`, every setter `void f(PyObject* self, PyObject* value)`.
template <auto kGet>
PyObject* getter(PyObject* self, void*) {
  try {
    return kGet(tensor_of(self));
  } catch (...) {
    return translate_exception();
  }
}
template <auto kSet>
int setter(PyObject* self, PyObject* value, void*) {
  try {
    kSet(self, value);
    return 0;
  } catch (...) {
    translate_exception();
    return -1;
  }
}

PyObject* get_requires_grad(const Tensor& t) { return PyBool_FromLong(t.requires_grad()); }
void set_requires_grad(PyObject* self, PyObject* value) {
  if (!value) fail(PyExc_RuntimeError, "requires_grad cannot be deleted");
  tensor_of(self).requires_grad_(to_bool(value), here());
}

PyObject* get_grad(const Tensor& t) { return wrap(t.grad()); }
void set_grad(PyObject* self, PyObject* value) {
  Tensor& t = tensor_of(self);
  if (!value || value == Py_None) return t.zero_grad();
  if (!is_tensor(value))
    fail(PyExc_TypeError, "assigned grad must be a Tensor or None, found %s", Py_TYPE(value)->tp_name);
  t.set_grad(tensor_of(value), here());
}

// The same memory under another name, as torch's .data: no history, and not counted as a write.
PyObject* get_data(const Tensor& t) { return wrap(t.detach(here())); }
// The object stays the same and means other memory from now on. A gradient that still fits is kept.
void set_data(PyObject* self, PyObject* value) {
  if (!value || !is_tensor(value)) fail(PyExc_TypeError, "data must be a Tensor");
  Tensor& t = tensor_of(self);
  Tensor next = tensor_of(value).detach(here());
  if (t.defined()) {
    bool wanted = t.requires_grad() && is_floating(next.dtype());
    Tensor grad = t.is_leaf() ? t.grad() : Tensor();
    next.set_memory_category(t.memory_category());
    next.requires_grad_(wanted, here());
    if (wanted && grad.defined() && grad.sizes() == next.sizes() && grad.dtype() == next.dtype() &&
        grad.device() == next.device())
      next.set_grad(grad, here());
  }
  t = std::move(next);
}

PyObject* get_shape(const Tensor& t) { return wrap_size(t.sizes()); }
PyObject* get_dtype(const Tensor& t) { return wrap(t.dtype()); }
PyObject* get_device(const Tensor& t) { return wrap(t.device()); }
PyObject* get_ndim(const Tensor& t) { return PyLong_FromLong(t.dim()); }
PyObject* get_is_leaf(const Tensor& t) { return PyBool_FromLong(t.is_leaf()); }
PyObject* get_itemsize(const Tensor& t) { return PyLong_FromSize_t(t.element_size()); }
PyObject* get_nbytes(const Tensor& t) { return PyLong_FromSize_t(t.element_size() * static_cast<size_t>(t.numel())); }
PyObject* get_version(const Tensor& t) { return PyLong_FromUnsignedLong(t.version()); }
PyObject* get_is_cuda(const Tensor& t) { return PyBool_FromLong(!t.device().is_cpu()); }
PyObject* get_is_cpu(const Tensor& t) { return PyBool_FromLong(t.device().is_cpu()); }
PyObject* get_transposed(const Tensor& t) {
  if (t.dim() < 2) return wrap(t);
  std::vector<int64_t> dims;
  for (int i = t.dim() - 1; i >= 0; --i) dims.push_back(i);
  return wrap(t.permute(dims, here()));
}
PyObject* get_matrix_transposed(const Tensor& t) { return wrap(t.transpose(-2, -1, here())); }

#define DEFT_READ_ONLY(name, get, doc) \
  { name, getter<get>, nullptr, doc, nullptr }
PyGetSetDef properties[] = {
    {"requires_grad", getter<get_requires_grad>, setter<set_requires_grad>,
     "Whether operations on this tensor are recorded for backward().", nullptr},
    {"grad", getter<get_grad>, setter<set_grad>, "The gradient that backward() has summed up, or None.", nullptr},
    {"data", getter<get_data>, setter<set_data>, "The same memory without history.", nullptr},
    DEFT_READ_ONLY("shape", get_shape, "The sizes, as a Size."),
    DEFT_READ_ONLY("dtype", get_dtype, "The type of the elements."),
    DEFT_READ_ONLY("device", get_device, "Where the memory lies."),
    DEFT_READ_ONLY("ndim", get_ndim, "The number of dimensions."),
    DEFT_READ_ONLY("is_leaf", get_is_leaf, "True unless the tensor is the result of a recorded operation."),
    DEFT_READ_ONLY("itemsize", get_itemsize, "Bytes of one element."),
    DEFT_READ_ONLY("nbytes", get_nbytes, "Bytes of all elements."),
    DEFT_READ_ONLY("_version", get_version, "How often the memory was written in place."),
    DEFT_READ_ONLY("is_cuda", get_is_cuda, "True on a GPU."),
    DEFT_READ_ONLY("is_cpu", get_is_cpu, "True in host memory."),
    DEFT_READ_ONLY("T", get_transposed, "All dimensions in reverse order."),
    DEFT_READ_ONLY("mT", get_matrix_transposed, "The last two dimensions swapped."),
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

// Tensor(other), Tensor([1., 2.]), Tensor(2, 3): the old constructor; deft.tensor() is the one to use.
PyObject* new_tensor(PyTypeObject* type, PyObject* args, PyObject* keywords) {
  try {
    if (keywords && PyDict_GET_SIZE(keywords) > 0) fail(PyExc_TypeError, "Tensor() takes no keyword arguments");
    const Py_ssize_t count = PyTuple_GET_SIZE(args);
    PyObject* first = count > 0 ? PyTuple_GET_ITEM(args, 0) : nullptr;
    if (count == 1 && is_tensor(first)) return wrap_as(type, tensor_of(first).detach(here()));
    if (count == 1 && !is_integer(first)) {
      return wrap_as(type, build_tensor(first, default_dtype()));
    }
    Ints sizes;
    if (count == 0) sizes.push(0);
    for (Py_ssize_t i = 0; i < count; ++i) sizes.push(to_int(PyTuple_GET_ITEM(args, i)));
    return wrap_as(type, empty(sizes, default_dtype(), here()));
  } catch (...) {
    return translate_exception();
  }
}

Py_hash_t hash(PyObject* self) { return _Py_HashPointer(self); }

PyMemberDef members[] = {{"__weaklistoffset__", T_PYSSIZET, offsetof(TensorObject, weak_list), READONLY, nullptr},
                         {nullptr, 0, 0, 0, nullptr}};

PyObject* size_numel(PyObject* self, PyObject*) {
  long long n = 1;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self); ++i) n *= PyLong_AsLongLong(PyTuple_GET_ITEM(self, i));
  return PyLong_FromLongLong(n);
}
PyObject* size_repr(PyObject* self) {
  Ref list = Ref::steal(PySequence_List(self));
  return list ? PyUnicode_FromFormat("deft.Size(%R)", list.get()) : nullptr;
}
PyMethodDef size_methods[] = {{"numel", size_numel, METH_NOARGS, "The product of the sizes."},
                              {nullptr, nullptr, 0, nullptr}};

void add_size_type(PyObject* module) {
  PyType_Slot slots[] = {{Py_tp_doc, const_cast<char*>("The sizes of a tensor: a tuple.")},
                         {Py_tp_repr, reinterpret_cast<void*>(size_repr)},
                         {Py_tp_methods, size_methods},
                         {0, nullptr}};
  PyType_Spec spec{"deft.Size", 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
  Ref bases = owned(PyTuple_Pack(1, &PyTuple_Type));
  size_type = reinterpret_cast<PyTypeObject*>(checked(PyType_FromSpecWithBases(&spec, bases.get())));
  check_status(PyModule_AddObjectRef(module, "Size", reinterpret_cast<PyObject*>(size_type)));
}

}  // namespace

PyObject* wrap_as(PyTypeObject* type, Tensor&& t) {
  TensorObject* o = new_object(type);
  new (&o->tensor) Tensor(std::move(t));
  o->weak_list = nullptr;
  return reinterpret_cast<PyObject*>(o);
}

PyObject* wrap(Tensor&& t) {
  if (!t.defined()) return Py_NewRef(Py_None);
  return wrap_as(tensor_type, std::move(t));
}

PyObject* wrap_size(const Shape& shape) {
  PyObject* r = checked(size_type->tp_alloc(size_type, shape.size()));
  for (int i = 0; i < shape.size(); ++i) PyTuple_SET_ITEM(r, i, PyLong_FromLongLong(shape[i]));
  return r;
}

PyObject* python_number(Scalar value) {
  if (value.kind() == DType::boolean) return PyBool_FromLong(value.to_bool());
  if (value.is_floating()) return PyFloat_FromDouble(value.to_double());
  return PyLong_FromLongLong(value.to_int64());
}

PyObject* item_of(const Tensor& t) { return python_number(t.item_scalar(here())); }

void add_tensor_type(PyObject* module) {
  std::vector<PyType_Slot> slots = {
      {Py_tp_doc, const_cast<char*>("Numbers of one type in some dimensions, with gradients if wanted.")},
      {Py_tp_new, reinterpret_cast<void*>(new_tensor)},
      {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
      {Py_tp_hash, reinterpret_cast<void*>(hash)},
      {Py_tp_getset, properties},
      {Py_tp_members, members},
      {Py_mp_subscript, reinterpret_cast<void*>(get_item)},
      {Py_mp_ass_subscript, reinterpret_cast<void*>(set_item)},
      {Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
      {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)}};
  slots.insert(slots.end(), operator_slots, operator_slots + operator_slot_count());
  slots.push_back({0, nullptr});
  PyType_Spec spec{"deft.Tensor", sizeof(TensorObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots.data()};
  tensor_type = reinterpret_cast<PyTypeObject*>(checked(PyType_FromSpec(&spec)));
  check_status(PyModule_AddObjectRef(module, "Tensor", reinterpret_cast<PyObject*>(tensor_type)));
  add_size_type(module);
}

}  // namespace deft::python
