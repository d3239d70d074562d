// Tensors to and from other libraries without a copy: DLPack, the buffer protocol, NumPy.
#pragma once

#include "tensor_object.h"

namespace deft::python {

Device default_device();  // where tensors are made that are not told where: set_default_device()

// Shares the memory of a NumPy array or anything with a buffer; read-only memory is copied.
Tensor from_buffer(PyObject* object, bool may_copy = true);
Tensor build_tensor(PyObject* data, std::optional<DType> dtype);
PyObject* nested_list(const Tensor& t);
void add_exchange(PyObject* module);

}  // namespace deft::python
