// backward(), grad(), hooks and nodes.
#include "core/checkpoint.h"
#include "core/engine.h"
#include "core/grad_mode.h"
#include "core/hooks.h"
#include "core/node.h"
#include "nb_tensor.h"

namespace deft::python {

namespace {

// --- Hooks. They are called in the middle of a backward pass, which runs without the GIL.
Tensor call_hook(const Shared& hook, const Tensor& grad) {
  GilHeld lock;
  Ref argument = Ref::steal(wrap(grad));
  Ref result = Ref::steal(PyObject_CallOneArg(hook.get(), argument.get()));
  if (!result) throw nb::python_error();
  if (result.get() == Py_None) return {};
  if (!is_tensor(result.get())) {
    PyErr_Format(PyExc_TypeError, "a hook returned %s, expected a Tensor or None", Py_TYPE(result.get())->tp_name);
    throw nb::python_error();
  }
  return tensor_of(result.get());
}

Ref tuple_of(const std::vector<Tensor>& tensors) {
  Ref tuple = owned(PyTuple_New(static_cast<Py_ssize_t>(tensors.size())));
  for (size_t i = 0; i < tensors.size(); ++i)
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), wrap(tensors[i]));
  return tuple;
}

// Replaces `tensors` by a hook's result: a tuple, a tensor, or None for no change.
void take_result(PyObject* result, std::vector<Tensor>& tensors) {
  if (result == Py_None) return;
  Ref list = is_tensor(result) ? owned(PyTuple_Pack(1, result)) : owned(PySequence_Tuple(result));
  if (static_cast<size_t>(PyTuple_GET_SIZE(list.get())) != tensors.size())
    fail(PyExc_RuntimeError, "a hook returned %zd gradients, expected %zu", PyTuple_GET_SIZE(list.get()),
         tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    PyObject* item = PyTuple_GET_ITEM(list.get(), static_cast<Py_ssize_t>(i));
    if (item == Py_None) continue;
    if (!is_tensor(item)) fail(PyExc_TypeError, "a hook returned %s, expected tensors", Py_TYPE(item)->tp_name);
    tensors[i] = tensor_of(item);
  }
}

NodePreHook pre_hook(nb::handle function) {
  return [hook = Shared(function.ptr())](std::vector<Tensor>& grad_outputs) {
    GilHeld lock;
    try {
      Ref given = tuple_of(grad_outputs);
      Ref result = owned(PyObject_CallOneArg(hook.get(), given.get()));
      take_result(result.get(), grad_outputs);
    } catch (const PythonError&) {
      throw nb::python_error();
    }
  };
}

NodePostHook post_hook(nb::handle function) {
  return [hook = Shared(function.ptr())](std::vector<Tensor>& grad_inputs, const std::vector<Tensor>& grad_outputs) {
    GilHeld lock;
    try {
      Ref in = tuple_of(grad_inputs), out = tuple_of(grad_outputs);
      Ref result = owned(PyObject_CallFunctionObjArgs(hook.get(), in.get(), out.get(), nullptr));
      take_result(result.get(), grad_inputs);
    } catch (const PythonError&) {
      throw nb::python_error();
    }
  };
}

// Removes a hook.
struct Handle {
  std::function<void()> take_off;
  void remove() {
    if (auto f = std::exchange(take_off, nullptr)) f();
  }
};

struct PyNode {
  NodePtr node;
};

// "add" becomes "AddBackward0".
std::string node_name(const Node& n) {
  std::string name = n.type->name, r;
  if (n.has(kNodeIsLeaf)) return "AccumulateGrad";
  if (name.find("Backward") != name.npos) return name;  // a user-defined Function
  bool upper = true;
  for (char c : name) {
    if (c == '_') {
      upper = true;
      continue;
    }
    r += upper ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    upper = false;
  }
  return r + "Backward0";
}

nb::object wrap_node(NodePtr n) { return n ? nb::cast(PyNode{std::move(n)}) : nb::none(); }

nb::tuple next_functions(const PyNode& self) {
  nb::list r;
  for (int i = 0; i < self.node->inputs; ++i) {
    const Edge& e = self.node->edges()[i];
    r.append(nb::make_tuple(wrap_node(NodePtr::share(e.node)), e.output_nr));
  }
  return nb::tuple(r);
}

void add_nodes(nb::module_& m) {
  nb::class_<Handle>(m, "RemovableHandle", "Takes a hook off again.")
      .def("remove", &Handle::remove, "Takes the hook off.")
      .def("__enter__", [](nb::handle self) { return nb::borrow(self); })
      .def("__exit__", [](Handle& h, nb::args) { h.remove(); });
  nb::class_<PyNode>(m, "Node", "A recorded operation.")
      .def(
          "name", [](const PyNode& n) { return node_name(*n.node); }, "The kind of operation.")
      .def("__repr__", [](const PyNode& n) { return "<" + node_name(*n.node) + ">"; })
      .def("__eq__", [](const PyNode& a,
                        nb::handle b) { return nb::isinstance<PyNode>(b) && nb::cast<PyNode&>(b).node == a.node; })
      .def("__hash__", [](const PyNode& n) { return reinterpret_cast<size_t>(n.node.get()) >> 4; })
      .def_prop_ro("next_functions", &next_functions,
                   "The nodes that its gradients go to, each with an output's number.")
      .def(
          "register_hook",
          [](const PyNode& n, nb::object hook) {
            HookHandle h = register_node_hook(n.node, nullptr, post_hook(hook));
            return Handle{[node = n.node, h] { remove_node_hook(node, h); }};
          },
          nb::arg("fn"), "Calls fn(grad_inputs, grad_outputs) after the node has run.")
      .def(
          "register_prehook",
          [](const PyNode& n, nb::object hook) {
            HookHandle h = register_node_hook(n.node, pre_hook(hook));
            return Handle{[node = n.node, h] { remove_node_hook(node, h); }};
          },
          nb::arg("fn"), "Calls fn(grad_outputs) before the node runs.");
}

