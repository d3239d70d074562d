// no_grad, enable_grad, set_grad_enabled, inference_mode: context managers in C, since `with no_grad():` is in every
// loop. deft/_modes.py makes decorators of them.
#include <Python.h>
#include <structmember.h>

#include <new>

#include "convert.h"
#include "core/grad_mode.h"

namespace deft::python {

namespace {

enum class Mode : uint8_t { no_grad, enable_grad, set_grad, inference };

struct ModeObject {
  PyObject_HEAD Mode mode;
  bool on, entered;
  uint32_t outer_bits;
  Site outer_site;
};

constexpr uint32_t kModeBits = kGradOff | kInference;
PyObject* decorate;  // deft._modes.decorate(mode, function)

void remember(ModeObject& o) {
  o.outer_bits = context().bits;
  o.outer_site = context().grad_site;
  o.entered = true;
}

void restore(ModeObject& o) {
  ExecContext& c = context();
  c.bits = (c.bits & ~kModeBits) | (o.outer_bits & kModeBits);
  c.grad_site = o.outer_site;
  o.entered = false;
}

// As InferenceModeGuard: leaving inference mode turns gradients on.
void apply_inference(bool on, const Site& site) {
  ExecContext& c = context();
  if (on) {
    c.bits |= kInference | kGradOff;
    c.grad_site = site;
  } else {
    c.bits &= ~kModeBits;
  }
}

void apply_mode(const ModeObject& o, const Site& site) {
  switch (o.mode) {
    case Mode::no_grad:
      return set_grad_enabled(false, site);
    case Mode::enable_grad:
      return set_grad_enabled(true, site);
    case Mode::set_grad:
      return set_grad_enabled(o.on, site);
    case Mode::inference:
      return apply_inference(o.on, site);
  }
}

template <Mode kMode>
PyObject* make(PyTypeObject* type, PyObject* args, PyObject* keywords) {
  try {
    PyObject* argument = nullptr;
    static const char* names[] = {"mode", nullptr};
    constexpr bool takes = kMode == Mode::set_grad || kMode == Mode::inference;
    if (PyTuple_GET_SIZE(args) || keywords)
      if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O", const_cast<char**>(names), &argument)) return nullptr;
    const bool is_function = argument && !is_bool(argument) && !is_tensor(argument) && PyCallable_Check(argument);
    if (argument && !takes && !is_function) fail(PyExc_TypeError, "%s() takes no arguments", type->tp_name);
    if (!argument && kMode == Mode::set_grad)
      fail(PyExc_TypeError, "set_grad_enabled() missing required argument 'mode'");
    Ref self = owned(type->tp_alloc(type, 0));
    auto& o = *reinterpret_cast<ModeObject*>(self.get());
    o.mode = kMode;
    new (&o.outer_site) Site();
    o.on = takes && argument && !is_function ? to_bool(argument) : true;
    if (is_function) return checked(PyObject_CallFunctionObjArgs(decorate, self.get(), argument, nullptr));  // @no_grad
    if (kMode == Mode::set_grad) {  // also holds without `with`
      remember(o);
      apply_mode(o, here());
    }
    return self.release();
  } catch (...) {
    return translate_exception();
  }
}

PyObject* enter(PyObject* self, PyObject*) {
  auto& o = *reinterpret_cast<ModeObject*>(self);
  if (o.mode == Mode::set_grad && o.entered) {
    o.entered = false;  // made and entered at once: __init__ has done it
    return Py_NewRef(self);
  }
  remember(o);
  apply_mode(o, here());
  return Py_NewRef(self);
}
PyObject* leave(PyObject* self, PyObject* const*, Py_ssize_t) {
  restore(*reinterpret_cast<ModeObject*>(self));
  Py_RETURN_NONE;
}
PyObject* call(PyObject* self, PyObject* args, PyObject*) {
  if (PyTuple_GET_SIZE(args) != 1) {
    PyErr_SetString(PyExc_TypeError, "as a decorator this takes a function");
    return nullptr;
  }
  auto& o = *reinterpret_cast<ModeObject*>(self);
  if (o.mode == Mode::set_grad) restore(o);  // @set_grad_enabled(False) changes nothing outside the function
  return PyObject_CallFunctionObjArgs(decorate, self, PyTuple_GET_ITEM(args, 0), nullptr);
}
PyObject* clone(PyObject* self, PyObject*) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject* copy = type->tp_alloc(type, 0);
  if (!copy) return nullptr;
  auto& from = *reinterpret_cast<ModeObject*>(self);
  auto& to = *reinterpret_cast<ModeObject*>(copy);
  to.mode = from.mode;
  to.on = from.on;
  new (&to.outer_site) Site();
  return copy;
}
void dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"__enter__", enter, METH_NOARGS, nullptr},
    {"__exit__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(leave)), METH_FASTCALL, nullptr},
    {"clone", clone, METH_NOARGS, "The same mode, not entered."},
    {nullptr, nullptr, 0, nullptr}};
PyMemberDef members[] = {{"mode", T_BOOL, offsetof(ModeObject, on), READONLY, nullptr}, {nullptr, 0, 0, 0, nullptr}};

template <Mode kMode>
void add_mode(PyObject* module, const char* name, const char* doc) {
  PyType_Slot slots[] = {{Py_tp_doc, const_cast<char*>(doc)},
                         {Py_tp_new, reinterpret_cast<void*>(make<kMode>)},
                         {Py_tp_call, reinterpret_cast<void*>(call)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                         {Py_tp_methods, methods},
                         {Py_tp_members, members},
                         {0, nullptr}};
  PyType_Spec spec{name, sizeof(ModeObject), 0, Py_TPFLAGS_DEFAULT, slots};
  Ref type = owned(PyType_FromSpec(&spec));
  check_status(PyModule_AddObjectRef(module, name + 5, type.get()));
}

PyObject* set_decorator(PyObject*, PyObject* function) {
  decorate = Py_NewRef(function);
  Py_RETURN_NONE;
}
PyObject* grad_enabled(PyObject*, PyObject*) { return PyBool_FromLong(is_grad_enabled()); }
PyObject* inference_enabled(PyObject*, PyObject*) { return PyBool_FromLong(is_inference_mode_enabled()); }
PyMethodDef functions[] = {
    {"_set_mode_decorator", set_decorator, METH_O, nullptr},
    {"is_grad_enabled", grad_enabled, METH_NOARGS, "is_grad_enabled()\n--\n\nWhether operations are recorded."},
    {"is_inference_mode_enabled", inference_enabled, METH_NOARGS,
     "is_inference_mode_enabled()\n--\n\nWhether this thread is in inference mode."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void add_grad_modes(PyObject* module) {
  add_mode<Mode::no_grad>(module, "deft.no_grad", "Nothing is recorded inside; results are constants.");
  add_mode<Mode::enable_grad>(module, "deft.enable_grad", "Recording is on inside.");
  add_mode<Mode::set_grad>(module, "deft.set_grad_enabled", "Recording is as given, from now on or inside `with`.");
  add_mode<Mode::inference>(module, "deft.inference_mode",
                            "Like no_grad, and results can never be used in training: less work per operation.");
  check_status(PyModule_AddFunctions(module, functions));
}

}  // namespace deft::python
