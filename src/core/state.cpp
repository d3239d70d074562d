#include "core/state.h"

#include "base/check.h"

namespace deft {

const Tensor* find_tensor(const NamedTensors& tensors, std::string_view name) {
  for (const NamedTensor& t : tensors)
    if (t.name == name) return &t.tensor;
  return nullptr;
}

namespace {

const char* type_name(const StateValue& value) {
  static constexpr const char* kNames[] = {"bool",          "int64",           "double",         "string",
                                           "list of int64", "list of doubles", "list of strings"};
  return kNames[value.index()];
}

// What follows "prefix." in name; empty if it does not begin so.
std::string_view below(std::string_view prefix, std::string_view name) {
  if (name.size() <= prefix.size() + 1 || !name.starts_with(prefix) || name[prefix.size()] != '.') return {};
  return name.substr(prefix.size() + 1);
}

}  // namespace

template <class T>
T State::get(std::string_view name) const {
  auto found = values.find(name);
  DEFT_CHECK(found != values.end(), ValueError,
             "state: there is no value \"{}\"; this state was written by something else", name);
  const StateValue& value = found->second;
  if (const T* v = std::get_if<T>(&value)) return *v;
  if constexpr (std::is_same_v<T, double>)
    if (const int64_t* v = std::get_if<int64_t>(&value)) return static_cast<double>(*v);
  DEFT_FAIL(ValueError, "state: the value \"{}\" is a {}, expected a {}", name, type_name(value),
            type_name(StateValue(T{})));
}
template bool State::get<bool>(std::string_view) const;
template int64_t State::get<int64_t>(std::string_view) const;
template double State::get<double>(std::string_view) const;
template std::string State::get<std::string>(std::string_view) const;
template std::vector<int64_t> State::get<std::vector<int64_t>>(std::string_view) const;
template std::vector<double> State::get<std::vector<double>>(std::string_view) const;
template std::vector<std::string> State::get<std::vector<std::string>>(std::string_view) const;

const Tensor& State::tensor(std::string_view name) const {
  const Tensor* found = find_tensor(tensors, name);
  DEFT_CHECK(found, ValueError, "state: there is no tensor \"{}\"; this state was written by something else", name);
  return *found;
}

void State::add(const std::string& prefix, const State& part) {
  for (const NamedTensor& t : part.tensors) tensors.push_back({prefix + "." + t.name, t.tensor});
  for (const auto& [name, value] : part.values) values.insert_or_assign(prefix + "." + name, value);
}

State State::part(std::string_view prefix) const {
  State result;
  for (const NamedTensor& t : tensors)
    if (auto name = below(prefix, t.name); !name.empty()) result.tensors.push_back({std::string(name), t.tensor});
  for (const auto& [key, value] : values)
    if (auto name = below(prefix, key); !name.empty()) result.values.emplace(name, value);
  return result;
}

}  // namespace deft
