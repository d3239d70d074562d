// Flags that several verbs have, and what their values must be.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "command_line.h"
#include "runtime/device.h"

namespace deft::cli {

struct CommonFlags {
  std::string format = "md";
  int threads = 0;  // 0: chosen by the library
  int repeats = 0;  // 0: chosen by the verb
  bool quiet = false;
  std::string baseline;              // report that the result is compared with; "": none
  std::vector<std::string> fail_if;  // conditions that make the comparison a regression
};
// -o and -q for every verb; -t, -r, --baseline and --fail-if for those that measure; -t of their own for sweeps.
void add_common_flags(Command command, CommonFlags& flags);
void add_measure_flags(Command command, CommonFlags& flags, const std::string& repeats_help);
void add_repeats_flag(Command command, CommonFlags& flags, const std::string& help);
void add_baseline_flags(Command command, CommonFlags& flags);
Flag add_fail_if_flag(Command command, std::vector<std::string>& fail_if);

// --device cpu|cuda|cuda:N, and the device it names; UnsupportedError where there is none.
void add_device_flag(Command command, std::string& device, const char* names = "-d,--device");
Device chosen_device(const std::string& device);

// Accepts only the given words; the error names the nearest.
Check one_of(const std::string& kind, std::vector<std::string> words);
Check whole_number(int64_t low, int64_t high);
// Above `low`, or also `low` itself.
Check number_from(double low, bool may_be_low);
// A file, or a command whose first word is one.
Check a_command();

}  // namespace deft::cli
