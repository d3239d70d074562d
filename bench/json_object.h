// Objects of a report, made of names and values in turn: object("case", name, "ms", 1.5).
#pragma once

#include <nlohmann/json.hpp>
#include <utility>

#include "bench/machine.h"

namespace deft::bench {

inline void put(Json&) {}
template <class Value, class... More>
void put(Json& object, const char* name, Value&& value, More&&... more) {
  object[name] = std::forward<Value>(value);
  put(object, std::forward<More>(more)...);
}

// Braced lists copy their values in a place that may not throw: short of memory, they would end the program.
template <class... NamesAndValues>
Json object(NamesAndValues&&... names_and_values) {
  Json out = Json::object();
  put(out, std::forward<NamesAndValues>(names_and_values)...);
  return out;
}

}  // namespace deft::bench
