// Optimizer steps over lists of parameters, clipping, loss scaling and autocast. The classes are in deft/optim and
// deft/amp.
#include "amp/autocast.h"
#include "nb_tensor.h"
#include "ops/all_ops.h"
#include "ops/optimizer_update.h"
#include "optim/clip_grad.h"

namespace deft::python {

namespace {

// A group of parameters as the Python optimizer keeps it: options and, per parameter, a dict of states.
class GroupReader {
 public:
  explicit GroupReader(nb::dict group) : group_(group) {}
  double number(const char* name, double otherwise = 0) const {
    PyObject* v = find(name);
    return v ? to_double(v) : otherwise;
  }
  bool flag(const char* name) const {
    PyObject* v = find(name);
    return v && v != Py_None && to_bool(v);
  }
  std::pair<double, double> betas() const {
    PyObject* v = find("betas");
    if (!v) fail(PyExc_KeyError, "betas");
    Ref a = owned(PySequence_GetItem(v, 0)), b = owned(PySequence_GetItem(v, 1));
    return {to_double(a.get()), to_double(b.get())};
  }
  nb::handle params() const {
    PyObject* v = find("params");
    if (!v) fail(PyExc_KeyError, "params");
    return v;
  }

 private:
  PyObject* find(const char* name) const { return PyDict_GetItemString(group_.ptr(), name); }
  nb::dict group_;
};

struct StepTensors {
  double step;
  std::vector<UpdateTensor> tensors;
};

PyObject* interned(const char* text) { return checked(PyUnicode_InternFromString(text)); }

double step_of(PyObject* value) { return value ? to_double(value) : 0; }

// The parameters that have a gradient, with their states, by the number of their step. Missing states are made.
class Collector {
 public:
  Collector(nb::dict states, std::vector<const char*> names, double initial) : states_(states), initial_(initial) {
    for (const char* n : names) names_.push_back(interned(n));
    step_name_ = interned("step");
  }
  std::vector<StepTensors> collect(nb::handle params) {
    std::vector<StepTensors> r;
    Ref list = owned(PySequence_Fast(params.ptr(), "params must be a list"));
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list.get()); ++i) {
      PyObject* param = PySequence_Fast_GET_ITEM(list.get(), i);
      if (!is_tensor(param))
        fail(PyExc_TypeError, "optimizer can only optimize Tensors, found %s", Py_TYPE(param)->tp_name);
      Tensor grad = tensor_of(param).grad();
      if (!grad.defined()) continue;
      add(r, param, std::move(grad));
    }
    return r;
  }

 private:
  void add(std::vector<StepTensors>& batches, PyObject* param, Tensor grad) {
    const Tensor& p = tensor_of(param);
    PyObject* state = state_of(param);
    double step = step_of(PyDict_GetItemWithError(state, step_name_)) + 1;
    Ref next = owned(PyFloat_FromDouble(step));
    check_status(PyDict_SetItem(state, step_name_, next.get()));
    UpdateTensor u;
    u.param = p.detach();
    u.grad = std::move(grad);
    for (size_t i = 0; i < names_.size(); ++i) u.state[slots_.empty() ? i : slots_[i]] = tensor_in(state, names_[i], p);
    for (StepTensors& b : batches)
      if (b.step == step) {
        b.tensors.push_back(std::move(u));
        return;
      }
    batches.push_back({step, {}});
    batches.back().tensors.push_back(std::move(u));
  }
  PyObject* state_of(PyObject* param) {
    PyObject* state = PyDict_GetItemWithError(states_.ptr(), param);
    if (state) return state;
    if (PyErr_Occurred()) throw PythonError();
    Ref made = owned(PyDict_New());
    check_status(PyDict_SetItem(states_.ptr(), param, made.get()));
    return PyDict_GetItemWithError(states_.ptr(), param);
  }
  Tensor tensor_in(PyObject* state, PyObject* name, const Tensor& param) {
    PyObject* found = PyDict_GetItemWithError(state, name);
    if (found && is_tensor(found)) return tensor_of(found);
    Tensor made = optimizer_state(param);
    if (initial_ != 0) made.fill_(initial_);
    Ref wrapped = Ref::steal(wrap(made));
    check_status(PyDict_SetItem(state, name, wrapped.get()));
    return made;
  }

