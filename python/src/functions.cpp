// Functions with a gradient of their own: autograd.Function, of which deft/autograd/function.py is the other half, and
// the CTC loss.
#include "core/function.h"

#include <map>

#include "bind_op.h"
#include "nb_tensor.h"
#include "nn/ctc_loss.h"

namespace deft::python {

namespace {

// One per Python class, for good: graph nodes point to it.
struct PythonFunction : deft::detail::FunctionType {
  std::string name_text;
};

nb::object attribute(nb::handle object, const char* name) {
  return nb::steal(checked(PyObject_GetAttrString(object.ptr(), name)));
}

Tensors optional_tensors(nb::handle object, const char* name) {
  nb::object value = attribute(object, name);
  return value.is_none() ? Tensors() : tensors_of(value);
}

// The gradients of the tensors among forward()'s arguments, out of one per argument.
Tensors pick_gradients(PyObject* result, nb::handle ctx) {
  auto positions = nb::cast<std::vector<size_t>>(attribute(ctx, "_tensor_positions"));
  auto count = nb::cast<size_t>(attribute(ctx, "_argument_count"));
  Ref list = is_tensor(result) || result == Py_None ? owned(PyTuple_Pack(1, result)) : owned(PySequence_Tuple(result));
  auto given = static_cast<size_t>(PyTuple_GET_SIZE(list.get()));
  bool rest_is_none = given > count;
  for (size_t i = count; i < given; ++i)
    rest_is_none &= PyTuple_GET_ITEM(list.get(), static_cast<Py_ssize_t>(i)) == Py_None;
  if (given != count && !rest_is_none) {
    nb::object name = attribute(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(ctx.ptr()))), "__name__");
    fail(PyExc_RuntimeError, "function %U returned an incorrect number of gradients (expected %zu, got %zu)",
         name.ptr(), count, given);
  }
  Tensors r;
  for (size_t i : positions) {
    PyObject* item = PyTuple_GET_ITEM(list.get(), static_cast<Py_ssize_t>(i));
    if (item != Py_None && !is_tensor(item))
      fail(PyExc_TypeError, "backward() returned %s as gradient %zu, expected a Tensor or None", Py_TYPE(item)->tp_name,
           i);
    r.push_back(item == Py_None ? Tensor() : tensor_of(item));
  }
  return r;
}

Tensors run_backward(FunctionContext& c, const Tensors& grads) {
  GilHeld lock;
  try {
    nb::handle ctx(c.get<Shared>("ctx").get());
    Tensors saved = c.saved();
    nb::object tensors = nb::steal(binding::give_list(saved.data(), saved.size()));
    nb::setattr(ctx, "saved_tensors", tensors);
    Ref arguments = owned(PyTuple_New(static_cast<Py_ssize_t>(grads.size())));
    for (size_t i = 0; i < grads.size(); ++i)
      PyTuple_SET_ITEM(arguments.get(), static_cast<Py_ssize_t>(i), wrap(grads[i]));
    nb::object method = attribute(ctx, "_run_backward");
    Ref result = Ref::steal(PyObject_Call(method.ptr(), arguments.get(), nullptr));
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject_DelAttrString(ctx.ptr(), "saved_tensors");  // the context must not keep them alive
    PyErr_Restore(type, value, trace);
    if (!result) throw PythonError();
    return pick_gradients(result.get(), ctx);
  } catch (const PythonError&) {
    throw nb::python_error();
  }
}

const PythonFunction& function_type(nb::handle cls, bool once) {
  static auto& types = *new std::map<std::pair<std::string, bool>, PythonFunction*>();
  std::string name = nb::cast<std::string>(attribute(cls, "__name__")) + "Backward";
  PythonFunction*& type = types[{name, once}];
  if (!type) {
    type = new PythonFunction();
    type->name_text = name;
    type->name = type->name_text.c_str();
    type->vjp = &deft::detail::function_vjp;
    type->destroy_payload = &deft::detail::destroy_function;
    type->backward = &run_backward;
    type->once = once;
  }
  return *type;
}

// What forward() said in its context.
void take_context(nb::handle ctx, FunctionContext& c) {
  c.save_for_backward(optional_tensors(ctx, "_to_save"));
  c.mark_dirty(optional_tensors(ctx, "_dirty"));
  c.mark_non_differentiable(optional_tensors(ctx, "_non_differentiable"));
  c.set_materialize_grads(nb::cast<bool>(attribute(ctx, "_materialize")));
  nb::setattr(ctx, "_to_save", nb::none());
}

nb::object apply_function(nb::handle cls, nb::handle ctx, nb::handle forward, nb::args args, bool once) {
  Tensors inputs;
  for (nb::handle a : args)
    if (is_tensor(a.ptr())) inputs.push_back(tensor_of(a.ptr()));
  nb::object result;
  bool single = false;
  auto run = [&](FunctionContext& c) {
    result = nb::steal(checked(PyObject_Call(forward.ptr(), args.ptr(), nullptr)));
    take_context(ctx, c);
    c.set("ctx", Shared(ctx.ptr()));
    single = is_tensor(result.ptr());
    Tensors outputs;
    if (single) return Tensors{tensor_of(result.ptr())};
    Ref list = owned(PySequence_Fast(result.ptr(), "forward() must return a Tensor or a tuple"));
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list.get()); ++i) {
      PyObject* item = PySequence_Fast_GET_ITEM(list.get(), i);
      if (is_tensor(item)) outputs.push_back(tensor_of(item));
    }
    return outputs;
  };
  Tensors outputs = deft::detail::apply_function(function_type(cls, once), std::move(inputs), run, here());
  if (single) return nb::steal(wrap(std::move(outputs[0])));
  Ref tuple = owned(PySequence_List(result.ptr()));  // other values stay where they were
  size_t next = 0;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(tuple.get()); ++i)
    if (is_tensor(PyList_GET_ITEM(tuple.get(), i)))
      check_status(PyList_SetItem(tuple.get(), i, wrap(std::move(outputs[next++]))));
  return nb::steal(checked(PyList_AsTuple(tuple.get())));
}

}  // namespace

void add_functions(nb::module_& m) {
  m.def(
      "_ctc_losses",
      [](const Tensor& log_probs, const std::vector<std::vector<int64_t>>& labels, const std::vector<int64_t>& steps,
         int64_t blank, bool zero_infinity) {
        Site site = here();
        GilReleased released;
        return nn::ctc_loss(log_probs, labels, steps, {blank, Reduction::none, zero_infinity}, site);
      },
      nb::arg("log_probs"), nb::arg("labels"), nb::arg("steps"), nb::arg("blank"), nb::arg("zero_infinity"),
      "The loss of each sample of [steps, batch, classes].");
  m.def("_apply_function", [](nb::handle cls, nb::handle ctx, nb::handle forward, bool once, nb::args args) {
    return apply_function(cls, ctx, forward, args, once);
  });
}

}  // namespace deft::python
