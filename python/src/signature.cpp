#include "signature.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string_view>

#include "convert.h"

namespace deft::python {

namespace {

std::string_view trim(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

// None, True, False, a number or 'text'; "()" is the empty tuple.
PyObject* parse_default(const std::string& text) {
  if (text == "None") return Py_NewRef(Py_None);
  if (text == "True") return Py_NewRef(Py_True);
  if (text == "False") return Py_NewRef(Py_False);
  if (text == "()") return PyTuple_New(0);
  if (text.front() == '\'')
    return PyUnicode_FromStringAndSize(text.data() + 1, static_cast<Py_ssize_t>(text.size() - 2));
  if (text.find_first_of(".e") == std::string::npos) return PyLong_FromString(text.c_str(), nullptr, 10);
  return PyFloat_FromDouble(std::stod(text));
}

[[noreturn]] void unknown_keyword(const Signature& s, PyObject* keyword) {
  std::vector<std::string> names;
  for (const ParameterName& p : s.parameters) names.emplace_back(p.text);
  std::string near = nearest_name(to_text(keyword), names);
  if (near.empty())
    fail(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'; it takes (%s)", s.name.c_str(), keyword,
         s.arguments.c_str());
  fail(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'; did you mean '%s'?", s.name.c_str(), keyword,
       near.c_str());
}

int find_parameter(const Signature& s, PyObject* keyword) {
  int n = static_cast<int>(s.parameters.size());
  for (int i = 0; i < n; ++i)
    if (s.parameters[static_cast<size_t>(i)].name == keyword) return i;
  for (int i = 0; i < n; ++i)  // keywords made at run time are not interned
    if (PyUnicode_Compare(s.parameters[static_cast<size_t>(i)].name, keyword) == 0) return i;
  unknown_keyword(s, keyword);
}

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t corner = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, corner + (a[i - 1] != b[j - 1])});
      corner = above;
    }
  }
  return row[b.size()];
}

}  // namespace

Signature::Signature(const char* text) {
  std::string_view all(text);
  size_t open = all.find('('), close = all.rfind(')');
  if (open == all.npos || close == all.npos) throw std::invalid_argument(text);
  name = all.substr(0, open);
  arguments = all.substr(open + 1, close - open - 1);
  bool keyword_only = false;
  for (std::string_view rest = arguments; !rest.empty();) {
    size_t comma = rest.find(", ");
    std::string_view part = trim(rest.substr(0, comma));
    rest = comma == rest.npos ? std::string_view() : rest.substr(comma + 2);
    if (part == "*") {
      keyword_only = true;
      continue;
    }
    if (part.front() == '*') {
      variadic = static_cast<int>(parameters.size());
      part.remove_prefix(1);
    }
    size_t equals = part.find('=');
    std::string label(part.substr(0, equals));
    PyObject* interned = checked(PyUnicode_InternFromString(label.c_str()));
    PyObject* value = equals == part.npos ? nullptr : checked(parse_default(std::string(part.substr(equals + 1))));
    parameters.push_back({interned, value, PyUnicode_AsUTF8(interned)});
    if (!keyword_only) ++positional;
    if (variadic >= 0) keyword_only = true;
  }
  if (parameters.size() > kMaxParameters) throw std::invalid_argument(text);
}

std::string Signature::text_signature(bool method) const {
  std::string list = arguments;
  // torch has an argument of this name, which Python's grammar has not: it can be given by position, or in a dict.
  if (size_t at = list.find(" from="); at != std::string::npos) list.insert(at + 5, "_");
  if (method) {
    size_t comma = list.find(", ");
    list = "$self" + (comma == list.npos ? std::string() : list.substr(comma));
  }
  return name + "(" + list + ")\n--\n\n";
}

void bind_call(const Signature& s, PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords,
               BoundCall& call) {
  const size_t n = s.parameters.size();
  for (size_t i = 0; i < n; ++i) call.slot[i] = nullptr;
  size_t first = 0;
  if (self) call.slot[first++] = self;
  auto given = static_cast<size_t>(count);
  size_t last = static_cast<size_t>(s.positional);
  if (s.variadic >= 0) {
    auto v = static_cast<size_t>(s.variadic), before = v - first;
    // x.view(2, 3): numbers one by one; x.view((2, 3)): the tuple itself.
    if (given > before && (given > before + 1 || is_integer(args[before]))) {
      call.many = args + before;
      call.many_count = count - static_cast<Py_ssize_t>(before);
      call.slot[v] = args[before];
      given = before;
    }
  }
  if (given + first > last)
    fail(PyExc_TypeError, "%s() takes %zu positional arguments but %zu were given: it takes (%s)", s.name.c_str(),
         last - first, given, s.arguments.c_str());
  for (size_t i = 0; i < given; ++i) call.slot[first + i] = args[i];
  const Py_ssize_t named = keywords ? PyTuple_GET_SIZE(keywords) : 0;
  for (Py_ssize_t k = 0; k < named; ++k) {
    PyObject* keyword = PyTuple_GET_ITEM(keywords, k);
    auto i = static_cast<size_t>(find_parameter(s, keyword));
    if (call.slot[i]) fail(PyExc_TypeError, "%s() got multiple values for argument '%U'", s.name.c_str(), keyword);
    call.slot[i] = args[count + k];
  }
  for (size_t i = 0; i < n; ++i) {
    if (call.slot[i]) continue;
    call.slot[i] = s.parameters[i].default_value;
    if (!call.slot[i] && static_cast<int>(i) == s.variadic) {  // x.squeeze(), zeros(): no number at all
      call.many = args;
      continue;
    }
    if (!call.slot[i])
      fail(PyExc_TypeError, "%s() missing required argument '%s': it takes (%s)", s.name.c_str(), s.parameters[i].text,
           s.arguments.c_str());
  }
}

std::string nearest_name(const std::string& wanted, const std::vector<std::string>& names) {
  std::string best;
  size_t distance = wanted.size() / 2 + 1;
  for (const std::string& name : names) {
    size_t d = edit_distance(wanted, name);
    if (d < distance) {
      distance = d;
      best = name;
    }
  }
  return best;
}

}  // namespace deft::python
