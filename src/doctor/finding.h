// What the doctor found: a mistake, where it is, and what to do about it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/site.h"

namespace deft {

enum class Severity : uint8_t { note, warning, error };
const char* name_of(Severity severity);

struct Finding {
  std::string id;  // "D003"; see doctor/rules.h
  Severity severity = Severity::warning;
  std::string file;  // as the compiler was given it; "" where no line is to blame
  uint32_t line = 0;
  std::string message;  // what happens in this program, with its figures
  std::string fix;      // what to change
  int64_t count = 1;    // how often it happened
  // Figures for machines, the unit in the name: {"mb_per_step", 12.5}.
  std::vector<std::pair<std::string, double>> figures;

  std::string to_string() const;  // "train.cpp:88: warning D003: ..."
};

}  // namespace deft
