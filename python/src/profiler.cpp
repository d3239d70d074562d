// deft.profiler: a session of the library's profiler, and zones that Python code names.
#include <unordered_set>

#include "nb_tensor.h"
#include "profile/collector.h"
#include "runtime/profile_hook.h"

namespace deft::python {

void add_profiler(nb::module_& m);

namespace {

struct PythonSession {
  profile::ProfileSession session;
  profile::Profile profile;

  // All zones are looked at, so that numbers of calls are exact.
  explicit PythonSession(bool trace) : session({.trace = trace, .most_cost = 1}) {}
};

nb::list rows_of(const profile::Profile& p) {
  nb::list rows;
  for (const profile::FlameRow& r : p.flame) rows.append(nb::make_tuple(r.stack, r.calls, r.self_seconds));
  return rows;
}

nb::list ops_of(const profile::Profile& p) {
  nb::list rows;
  for (const profile::OpRow& r : p.ops) {
    nb::dict row;
    row["name"] = r.name, row["backward"] = r.backward, row["site"] = r.site, row["calls"] = r.calls;
    row["kernel_seconds"] = r.kernel_seconds, row["overhead_seconds"] = r.overhead_seconds;
    row["flops"] = r.flops, row["bytes"] = r.bytes;
    rows.append(row);
  }
  return rows;
}

// Names of zones live as long as the process.
const char* kept_name(const std::string& name) {
  static auto& names = *new std::unordered_set<std::string>();
  return names.insert(name).first->c_str();
}

struct NamedZone {
  const char* name;
  bool open = false;
};

}  // namespace

void add_profiler(nb::module_& m) {
  nb::class_<PythonSession>(m, "_ProfileSession")
      .def(nb::init<bool>(), nb::arg("trace"))
      .def("stop", [](PythonSession& s) { s.profile = s.session.stop(); })
      .def_prop_ro("wall_seconds", [](const PythonSession& s) { return s.profile.wall_seconds; })
      .def_prop_ro("flame", [](const PythonSession& s) { return rows_of(s.profile); })
      .def_prop_ro("ops", [](const PythonSession& s) { return ops_of(s.profile); })
      .def(
          "write_trace",
          [](const PythonSession& s, const std::string& path) { profile::write_trace(s.session.trace(), path); },
          nb::arg("path"));
  nb::class_<NamedZone>(m, "_Zone")
      .def(
          "__init__", [](NamedZone* z, const std::string& name) { new (z) NamedZone{kept_name(name)}; },
          nb::arg("name"))
      .def("__enter__",
           [](NamedZone& z) {
             if (context().bits & kProfile) z.open = detail::zone_begin(z.name, Bucket::other, here());
           })
      .def("__exit__", [](NamedZone& z, nb::args) {
        if (z.open) detail::zone_end();
        z.open = false;
      });
}

}  // namespace deft::python
