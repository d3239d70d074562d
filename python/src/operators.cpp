// Python's number protocol. These go straight to the op: no names, no defaults, nothing to bind.
#include "convert.h"
#include "ops/all_ops.h"

namespace deft::python {

namespace {

// F is a function object over (Tensor or Scalar, Tensor or Scalar, Site).
template <class F>
PyObject* binary(PyObject* a, PyObject* b) noexcept {
  try {
    if (!fits_operand(a) || !fits_operand(b)) return Py_NewRef(Py_NotImplemented);
    Operand x = to_operand(a), y = to_operand(b);
    Site site = here();
    const int64_t size = (x.tensor ? x.tensor->numel() : 0) + (y.tensor ? y.tensor->numel() : 0);
    auto run = [&] { return with_operands(x, y, [&](const auto& p, const auto& q) { return F()(p, q, site); }); };
    if (size < 8192) return wrap(run());
    Tensor result;
    {
      GilReleased released;
      result = run();
    }
    return wrap(std::move(result));
  } catch (...) {
    return translate_exception();
  }
}

template <class F>
PyObject* power(PyObject* a, PyObject* b, PyObject* modulo) noexcept {
  if (modulo != Py_None) return Py_NewRef(Py_NotImplemented);
  return binary<F>(a, b);
}

template <class F>
PyObject* inplace(PyObject* a, PyObject* b) noexcept {
  try {
    if (!is_tensor(a) || !fits_operand(b)) return Py_NewRef(Py_NotImplemented);
    Tensor& x = tensor_of(a);
    Operand y = to_operand(b);
    if (y.tensor)
      F()(x, *y.tensor, here());
    else
      F()(x, y.scalar, here());
    return Py_NewRef(a);
  } catch (...) {
    return translate_exception();
  }
}
template <class F>
PyObject* inplace_power(PyObject* a, PyObject* b, PyObject*) noexcept {
  return inplace<F>(a, b);
}

template <class F>
PyObject* unary(PyObject* a) noexcept {
  try {
    return wrap(F()(tensor_of(a), here()));
  } catch (...) {
    return translate_exception();
  }
}

#define DEFT_CALLS(name)                                             \
  struct Call_##name {                                               \
    template <class A, class B>                                      \
    Tensor operator()(const A& a, const B& b, const Site& s) const { \
      return name(a, b, s);                                          \
    }                                                                \
  };
#define DEFT_CALLS_INPLACE(name)                                  \
  struct Call_##name##_ {                                         \
    template <class B>                                            \
    void operator()(Tensor& a, const B& b, const Site& s) const { \
      name##_(a, b, s);                                           \
    }                                                             \
  };
#define DEFT_BOTH(name) DEFT_CALLS(name) DEFT_CALLS_INPLACE(name)
DEFT_BOTH(add)
DEFT_BOTH(sub)
DEFT_BOTH(mul)
DEFT_BOTH(div)
DEFT_BOTH(floor_divide)
DEFT_BOTH(remainder)
DEFT_BOTH(pow)
DEFT_BOTH(bitwise_and)
DEFT_BOTH(bitwise_or)
DEFT_BOTH(bitwise_xor)
DEFT_BOTH(bitwise_left_shift)
DEFT_BOTH(bitwise_right_shift)
DEFT_CALLS(eq)
DEFT_CALLS(ne)
DEFT_CALLS(lt)
DEFT_CALLS(le)
DEFT_CALLS(gt)
DEFT_CALLS(ge)
#undef DEFT_BOTH
#undef DEFT_CALLS
#undef DEFT_CALLS_INPLACE

struct CallNeg {
  Tensor operator()(const Tensor& a, const Site& s) const { return neg(a, s); }
};
struct CallAbs {
  Tensor operator()(const Tensor& a, const Site& s) const { return abs(a, s); }
};
struct CallInvert {
  Tensor operator()(const Tensor& a, const Site& s) const { return bitwise_not(a, s); }
};
PyObject* positive(PyObject* a) { return Py_NewRef(a); }

PyObject* product(PyObject* a, PyObject* b) noexcept {
  try {
    if (!is_tensor(a) || !is_tensor(b)) return Py_NewRef(Py_NotImplemented);
    const Tensor &x = tensor_of(a), &y = tensor_of(b);
    Site site = here();
    if (x.numel() < 4096 && y.numel() < 4096) return wrap(matmul(x, y, site));
    Tensor result;
    {
      GilReleased released;
      result = matmul(x, y, site);
    }
    return wrap(std::move(result));
  } catch (...) {
    return translate_exception();
  }
}

PyObject* compare(PyObject* a, PyObject* b, int kind) noexcept {
  switch (kind) {
    case Py_EQ:
      return binary<Call_eq>(a, b);
    case Py_NE:
      return binary<Call_ne>(a, b);
    case Py_LT:
      return binary<Call_lt>(a, b);
    case Py_LE:
      return binary<Call_le>(a, b);
    case Py_GT:
      return binary<Call_gt>(a, b);
    default:
      return binary<Call_ge>(a, b);
  }
}

