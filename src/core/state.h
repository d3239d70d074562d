// What an object needs to go on later: tensors and plain values by name. Modules, optimizers, schedules, scalers and
// loaders hand it out and take it back; io writes it to files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/tensor.h"

namespace deft {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};
using NamedTensors = std::vector<NamedTensor>;  // in the order of definition

// nullptr if there is none of this name.
const Tensor* find_tensor(const NamedTensors& tensors, std::string_view name);

using StateValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                                std::vector<std::string>>;

struct State {
  NamedTensors tensors;
  std::map<std::string, StateValue, std::less<>> values;

  // The value of this name and type; ValueError if it is missing or of another type. int64 serves as double.
  template <class T>
  T get(std::string_view name) const;
  bool has(std::string_view name) const { return values.find(name) != values.end(); }
  const Tensor& tensor(std::string_view name) const;  // ValueError if missing

  // Everything of `part`, its names prefixed by "prefix.".
  void add(const std::string& prefix, const State& part);
  // What was added under this prefix, names without it.
  State part(std::string_view prefix) const;
};

}  // namespace deft
