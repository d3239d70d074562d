#include "convert.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstring>

#include "runtime/backend.h"

namespace nb = nanobind;

namespace deft::python {

namespace {

struct DTypeName {
  DType dtype;
  const char* name;
  const char* alias;
};
constexpr DTypeName kNames[] = {
    {DType::f32, "float32", "float"}, {DType::f64, "float64", "double"}, {DType::bf16, "bfloat16", nullptr},
    {DType::f16, "float16", "half"},  {DType::i8, "int8", nullptr},      {DType::u8, "uint8", nullptr},
    {DType::i32, "int32", "int"},     {DType::i64, "int64", "long"},     {DType::boolean, "bool", nullptr}};

PyObject* dtype_objects[kDTypeCount];
PyTypeObject* dtype_type;
DType default_type = DType::f32;

Device device_from(const std::string& type, std::optional<int> index) {
  if (type == "cuda" && !index) index = 0;
  Device d = parse_device(type == "cuda" ? "cuda:0" : type);
  if (index) {
    if (type.find(':') != std::string::npos)
      fail(PyExc_RuntimeError, "device: '%s' has an index already", type.c_str());
    if (*index < 0 || *index > 127) fail(PyExc_RuntimeError, "device: the index %d is not one", *index);
    d.index = static_cast<int8_t>(*index);
  }
  return d;
}

std::string device_text(Device d) { return d.is_cpu() ? "cpu" : to_string(d); }

void add_dtype(nb::module_& m) {
  auto c = nb::class_<DTypeBox>(m, "dtype", "The type of a tensor's elements: deft.float32, deft.int64, ...");
  c.def("__repr__", [](const DTypeBox& b) { return std::string("deft.") + torch_name(b.dtype); })
      .def("__reduce__", [](const DTypeBox& b) { return std::string(torch_name(b.dtype)); })
      .def("__hash__", [](const DTypeBox& b) { return static_cast<int>(b.dtype) + 0x64540; })
      .def("__eq__", [](const DTypeBox& a, nb::handle b) { return is_dtype(b.ptr()) && to_dtype(b.ptr()) == a.dtype; })
      .def_prop_ro(
          "itemsize", [](const DTypeBox& b) { return size_of(b.dtype); }, "Bytes of one element.")
      .def_prop_ro("is_floating_point", [](const DTypeBox& b) { return is_floating(b.dtype); })
      .def_prop_ro("is_complex", [](const DTypeBox&) { return false; })
      .def_prop_ro("is_signed", [](const DTypeBox& b) { return b.dtype != DType::u8 && b.dtype != DType::boolean; });
  dtype_type = reinterpret_cast<PyTypeObject*>(c.ptr());
  for (const DTypeName& n : kNames) {
    PyObject* object = nb::cast(DTypeBox{n.dtype}).release().ptr();
    dtype_objects[static_cast<int>(n.dtype)] = object;
    m.attr(n.name) = nb::handle(object);
    if (n.alias) m.attr(n.alias) = nb::handle(object);
  }
}

Device chosen_device = kCPU;
std::vector<Device> outer_devices;  // of `with device:` blocks

void add_device(nb::module_& m) {
  m.def(
      "_set_default_device", [](nb::handle d) { chosen_device = d.is_none() ? kCPU : to_device(d.ptr()); },
      nb::arg("device").none());
  m.def("_default_device", [] { return chosen_device; });
  nb::class_<Device>(m, "device", "Where a tensor's memory lies: device('cpu'), device('cuda', 0).")
      .def(
          "__init__", [](Device* d, const Device& other) { new (d) Device(other); }, nb::arg("device"))
      .def(
          "__init__",
          [](Device* d, const std::string& type, std::optional<int> index) {
            new (d) Device(device_from(type, index));
          },
          nb::arg("type"), nb::arg("index") = nb::none())
      .def_prop_ro("type", [](const Device& d) { return d.is_cpu() ? "cpu" : "cuda"; })
      .def_prop_ro("index",
                   [](const Device& d) -> nb::object {
                     if (d.is_cpu()) return nb::none();
                     return nb::int_(static_cast<int>(d.index));
                   })
      .def("__enter__",
           [](nb::object self) {
             outer_devices.push_back(chosen_device);
             chosen_device = nb::cast<Device>(self);
             return self;
           })
      .def("__exit__",
           [](const Device&, nb::args) {
             chosen_device = outer_devices.back();
             outer_devices.pop_back();
           })
      .def("__str__", &device_text)
      .def("__repr__",
           [](const Device& d) {
             if (d.is_cpu()) return std::string("device(type='cpu')");
             return "device(type='cuda', index=" + std::to_string(d.index) + ")";
           })
      .def("__hash__", [](const Device& d) { return static_cast<int>(d.type) * 256 + d.index; })
      .def("__eq__",
           [](const Device& a, nb::handle b) { return nb::isinstance<Device>(b) && nb::cast<Device>(b) == a; })
      .def("__reduce__", [](nb::handle self) {
        return nb::make_tuple(self.type(), nb::make_tuple(device_text(nb::cast<Device>(self))));
      });
}

}  // namespace

const char* torch_name(DType t) {
  for (const DTypeName& n : kNames)
    if (n.dtype == t) return n.name;
  return "?";
}

PyObject* wrap(DType t) { return Py_NewRef(dtype_objects[static_cast<int>(t)]); }
PyObject* wrap(Device d) { return nb::cast(d).release().ptr(); }
bool is_dtype(PyObject* p) { return Py_TYPE(p) == dtype_type; }
DType default_dtype() { return default_type; }

DType to_dtype(PyObject* p) {
  if (is_dtype(p)) return nb::inst_ptr<DTypeBox>(nb::handle(p))->dtype;
  if (p == reinterpret_cast<PyObject*>(&PyFloat_Type)) return DType::f64;  // Python's types, interpreted as in PyTorch
  if (p == reinterpret_cast<PyObject*>(&PyLong_Type)) return DType::i64;
  if (p == reinterpret_cast<PyObject*>(&PyBool_Type)) return DType::boolean;
  fail(PyExc_TypeError, "expected a deft.dtype, found %s", Py_TYPE(p)->tp_name);
}

Device default_device() { return chosen_device; }

Device to_device(PyObject* p) {
  if (PyUnicode_Check(p)) return device_from(to_text(p), {});
  if (nb::isinstance<Device>(nb::handle(p))) return nb::cast<Device>(nb::handle(p));
  if (is_integer(p)) return device_from("cuda", static_cast<int>(to_int(p)));
  fail(PyExc_TypeError, "expected a device or its name, found %s", Py_TYPE(p)->tp_name);
}

bool is_number(PyObject* p) {
  if (PyFloat_Check(p) || PyLong_Check(p)) return true;
  if (is_tensor(p) || PySequence_Check(p) || PyUnicode_Check(p)) return false;
  const PyNumberMethods* n = Py_TYPE(p)->tp_as_number;  // NumPy's numbers, Fraction, Decimal
  return n && (n->nb_index || n->nb_float);
}

bool is_integer(PyObject* p) {
  if (PyLong_CheckExact(p)) return true;
  if (PyBool_Check(p)) return false;
  if (is_tensor(p)) {
    const Tensor& t = tensor_of(p);
    return t.numel() == 1 && is_integral(t.dtype());
  }
  return PyIndex_Check(p) && !PySequence_Check(p);
}

Scalar to_scalar(PyObject* p) {
  if (PyFloat_Check(p)) return PyFloat_AS_DOUBLE(p);
  if (PyBool_Check(p)) return p == Py_True;
  if (is_tensor(p)) return tensor_of(p).item_scalar(here());
  if (PyLong_Check(p) || PyIndex_Check(p)) {
    Ref number = owned(PyNumber_Index(p));
    int overflow = 0;
    int64_t v = PyLong_AsLongLongAndOverflow(number.get(), &overflow);
    if (overflow) fail(PyExc_RuntimeError, "the number %R does not fit into 64 bits", p);
    return v;
  }
  if (std::strcmp(Py_TYPE(p)->tp_name, "numpy.bool_") == 0 || std::strcmp(Py_TYPE(p)->tp_name, "numpy.bool") == 0)
    return PyObject_IsTrue(p) == 1;
  return to_double(p);
}

int64_t to_int(PyObject* p) {
  if (is_tensor(p)) return tensor_of(p).item<int64_t>(here());
  if (!PyIndex_Check(p) || PyBool_Check(p)) fail(PyExc_TypeError, "must be int, not %s", Py_TYPE(p)->tp_name);
  Ref number = owned(PyNumber_Index(p));
  int64_t v = PyLong_AsLongLong(number.get());
  if (v == -1 && PyErr_Occurred()) throw PythonError();
  return v;
}

double to_double(PyObject* p) {
  if (is_tensor(p)) return tensor_of(p).item<double>(here());
  if (PyUnicode_Check(p) || !is_number(p)) fail(PyExc_TypeError, "must be float, not %s", Py_TYPE(p)->tp_name);
  double v = PyFloat_AsDouble(p);
  if (v == -1 && PyErr_Occurred()) throw PythonError();
  return v;
}

bool to_bool(PyObject* p) {
  if (is_bool(p)) return p == Py_True;
  if (is_tensor(p) || PyLong_Check(p) || is_number(p)) {
    int v = PyObject_IsTrue(p);
    check_status(v);
    return v == 1;
  }
  fail(PyExc_TypeError, "must be bool, not %s", Py_TYPE(p)->tp_name);
}

std::string to_text(PyObject* p) {
  if (!PyUnicode_Check(p)) fail(PyExc_TypeError, "must be str, not %s", Py_TYPE(p)->tp_name);
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(p, &size);
  if (!text) throw PythonError();
  return {text, static_cast<size_t>(size)};
}

void Ints::push(int64_t v) {
  if (size_ == values_.size()) fail(PyExc_RuntimeError, "found more than %zu numbers", values_.size());
  values_[size_++] = v;
}

Ints to_ints(PyObject* const* items, Py_ssize_t count) {
  Ints r;
  for (Py_ssize_t i = 0; i < count; ++i) r.push(to_int(items[i]));
  return r;
}

Ints to_ints(PyObject* p) {
  if (PyTuple_Check(p)) return to_ints(reinterpret_cast<PyTupleObject*>(p)->ob_item, PyTuple_GET_SIZE(p));
  if (is_integer(p)) {
    Ints r;
    r.push(to_int(p));
    return r;
  }
  if (PyUnicode_Check(p) || !PySequence_Check(p) || is_tensor(p))
    fail(PyExc_TypeError, "must be tuple of ints, not %s", Py_TYPE(p)->tp_name);
  Ref list = owned(PySequence_Fast(p, "must be tuple of ints"));
  return to_ints(PySequence_Fast_ITEMS(list.get()), PySequence_Fast_GET_SIZE(list.get()));
}

std::vector<int64_t> to_int_vector(PyObject* p) {
  Ref iterator = owned(PyObject_GetIter(p));
  std::vector<int64_t> r;
  while (Ref item = Ref::steal(PyIter_Next(iterator.get()))) r.push_back(to_int(item.get()));
  if (PyErr_Occurred()) throw PythonError();
  return r;
}

std::vector<Tensor> to_tensors(PyObject* p) {
  if (is_tensor(p)) fail(PyExc_TypeError, "must be tuple of Tensors, not Tensor");
  Ref list = owned(PySequence_Fast(p, "must be tuple of Tensors"));
  std::vector<Tensor> r;
  Py_ssize_t n = PySequence_Fast_GET_SIZE(list.get());
  r.reserve(static_cast<size_t>(n));
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(list.get(), i);
    if (!is_tensor(item))
      fail(PyExc_TypeError, "expected Tensor as element %zd, but got %s", i, Py_TYPE(item)->tp_name);
    r.push_back(tensor_of(item));
  }
  return r;
}

bool fits_operand(PyObject* p) { return is_tensor(p) || is_number(p); }

Operand to_operand(PyObject* p) {
  if (is_tensor(p)) return {&tensor_of(p)};
  if (is_number(p)) return {nullptr, to_scalar(p)};
  fail(PyExc_TypeError, "must be Tensor or number, not %s", Py_TYPE(p)->tp_name);
}

void add_types(PyObject* module) {
  auto m = nb::borrow<nb::module_>(module);
  add_dtype(m);
  add_device(m);
  m.def(
      "get_default_dtype", [] { return nb::steal(wrap(default_type)); }, "The type of tensors made from floats.");
  m.def(
      "set_default_dtype",
      [](nb::handle d) {
        DType t = to_dtype(d.ptr());
        if (!is_floating(t))
          fail(PyExc_TypeError, "set_default_dtype: only floating-point types are supported as default");
        default_type = t;
      },
      nb::arg("d"), "Sets the type of tensors made from floats.");
  m.def(
      "promote_types",
      [](nb::handle a, nb::handle b) { return nb::steal(wrap(promote(to_dtype(a.ptr()), to_dtype(b.ptr())))); },
      nb::arg("type1"), nb::arg("type2"), "The smallest type that holds both.");
}

}  // namespace deft::python