void add_hooks(nb::module_& m) {
  m.def(
      "_grad_fn", [](const Tensor& t) { return wrap_node(t.grad_fn()); }, nb::arg("tensor"));
  m.def(
      "_register_hook",
      [](const Tensor& t, nb::object hook) {
        if (!t.requires_grad())
          fail(PyExc_RuntimeError, "cannot register a hook on a tensor that doesn't require gradient");
        HookHandle h = t.register_hook([f = Shared(hook.ptr())](const Tensor& g) { return call_hook(f, g); });
        return Handle{[t, h] { t.remove_hook(h); }};
      },
      nb::arg("tensor"), nb::arg("hook"));
  // Runs once .grad is up to date, with the tensor itself.
  m.def(
      "_register_post_accumulate_grad_hook",
      [](const Tensor& t, nb::object hook) {
        if (!t.is_leaf())
          fail(PyExc_RuntimeError, "post accumulate grad hooks cannot be registered on non-leaf tensors");
        auto after = [f = Shared(hook.ptr()), impl = t.impl()](std::vector<Tensor>&, const std::vector<Tensor>&) {
          GilHeld lock;
          Ref self = Ref::steal(wrap(Tensor(ImplPtr::share(impl))));  // the leaf owns the hook, not the other way round
          if (!Ref::steal(PyObject_CallOneArg(f.get(), self.get()))) throw nb::python_error();
        };
        HookHandle h = register_node_hook(t, nullptr, after, here());
        return Handle{[t, h] { remove_node_hook(t, h); }};
      },
      nb::arg("tensor"), nb::arg("hook"));
}

std::vector<Tensor> gradients_of(nb::handle h, size_t count) {
  if (h.is_none()) return {};
  if (is_tensor(h.ptr())) return {tensor_of(h.ptr())};
  std::vector<Tensor> r;
  for (nb::handle item : h) r.push_back(item.is_none() ? Tensor() : nb::cast<Tensor>(item));
  if (r.size() != count) fail(PyExc_RuntimeError, "got %zu tensors and %zu gradients", count, r.size());
  return r;
}

void add_engine(nb::module_& m) {
  m.def(
      "_run_backward",
      [](nb::handle tensors, nb::handle gradients, bool retain_graph, bool create_graph) {
        std::vector<Tensor> roots = tensors_of(tensors), grads = gradients_of(gradients, roots.size());
        Site site = here();
        GilReleased released;
        backward(roots, grads, {retain_graph, create_graph}, site);
      },
      nb::arg("tensors"), nb::arg("grad_tensors").none(), nb::arg("retain_graph"), nb::arg("create_graph"));
  m.def(
      "_grad",
      [](nb::handle outputs, nb::handle inputs, nb::handle gradients, bool retain_graph, bool create_graph,
         bool allow_unused) {
        std::vector<Tensor> roots = tensors_of(outputs), leaves = tensors_of(inputs);
        std::vector<Tensor> grads = gradients_of(gradients, roots.size()), r;
        Site site = here();
        {
          GilReleased released;
          r = grad(roots, leaves, grads, {retain_graph, create_graph, allow_unused}, site);
        }
        return nb::steal<nb::tuple>(tuple_of(r).release());
      },
      nb::arg("outputs"), nb::arg("inputs"), nb::arg("grad_outputs").none(), nb::arg("retain_graph"),
      nb::arg("create_graph"), nb::arg("allow_unused"));
  m.def(
      "_checkpoint",
      [](nb::object function, nb::handle inputs) {
        auto call = [f = Shared(function.ptr())](const Tensors& x) {
          GilHeld lock;
          try {
            Ref given = tuple_of(x);
            Ref result = owned(PyObject_Call(f.get(), given.get(), nullptr));
            Ref list = owned(PySequence_Tuple(result.get()));
            return to_tensors(list.get());
          } catch (const PythonError&) {
            throw nb::python_error();
          }
        };
        Tensors given = tensors_of(inputs), r;
        Site site = here();
        {
          GilReleased released;
          r = checkpoint(call, given, site);
        }
        return nb::steal<nb::tuple>(tuple_of(r).release());
      },
      nb::arg("function"), nb::arg("inputs"));
}

// Context manager for one bit of the context.
struct BitScope {
  uint32_t bit;
  bool on, outer = false;
};
void set_bit(uint32_t bit, bool on) { context().bits = on ? context().bits | bit : context().bits & ~bit; }

}  // namespace

void add_autograd(nb::module_& m) {
  add_nodes(m);
  add_hooks(m);
  add_engine(m);
  nb::class_<BitScope>(m, "_BitScope")
      .def("__enter__",
           [](BitScope& s) {
             s.outer = context().bits & s.bit;
             set_bit(s.bit, s.on);
           })
      .def("__exit__", [](BitScope& s, nb::args) { set_bit(s.bit, s.outer); });
  m.def(
      "_detect_anomaly",
      [](bool on) {
        return BitScope{kAnomaly, on};
      },
      nb::arg("mode") = true);
  m.def(
      "_deterministic", [](bool on) { set_bit(kDeterministic, on); }, nb::arg("mode"));
  m.def("_is_deterministic", [] { return (context().bits & kDeterministic) != 0; });
}

}  // namespace deft::python