 public:
  std::vector<size_t> slots_;  // which state of the update each name is; in order if empty

 private:
  nb::dict states_;
  std::vector<PyObject*> names_;
  PyObject* step_name_;
  double initial_;
};

void fill(OptimizerUpdate& u, const GroupReader& g, double grad_scale) {
  u.lr = g.number("lr");
  u.weight_decay = g.number("weight_decay");
  u.grad_scale = grad_scale;
  u.maximize = g.flag("maximize");
}

template <class Update, class Run>
void run_all(std::vector<StepTensors>& batches, Update& update, Run&& run) {
  Site site = here();
  GilReleased released;
  for (StepTensors& b : batches) {
    if constexpr (requires { update.step; }) update.step = static_cast<int64_t>(b.step);
    if constexpr (requires { update.first; }) update.first = b.step == 1;
    run(std::span<const UpdateTensor>(b.tensors), update, site);
  }
}

void sgd_step(nb::dict group, nb::dict states, double grad_scale) {
  GroupReader g(group);
  SgdUpdate u;
  fill(u, g, grad_scale);
  u.momentum = g.number("momentum");
  u.dampening = g.number("dampening");
  u.nesterov = g.flag("nesterov");
  Collector c(states, u.momentum != 0 ? std::vector<const char*>{"momentum_buffer"} : std::vector<const char*>{}, 0);
  auto batches = c.collect(g.params());
  run_all(batches, u, [](auto t, const auto& n, const Site& s) { sgd_update(t, n, s); });
}

void adam_step(nb::dict group, nb::dict states, double grad_scale, bool decoupled) {
  GroupReader g(group);
  AdamUpdate u;
  fill(u, g, grad_scale);
  std::tie(u.beta1, u.beta2) = g.betas();
  u.eps = g.number("eps");
  u.amsgrad = g.flag("amsgrad");
  u.decoupled = decoupled;
  std::vector<const char*> names{"exp_avg", "exp_avg_sq"};
  if (u.amsgrad) names.push_back("max_exp_avg_sq");
  Collector c(states, names, 0);
  auto batches = c.collect(g.params());
  run_all(batches, u, [](auto t, const auto& n, const Site& s) { adam_update(t, n, s); });
}

void rmsprop_step(nb::dict group, nb::dict states, double grad_scale) {
  GroupReader g(group);
  RmspropUpdate u;
  fill(u, g, grad_scale);
  u.alpha = g.number("alpha");
  u.eps = g.number("eps");
  u.momentum = g.number("momentum");
  u.centered = g.flag("centered");
  std::vector<const char*> names{"square_avg"};
  std::vector<size_t> slots{0};
  if (u.momentum != 0) names.push_back("momentum_buffer"), slots.push_back(1);
  if (u.centered) names.push_back("grad_avg"), slots.push_back(2);
  Collector c(states, names, 0);
  c.slots_ = slots;
  auto batches = c.collect(g.params());
  run_all(batches, u, [](auto t, const auto& n, const Site& s) { rmsprop_update(t, n, s); });
}

void adagrad_step(nb::dict group, nb::dict states, double grad_scale) {
  GroupReader g(group);
  AdagradUpdate u;
  fill(u, g, grad_scale);
  u.lr_decay = g.number("lr_decay");
  u.eps = g.number("eps");
  Collector c(states, {"sum"}, g.number("initial_accumulator_value"));
  auto batches = c.collect(g.params());
  run_all(batches, u, [](auto t, const auto& n, const Site& s) { adagrad_update(t, n, s); });
}

