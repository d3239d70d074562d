// Registration of bound functions and methods, and their descriptions.
#include "bind_op.h"
#include "descriptions.h"

namespace deft::python {

std::vector<Entry>& entries() {
  static auto& all = *new std::vector<Entry>();
  return all;
}

PyObject* ops_module;  // deft._C.ops: every function
PyObject* function_module;
PyObject* functional_module;

void add_callable(const Signature& s, unsigned to, PyCFunction function, PyCFunction method, const char* op,
                  const char* doc) {
  auto text = [&](bool as_method) {  // never freed
    return (new std::string(s.text_signature(as_method) + (doc[0] ? doc : description_of(s.name))))->c_str();
  };
  const char* name = (new std::string(s.name))->c_str();
  auto* def = new PyMethodDef{name, function, METH_FASTCALL | METH_KEYWORDS, text(false)};
  Ref module_name = owned(PyUnicode_FromString("deft"));
  Ref made = owned(PyCFunction_NewEx(def, nullptr, module_name.get()));
  if (to != kFunctional) check_status(PyObject_SetAttrString(ops_module, name, made.get()));
  if (to & kFunction) check_status(PyObject_SetAttrString(function_module, name, made.get()));
  if (to & kFunctional) check_status(PyObject_SetAttrString(functional_module, name, made.get()));
  if (to & kMethod) {
    auto* method_def = new PyMethodDef{name, method, METH_FASTCALL | METH_KEYWORDS, text(true)};
    Ref descriptor = owned(PyDescr_NewMethod(tensor_type, method_def));
    check_status(PyObject_SetAttrString(reinterpret_cast<PyObject*>(tensor_type), name, descriptor.get()));
  }
  std::string family = op[0] ? op : s.name;
  if (!op[0] && family.back() == '_') family.pop_back();
  entries().push_back({s.name + "(" + s.arguments + ")", family, to});
}

void rethrow_for_argument(const Signature& s, size_t index) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  Ref t = Ref::steal(type), v = Ref::steal(value), tr = Ref::steal(trace);
  if (type != PyExc_TypeError) {
    PyErr_Restore(t.release(), v.release(), tr.release());
    throw PythonError();
  }
  Ref text = Ref::steal(value ? PyObject_Str(value) : nullptr);
  fail(PyExc_TypeError, "%s(): argument '%s' (position %zu) %U", s.name.c_str(), s.parameters[index].text, index + 1,
       text ? text.get() : Py_None);
}

void unknown_choice(const std::string& found, const std::string& possible) {
  DEFT_FAIL(ValueError, "found '{}', expected one of {}", found, possible);
}

namespace {
PyTypeObject* pair_type() {
  static PyStructSequence_Field fields[] = {
      {"values", "the values"}, {"indices", "where they are"}, {nullptr, nullptr}};
  static PyStructSequence_Desc description{"deft.return_types.values_indices", "Values, and where they are.", fields,
                                           2};
  static PyTypeObject* type = PyStructSequence_NewType(&description);
  return type;
}
}  // namespace

namespace binding {
PyObject* give_pair(Pair&& pair) {
  Ref r = owned(PyStructSequence_New(pair_type()));
  for (size_t i = 0; i < 2; ++i)
    PyStructSequence_SetItem(r.get(), static_cast<Py_ssize_t>(i), wrap(std::move(pair.tensors[i])));
  return r.release();
}
PyObject* give_list(Tensor* tensors, size_t count) {
  Ref tuple = owned(PyTuple_New(static_cast<Py_ssize_t>(count)));
  for (size_t i = 0; i < count; ++i)
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), wrap(std::move(tensors[i])));
  return tuple.release();
}
}  // namespace binding

}  // namespace deft::python
