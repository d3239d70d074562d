// manual_seed() and generators.
#include "runtime/random.h"

#include <random>

#include "bind_op.h"
#include "nb_tensor.h"
#include "ops/creation.h"

namespace deft::python {

GeneratorArgument to_generator(PyObject* p) {
  if (p == Py_None) return nullptr;
  if (!nb::isinstance<GeneratorBox>(nb::handle(p)))
    fail(PyExc_TypeError, "must be deft.Generator, not %s", Py_TYPE(p)->tp_name);
  return nb::inst_ptr<GeneratorBox>(nb::handle(p));
}

MemoryFormat to_memory_format(PyObject* p) {
  if (!nb::isinstance<MemoryFormat>(nb::handle(p)))
    fail(PyExc_TypeError, "must be deft.memory_format, not %s", Py_TYPE(p)->tp_name);
  return nb::cast<MemoryFormat>(nb::handle(p));
}

namespace {

uint64_t fresh_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32 | device()) >> 1;
}

// Seed and counter as the 16 bytes of a u8 tensor, as torch's states are byte tensors.
Tensor pack(PhiloxState s) {
  return tensor(std::vector<int64_t>{static_cast<int64_t>(s.seed), static_cast<int64_t>(s.offset)});
}
PhiloxState unpack(const Tensor& t) {
  if (t.dtype() != DType::i64 || t.numel() != 2)
    fail(PyExc_TypeError, "a generator's state is an int64 tensor of 2 elements");
  std::vector<int64_t> v = t.to_vector<int64_t>();
  return {static_cast<uint64_t>(v[0]), static_cast<uint64_t>(v[1])};
}

uint64_t seed_of(nb::int_ seed) {  // negative ones wrap, as in torch
  unsigned long long v = PyLong_AsUnsignedLongLongMask(seed.ptr());
  if (PyErr_Occurred()) throw nb::python_error();
  return v;
}

}  // namespace

void add_random(nb::module_& m) {
  nb::class_<GeneratorBox>(m, "Generator", "A stream of random numbers of its own.")
      .def(
          "__init__",
          [](GeneratorBox* g, nb::object) {
            new (g) GeneratorBox{{67280421310721, 0}};
          },
          nb::arg("device") = nb::none())
      .def(
          "manual_seed",
          [](nb::handle self, nb::int_ seed) {
            nb::inst_ptr<GeneratorBox>(self)->state = {seed_of(seed), 0};
            return nb::borrow(self);
          },
          nb::arg("seed"), "Starts again from this seed.")
      .def(
          "seed",
          [](GeneratorBox& g) {
            g.state = {fresh_seed(), 0};
            return g.state.seed;
          },
          "Starts from a seed that differs each time.")
      .def("initial_seed", [](const GeneratorBox& g) { return g.state.seed; })
      .def("get_state", [](const GeneratorBox& g) { return pack(g.state); })
      .def(
          "set_state", [](GeneratorBox& g, const Tensor& t) { g.state = unpack(t); }, nb::arg("new_state"))
      .def_prop_ro("device", [](const GeneratorBox&) { return kCPU; });
  m.def(
      "_manual_seed", [](nb::int_ seed) { manual_seed(seed_of(seed)); }, nb::arg("seed"));
  m.def(
      "seed",
      [] {
        uint64_t s = fresh_seed();
        manual_seed(s);
        return s;
      },
      "Seeds the generator with a number that differs each time.");
  m.def(
      "initial_seed", [] { return rng_state().seed; }, "The seed of the generator.");
  m.def(
      "get_rng_state", [] { return pack(rng_state()); }, "The generator's state, for set_rng_state().");
  m.def(
      "set_rng_state", [](const Tensor& t) { set_rng_state(unpack(t)); }, nb::arg("new_state"),
      "Goes back to a state.");

  nb::enum_<MemoryFormat>(m, "memory_format", "The order of a tensor's elements in memory.")
      .value("contiguous_format", MemoryFormat::contiguous)
      .value("channels_last", MemoryFormat::channels_last)
      .value("preserve_format", MemoryFormat::preserve)
      .export_values();
}

}  // namespace deft::python
