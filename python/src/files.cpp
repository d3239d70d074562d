// Files: PyTorch's checkpoints as Python values, safetensors.
#include <nanobind/stl/map.h>

#include "io/load_tensors.h"
#include "io/pt.h"
#include "io/safetensors.h"
#include "nb_tensor.h"

namespace deft::python {

namespace {

using io::PtValue;

nb::object to_python(const PtValue& v) {
  using Kind = PtValue::Kind;
  auto elements = [&] {
    nb::list r;
    for (size_t i = 0; i < v.size(); ++i) r.append(to_python(v[i]));
    return r;
  };
  switch (v.kind()) {
    case Kind::none:
      return nb::none();
    case Kind::boolean:
      return nb::bool_(v.to_bool());
    case Kind::integer:
      return nb::int_(v.to_int());
    case Kind::real:
      return nb::float_(v.to_double());
    case Kind::string:
      return nb::str(v.text().c_str(), v.text().size());
    case Kind::bytes:
      return nb::bytes(v.text().data(), v.text().size());
    case Kind::tuple:
      return nb::tuple(elements());
    case Kind::list:
      return elements();
    case Kind::set:
      return nb::steal(checked(PySet_New(elements().ptr())));
    case Kind::tensor:
      return nb::steal(wrap(v.tensor()));
    case Kind::other:
      return nb::str(v.text().c_str());
    case Kind::dict:
      break;
  }
  nb::dict r;
  for (size_t i = 0; i < v.size(); ++i) r[to_python(v.key(i))] = to_python(v[i]);
  return r;
}

nb::dict to_dict(const NamedTensors& tensors) {
  nb::dict r;
  for (const NamedTensor& t : tensors) r[t.name.c_str()] = t.tensor;
  return r;
}

NamedTensors named(nb::dict tensors) {
  NamedTensors r;
  for (auto [name, tensor] : tensors) {
    if (!is_tensor(tensor.ptr()))
      fail(PyExc_ValueError, "safetensors: the value of %R is %s, expected a Tensor", name.ptr(),
           Py_TYPE(tensor.ptr())->tp_name);
    r.push_back({to_text(name.ptr()), nb::cast<Tensor>(tensor)});
  }
  return r;
}

}  // namespace

void add_files(nb::module_& m) {
  m.def(
      "_load_pt",
      [](const std::string& path, bool mmap) {
        io::LoadOptions options;
        options.mmap = mmap;
        std::optional<io::PtFile> file;
        {
          GilReleased released;
          file.emplace(io::load_pt(path, options));
        }
        return to_python(file->root());
      },
      nb::arg("path"), nb::arg("mmap") = false);
  m.def(
      "_parse_pt",
      [](nb::bytes data, const std::string& name) {
        return to_python(io::parse_pt({static_cast<const std::byte*>(data.data()), data.size()}, name).root());
      },
      nb::arg("data"), nb::arg("name"));
  m.def(
      "_load_tensors", [](const std::string& path) { return to_dict(io::load_tensors(path)); }, nb::arg("path"));
  m.def(
      "_load_safetensors",
      [](const std::string& path, bool mmap) {
        io::LoadOptions options;
        options.mmap = mmap;
        return to_dict(io::load_safetensors(path, options).tensors);
      },
      nb::arg("path"), nb::arg("mmap") = false);
  m.def(
      "_safetensors_metadata",
      [](const std::string& path) {
        io::LoadOptions options;
        options.mmap = true;
        return io::load_safetensors(path, options).metadata;
      },
      nb::arg("path"));
  m.def(
      "_save_safetensors",
      [](nb::dict tensors, const std::string& path, const std::map<std::string, std::string>& metadata) {
        NamedTensors list = named(tensors);
        GilReleased released;
        io::save_safetensors(path, list, metadata);
      },
      nb::arg("tensors"), nb::arg("path"), nb::arg("metadata"));
}

}  // namespace deft::python
