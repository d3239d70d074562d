// deft.compile(): plans of functions over tensors. deft/_compile.py takes arguments and results apart.
#include "graph/compile.h"

#include <memory>

#include "bind_op.h"
#include "io/plan_file.h"
#include "nb_tensor.h"

namespace deft::python {

namespace {

struct Plans {
  std::unique_ptr<Compiled> compiled;
};

std::vector<Tensor> call_python(const Shared& function, const std::vector<Tensor>& inputs) {
  GilHeld lock;
  try {
    std::vector<Tensor> copies = inputs;
    Ref given = owned(binding::give_list(copies.data(), copies.size()));
    Ref result = owned(PyObject_CallOneArg(function.get(), given.get()));
    Ref list = owned(PySequence_Tuple(result.get()));
    return to_tensors(list.get());
  } catch (const PythonError&) {
    throw nb::python_error();
  }
}

uint64_t call_state(const Shared& function) {
  GilHeld lock;
  Ref r = Ref::steal(PyObject_CallNoArgs(function.get()));
  if (!r) throw nb::python_error();
  return PyLong_AsUnsignedLongLongMask(r.get());
}

graph::DimRange range_of(nb::handle h) {
  auto t = nb::cast<nb::tuple>(h);
  return {{nb::cast<size_t>(t[0]), nb::cast<int>(t[1])}, nb::cast<int64_t>(t[2]), nb::cast<int64_t>(t[3])};
}

}  // namespace

void add_compile(nb::module_& m) {
  nb::class_<Plans>(m, "_Compiled")
      .def(
          "__init__",
          [](Plans* self, nb::object function, nb::object state, bool symbolic, nb::list ranges) {
            CompileOptions options;
            for (nb::handle r : ranges) options.ranges.push_back(range_of(r));
            options.symbolic = symbolic;
            if (!state.is_none()) options.state = [f = Shared(state.ptr())] { return call_state(f); };
            auto call = [f = Shared(function.ptr())](const std::vector<Tensor>& x) { return call_python(f, x); };
            new (self) Plans{std::make_unique<Compiled>(Compiled::Function(call), std::move(options), here())};
          },
          nb::arg("function"), nb::arg("state").none(), nb::arg("symbolic"), nb::arg("ranges") = nb::list())
      .def(
          "run",
          [](Plans& self, nb::handle inputs) {
            std::vector<Tensor> given = tensors_of(inputs), results;
            {
              GilReleased released;
              results = self.compiled->run(given);
            }
            return nb::steal<nb::tuple>(binding::give_list(results.data(), results.size()));
          },
          nb::arg("inputs"))
      .def(
          "save",
          [](const Plans& self, const std::string& path, const std::string& name, bool templates) {
            GilReleased released;
            io::save_plan(*self.compiled, path, {name, templates});
          },
          nb::arg("path"), nb::arg("name"), nb::arg("templates") = false)
      .def("templates", [](const Plans& self) { return self.compiled->templates().size(); })
      .def("explain", [](const Plans& self) { return self.compiled->explain(); })
      .def("stats", [](const Plans& self) {
        CompileStats s = self.compiled->stats();
        nb::dict d;
        d["calls"] = s.calls, d["replays"] = s.replays, d["captures"] = s.captures, d["evictions"] = s.evictions;
        d["instantiated"] = s.instantiated, d["arena_bytes"] = s.arena_bytes;
        return d;
      });
  m.def(
      "_load_plan",
      [](const std::string& path) {
        io::PlanInfo info;
        auto plans = std::make_unique<Plans>();
        {
          GilReleased released;
          plans->compiled = std::make_unique<Compiled>(io::load_plan(path, {}, &info));
        }
        return nb::make_tuple(nb::cast(plans.release(), nb::rv_policy::take_ownership), info.name);
      },
      nb::arg("path"));
}

}  // namespace deft::python
