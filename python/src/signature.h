// Signatures as torch writes them, "softmax(input, dim, *, dtype=None)", and calls bound to them without a tuple.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "handles.h"

namespace deft::python {

inline constexpr int kMaxParameters = 16;

struct ParameterName {
  PyObject* name;           // interned
  PyObject* default_value;  // null: it must be given
  const char* text;
};

struct Signature {
  explicit Signature(const char* text);  // throws std::invalid_argument for what is no signature
  std::string name, arguments;           // "softmax", "input, dim, *, dtype=None"
  std::vector<ParameterName> parameters;
  int positional = 0;  // the number of arguments that may be given by position
  int variadic = -1;   // "*size": x.view(2, 3) and x.view((2, 3)) both give it
  // For inspect.signature(): "name(input, dim)\n--\n\n".
  std::string text_signature(bool method) const;
};

struct BoundCall {
  std::array<PyObject*, kMaxParameters> slot;  // borrowed
  PyObject* const* many = nullptr;             // the numbers of a variadic parameter, if they came one by one
  Py_ssize_t many_count = 0;
};

// `self` is null or the first argument. Throws TypeError that names the nearest argument.
void bind_call(const Signature& s, PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords,
               BoundCall& call);

// The name among `names` that is most like `wanted`; empty if none is near.
std::string nearest_name(const std::string& wanted, const std::vector<std::string>& names);

}  // namespace deft::python
