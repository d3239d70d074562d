// --fail-if: when a comparison is a regression.
//
//   p99>+5%            grew by more than five percent
//   samples_per_second<-5%   fell by more than five percent
//   p99>1.2x           is more than 1.2 times what it was
//   p99_ms>1.5         is more than 1.5 now
//   p99>+0.2           grew by more than 0.2
//   p99>+5% and p99_ms>1.5, peak_mb>+10%   "and": of one row; "," or "or": one of them is enough
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace deft::cli {

struct FailTerm {
  enum class Of : uint8_t { value, difference, percent, ratio };
  std::string key;
  bool above = true, or_equal = false;
  Of of = Of::value;
  double limit = 0;

  bool holds(double before, double after) const;
};

struct FailIf {
  std::string text;
  std::vector<FailTerm> terms;  // all hold of one row
};

// The alternatives of one --fail-if; ValueError naming what could not be understood.
std::vector<FailIf> parse_fail_if(const std::string& text);

// The `keys` that match `wanted`: the one of that name; else those of that name and a unit; else those that contain
// all its words.
std::vector<std::string> keys_like(const std::string& wanted, const std::vector<std::string>& keys);

}  // namespace deft::cli
