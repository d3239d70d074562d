// Tensors as arguments and results of nanobind's functions.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "convert.h"

namespace nb = nanobind;

namespace nanobind::detail {
template <>
struct type_caster<deft::Tensor> {
  NB_TYPE_CASTER(deft::Tensor, const_name("deft.Tensor"))
  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    if (!deft::python::is_tensor(source.ptr())) return false;
    value = deft::python::tensor_of(source.ptr());
    return true;
  }
  static handle from_cpp(const deft::Tensor& t, rv_policy, cleanup_list*) noexcept { return deft::python::wrap(t); }
};
}  // namespace nanobind::detail

namespace deft::python {
inline std::vector<Tensor> tensors_of(nb::handle h) {
  if (is_tensor(h.ptr())) return {tensor_of(h.ptr())};
  Ref list = owned(PySequence_List(h.ptr()));
  return to_tensors(list.get());
}

void add_grad_modes(PyObject* module);
void add_autograd(nb::module_& m);
void add_functions(nb::module_& m);
void add_random(nb::module_& m);
void add_training(nb::module_& m);
void add_files(nb::module_& m);
void add_compile(nb::module_& m);
void add_bridge(nb::module_& m);
}  // namespace deft::python