int truth(PyObject* self) noexcept {
  try {
    const Tensor& t = tensor_of(self);
    if (t.numel() != 1)
      fail(PyExc_RuntimeError, "Boolean value of Tensor with %s is ambiguous",
           t.numel() == 0 ? "no values" : "more than one value");
    return t.item_scalar(here()).to_bool();
  } catch (...) {
    translate_exception();
    return -1;
  }
}

PyObject* as_float(PyObject* self) noexcept {
  try {
    return PyFloat_FromDouble(tensor_of(self).item<double>(here()));
  } catch (...) {
    return translate_exception();
  }
}
PyObject* as_int(PyObject* self) noexcept {
  try {
    Scalar v = tensor_of(self).item_scalar(here());
    return v.is_floating() ? PyLong_FromDouble(v.to_double()) : PyLong_FromLongLong(v.to_int64());
  } catch (...) {
    return translate_exception();
  }
}
PyObject* as_index(PyObject* self) noexcept {
  try {
    const Tensor& t = tensor_of(self);
    if (t.numel() != 1 || is_floating(t.dtype()))
      fail(PyExc_TypeError, "only integer tensors of a single element can be converted to an index");
    return PyLong_FromLongLong(t.item<int64_t>(here()));
  } catch (...) {
    return translate_exception();
  }
}

Py_ssize_t length(PyObject* self) noexcept {
  try {
    const Tensor& t = tensor_of(self);
    if (t.dim() == 0) fail(PyExc_TypeError, "len() of a 0-d tensor");
    return t.sizes()[0];
  } catch (...) {
    translate_exception();
    return -1;
  }
}

// Element by element for a number, as torch: `3 in x`.
int contains(PyObject* self, PyObject* value) noexcept {
  try {
    if (!fits_operand(value)) fail(PyExc_RuntimeError, "Tensor.__contains__ only supports Tensor or scalar");
    Operand y = to_operand(value);
    const Tensor& x = tensor_of(self);
    Tensor same = y.tensor ? eq(x, *y.tensor, here()) : eq(x, y.scalar, here());
    return any(same, {}, false, here()).item<bool>();
  } catch (...) {
    translate_exception();
    return -1;
  }
}

template <class F>
constexpr void* slot(F* f) {
  return reinterpret_cast<void*>(f);
}

}  // namespace

PyType_Slot operator_slots[] = {
    {Py_nb_add, slot(binary<Call_add>)},
    {Py_nb_subtract, slot(binary<Call_sub>)},
    {Py_nb_multiply, slot(binary<Call_mul>)},
    {Py_nb_true_divide, slot(binary<Call_div>)},
    {Py_nb_floor_divide, slot(binary<Call_floor_divide>)},
    {Py_nb_remainder, slot(binary<Call_remainder>)},
    {Py_nb_power, slot(power<Call_pow>)},
    {Py_nb_and, slot(binary<Call_bitwise_and>)},
    {Py_nb_or, slot(binary<Call_bitwise_or>)},
    {Py_nb_xor, slot(binary<Call_bitwise_xor>)},
    {Py_nb_lshift, slot(binary<Call_bitwise_left_shift>)},
    {Py_nb_rshift, slot(binary<Call_bitwise_right_shift>)},
    {Py_nb_inplace_add, slot(inplace<Call_add_>)},
    {Py_nb_inplace_subtract, slot(inplace<Call_sub_>)},
    {Py_nb_inplace_multiply, slot(inplace<Call_mul_>)},
    {Py_nb_inplace_true_divide, slot(inplace<Call_div_>)},
    {Py_nb_inplace_floor_divide, slot(inplace<Call_floor_divide_>)},
    {Py_nb_inplace_remainder, slot(inplace<Call_remainder_>)},
    {Py_nb_inplace_power, slot(inplace_power<Call_pow_>)},
    {Py_nb_inplace_and, slot(inplace<Call_bitwise_and_>)},
    {Py_nb_inplace_or, slot(inplace<Call_bitwise_or_>)},
    {Py_nb_inplace_xor, slot(inplace<Call_bitwise_xor_>)},
    {Py_nb_inplace_lshift, slot(inplace<Call_bitwise_left_shift_>)},
    {Py_nb_inplace_rshift, slot(inplace<Call_bitwise_right_shift_>)},
    {Py_nb_negative, slot(unary<CallNeg>)},
    {Py_nb_positive, slot(positive)},
    {Py_nb_absolute, slot(unary<CallAbs>)},
    {Py_nb_invert, slot(unary<CallInvert>)},
    {Py_nb_matrix_multiply, slot(product)},
    {Py_nb_bool, slot(truth)},
    {Py_nb_float, slot(as_float)},
    {Py_nb_int, slot(as_int)},
    {Py_nb_index, slot(as_index)},
    {Py_tp_richcompare, slot(compare)},
    {Py_mp_length, slot(length)},
    {Py_sq_length, slot(length)},
    {Py_sq_contains, slot(contains)},
};
int operator_slot_count() { return static_cast<int>(std::size(operator_slots)); }

}  // namespace deft::python
