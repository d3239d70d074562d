// The extension module deft._C.
#include <nanobind/stl/map.h>

#include "bind_op.h"
#include "exchange.h"
#include "nb_tensor.h"
#include "ops/all_ops.h"
#include "ops/op_table.h"
#include "runtime/backend.h"
#include "runtime/memory.h"
#include "runtime/numerics.h"
#include "runtime/parallel.h"
#include "runtime/stream.h"

namespace deft::python {

extern PyObject *ops_module, *function_module, *functional_module;
void add_profiler(nb::module_& m);

namespace {

PyObject* add_part(nb::module_& m, const char* name, const char* doc) {
  return m.def_submodule(name, doc).release().ptr();
}

void add_table(nb::module_& m) {
  m.def(
      "_entries",
      [] {
        nb::list r;
        for (const Entry& e : entries()) r.append(nb::make_tuple(e.signature, e.op, e.to));
        return r;
      },
      "What is bound: (signature, op, where) of every function.");
  m.def(
      "_op_names",
      [] {
        return std::vector<std::string>{
#define DEFT_OP(Type) Type::info.name,
#include "ops/all_ops.def"
#undef DEFT_OP
        };
      },
      "The names of the library's op table.");
  m.def("_op_devices", [](const std::string& name) {
    const OpDef* op = find_op(name);
    nb::dict r;
    if (op) r["cpu"] = op->cpu != nullptr, r["cuda"] = op->cuda != nullptr;
    return r;
  });
  m.def(
      "_mark_parameter", [](const Tensor& t) { t.set_memory_category(MemoryCategory::parameter); }, nb::arg("tensor"));
  m.def(
      "_tensor_bytes",
      [](const Tensor& t) {
        Tensor dense = t.detach().to(kCPU).contiguous();
        return nb::bytes(dense.data_ptr(), static_cast<size_t>(dense.numel()) * dense.element_size());
      },
      nb::arg("tensor"), "The bytes of all elements in order.");
  m.def("_nearest_name", &nearest_name, nb::arg("wanted"), nb::arg("names"));
}

nb::dict memory_use(int index) {
  DeviceMemoryUse use = device_memory_use(Device{DeviceType::cuda, static_cast<int8_t>(index)});
  nb::dict r;
  r["live"] = use.live_bytes, r["reserved"] = use.reserved_bytes, r["peak"] = use.peak_bytes;
  return r;
}

nb::dict properties(int index) {
  DeviceProperties p = device_properties(Device{DeviceType::cuda, static_cast<int8_t>(index)});
  nb::dict r;
  r["name"] = p.name, r["total_memory"] = p.memory_bytes, r["major"] = p.major, r["minor"] = p.minor;
  return r;
}

void add_machine(nb::module_& m) {
  m.def("_memory_use", &memory_use, nb::arg("index"));
  m.def("_properties", &properties, nb::arg("index"));
  m.def(
      "_reset_peak_memory",
      [](int index) {
        deft::reset_peak_memory(Device{DeviceType::cuda, static_cast<int8_t>(index)});
      },
      nb::arg("index"));
  m.def(
      "_release_cached_memory",
      [](int index) {
        trim_device_memory(Device{DeviceType::cuda, static_cast<int8_t>(index)});
      },
      nb::arg("index"));
  m.def("_allow_tf32", [] { return allow_tf32(); });
  m.def(
      "_set_allow_tf32", [](bool allow) { set_allow_tf32(allow); }, nb::arg("allow"));
  m.def("_device_count", [] { return device_count(DeviceType::cuda); });
  m.def(
      "_synchronize",
      [](int index) {
        Site site = here();
        GilReleased released;
        synchronize(Device{DeviceType::cuda, static_cast<int8_t>(index)}, site);
      },
      nb::arg("index"));
  m.def("_has_cuda", [] { return backend(DeviceType::cuda) != nullptr; });
  m.def(
      "get_num_threads", [] { return num_threads(); }, "The number of threads that ops use.");
  m.def(
      "set_num_threads", [](int n) { set_num_threads(n); }, nb::arg("num"), "Sets the number of threads that ops use.");
}

}  // namespace

}  // namespace deft::python

NB_MODULE(_C, m) {
  using namespace deft::python;
  nb::set_leak_warnings(false);  // element types live as long as the process
  m.doc() = "Deft's library. The names for users are in the package deft.";
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (...) {
      translate_exception();
    }
  });
  try {
    ops_module = add_part(m, "ops", "Every bound function.");
    function_module = add_part(m, "functions", "Functions of deft itself.");
    functional_module = add_part(m, "functional", "Functions of deft.nn.functional.");
    add_errors(m.ptr());
    add_tensor_type(m.ptr());
    add_types(m.ptr());
    add_random(m);
    bind_elementwise();
    bind_shape_ops();
    bind_reductions();
    bind_network_ops();
    bind_gradient_ops();
    bind_creation();
    bind_tensor_methods();
    add_exchange(m.ptr());
    add_grad_modes(m.ptr());
  } catch (...) {
    translate_exception();
    throw nb::python_error();
  }
  add_autograd(m);
  add_functions(m);
  add_training(m);
  add_files(m);
  add_compile(m);
  add_bridge(m);
  add_table(m);
  add_machine(m);
  add_profiler(m);
}