void lamb_step(nb::dict group, nb::dict states, double grad_scale) {
  GroupReader g(group);
  LambUpdate u;
  fill(u, g, grad_scale);
  std::tie(u.beta1, u.beta2) = g.betas();
  u.eps = g.number("eps");
  Collector c(states, {"exp_avg", "exp_avg_sq"}, 0);
  auto batches = c.collect(g.params());
  run_all(batches, u, [](auto t, const auto& n, const Site& s) { lamb_update(t, n, s); });
}

// Multiplies the gradients in place; true if one of them is infinite or NaN.
bool unscale(nb::handle params, double factor) {
  std::vector<Tensor> grads;
  for (const Tensor& p : tensors_of(params))
    if (Tensor g = p.grad(); g.defined()) grads.push_back(g);
  Site site = here();
  GilReleased released;
  bool bad = false;
  for (Tensor& g : grads) {
    Tensor plain = g.detach();
    mul_(plain, Scalar(factor), site);
    bad |= !all(isfinite(plain, site), {}, false, site).item<bool>(site);
  }
  return bad;
}

// `with autocast():` keeps what was before.
struct AutocastScope {
  std::optional<DType> dtype;  // none: it is off inside
  std::optional<AutocastGuard> guard;
};

}  // namespace

void add_training(nb::module_& m) {
  m.def("_sgd_step", &sgd_step, nb::arg("group"), nb::arg("states"), nb::arg("grad_scale"));
  m.def("_adam_step", &adam_step, nb::arg("group"), nb::arg("states"), nb::arg("grad_scale"), nb::arg("decoupled"));
  m.def("_rmsprop_step", &rmsprop_step, nb::arg("group"), nb::arg("states"), nb::arg("grad_scale"));
  m.def("_adagrad_step", &adagrad_step, nb::arg("group"), nb::arg("states"), nb::arg("grad_scale"));
  m.def("_lamb_step", &lamb_step, nb::arg("group"), nb::arg("states"), nb::arg("grad_scale"));
  m.def("_unscale", &unscale, nb::arg("params"), nb::arg("factor"));
  m.def(
      "_zero_grad",
      [](nb::handle params, bool set_to_none) {
        for (nb::handle p : params)
          if (is_tensor(p.ptr())) tensor_of(p.ptr()).zero_grad(set_to_none);
      },
      nb::arg("params"), nb::arg("set_to_none"));
  m.def(
      "_clip_grad_norm",
      [](nb::handle params, double max_norm, double norm_type, bool error_if_nonfinite) {
        return optim::clip_grad_norm_(tensors_of(params), max_norm, norm_type, error_if_nonfinite, here());
      },
      nb::arg("params"), nb::arg("max_norm"), nb::arg("norm_type"), nb::arg("error_if_nonfinite"));
  m.def(
      "_clip_grad_value",
      [](nb::handle params, double limit) { optim::clip_grad_value_(tensors_of(params), limit, here()); },
      nb::arg("params"), nb::arg("clip_value"));

  nb::class_<AutocastScope>(m, "_AutocastScope")
      .def(
          "__init__",
          [](AutocastScope* s, nb::handle dtype) {
            new (s) AutocastScope();
            if (!dtype.is_none()) s->dtype = to_dtype(dtype.ptr());
          },
          nb::arg("dtype").none())
      .def("__enter__", [](AutocastScope& s) { s.guard.emplace(s.dtype.value_or(DType::f32)); })
      .def("__exit__", [](AutocastScope& s, nb::args) { s.guard.reset(); });
  m.def(
      "is_autocast_enabled", [](nb::object) { return is_autocast_enabled(); }, nb::arg("device_type") = nb::none(),
      "Whether autocast is on in this thread.");
  m.def(
      "_choose_autocast",
      [](nb::handle device) {
        AutocastChoice c = choose_autocast(to_device(device.ptr()));
        return nb::make_tuple(nb::steal(wrap(c.dtype)), c.reason);
      },
      nb::arg("device"));
}

}  // namespace deft::python
