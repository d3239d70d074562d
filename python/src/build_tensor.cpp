// deft.tensor(data): from numbers, nested sequences, arrays and tensors.
#include <cstring>
#include <vector>

#include "convert.h"
#include "exchange.h"
#include "ops/all_ops.h"

namespace deft::python {

namespace {

enum class Kind { none, boolean, integer, real };

// A nested sequence is walked twice: for its shape and kind, then for its values.
struct Builder {
  std::vector<int64_t> shape;
  Kind kind = Kind::none;

  static bool is_list(PyObject* p) {
    if (PyList_Check(p) || PyTuple_Check(p)) return true;
    return PySequence_Check(p) && !PyUnicode_Check(p) && !is_tensor(p) && PySequence_Size(p) >= 0;
  }

  void note(Kind k) { kind = std::max(kind, k); }
  void note_leaf(PyObject* p) {
    if (is_tensor(p)) {
      DType t = tensor_of(p).dtype();
      return note(is_floating(t) ? Kind::real : t == DType::boolean ? Kind::boolean : Kind::integer);
    }
    if (PyBool_Check(p)) return note(Kind::boolean);
    if (PyLong_Check(p)) return note(Kind::integer);
    if (PyFloat_Check(p)) return note(Kind::real);
    if (!is_number(p))
      fail(PyExc_TypeError, "tensor(): found an element of type %s, expected numbers", Py_TYPE(p)->tp_name);
    Scalar v = to_scalar(p);
    note(v.is_floating() ? Kind::real : v.kind() == DType::boolean ? Kind::boolean : Kind::integer);
  }
  // The first element at each depth says how many there must be.
  void measure(PyObject* p, size_t depth, bool first) {
    if (!is_list(p)) {
      if (depth != shape.size())
        fail(PyExc_ValueError, "expected sequence of length %zd at dim %zu, found %s",
             static_cast<Py_ssize_t>(shape[depth]), depth, Py_TYPE(p)->tp_name);
      return note_leaf(p);
    }
    Ref items = owned(PySequence_Fast(p, "expected a sequence"));
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(items.get());
    if (first) {
      if (depth >= kMaxDims)
        fail(PyExc_ValueError, "tensor(): sequences are nested deeper than %d", static_cast<int>(kMaxDims));
      shape.push_back(n);
    } else if (depth >= shape.size()) {
      fail(PyExc_ValueError, "expected a number at dim %zu, found a sequence", depth);
    }
    if (shape[depth] != n)
      fail(PyExc_ValueError, "expected sequence of length %zd at dim %zu (got %zd)",
           static_cast<Py_ssize_t>(shape[depth]), depth, n);
    for (Py_ssize_t i = 0; i < n; ++i) measure(PySequence_Fast_GET_ITEM(items.get(), i), depth + 1, first && i == 0);
  }
  template <class T>
  void fill(PyObject* p, size_t depth, T*& out) {
    if (depth == shape.size()) {
      if constexpr (std::is_same_v<T, double>)
        *out++ = is_tensor(p) ? tensor_of(p).item<double>() : to_double(p);
      else
        *out++ = to_scalar(p).to_int64();
      return;
    }
    Ref items = owned(PySequence_Fast(p, "expected a sequence"));
    for (int64_t i = 0; i < shape[depth]; ++i) fill(PySequence_Fast_GET_ITEM(items.get(), i), depth + 1, out);
  }
};

DType type_of(Kind kind) {
  if (kind == Kind::boolean) return DType::boolean;
  return kind == Kind::integer ? DType::i64 : default_dtype();
}

}  // namespace

// The result shares nothing with `data`.
Tensor build_tensor(PyObject* data, std::optional<DType> dtype) {
  if (is_tensor(data)) {
    Tensor t = tensor_of(data).detach(here());
    return dtype && *dtype != t.dtype() ? t.to(*dtype, here()) : t.clone();
  }
  if (PyObject_CheckBuffer(data) && !PyBytes_Check(data)) {
    Tensor shared = from_buffer(data);
    return dtype && *dtype != shared.dtype() ? shared.to(*dtype, here()) : shared.clone();
  }
  Builder b;
  b.measure(data, 0, true);
  DType wanted = dtype.value_or(type_of(b.kind));
  DType exact = b.kind == Kind::real || b.kind == Kind::none ? DType::f64 : DType::i64;
  Tensor t = empty(b.shape, exact, here());
  if (t.numel() > 0) {
    if (exact == DType::f64) {
      double* out = t.data<double>();
      b.fill(data, 0, out);
    } else {
      int64_t* out = t.data<int64_t>();
      b.fill(data, 0, out);
    }
  }
  return wanted == exact ? t : t.to(wanted, here());
}

PyObject* nested_list(const Tensor& t) {
  Tensor host = t.detach(here()).to(kCPU, here());
  // Rows of numbers directly; only the outer dimensions are walked as tensors.
  auto rows = [&](auto& self, const Tensor& x) -> PyObject* {
    if (x.dim() == 0) return python_number(x.item_scalar(here()));
    if (x.dim() > 1) {
      Ref list = owned(PyList_New(x.sizes()[0]));
      for (int64_t i = 0; i < x.sizes()[0]; ++i)
        PyList_SET_ITEM(list.get(), i, checked(self(self, x.select(0, i, here()))));
      return list.release();
    }
    Tensor row = x.contiguous(MemoryFormat::contiguous, here());
    Ref list = owned(PyList_New(row.numel()));
    dispatch_all(row.dtype(), [&]<class T>() {
      const T* p = row.data<const T>();
      for (int64_t i = 0; i < row.numel(); ++i) {
        PyObject* item;
        if constexpr (std::is_same_v<T, bool>)
          item = PyBool_FromLong(p[i]);
        else if constexpr (std::is_integral_v<T>)
          item = PyLong_FromLongLong(p[i]);
        else
          item = PyFloat_FromDouble(
              static_cast<double>(static_cast<std::conditional_t<std::is_same_v<T, double>, double, float>>(p[i])));
        PyList_SET_ITEM(list.get(), i, checked(item));
      }
    });
    return list.release();
  };
  return rows(rows, host);
}

}  // namespace deft::python
