// What every verb shares: the common flags, the result on stdout, one line of progress on stderr.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "bench/report.h"
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
void add_common_flags(CLI::App& app, CommonFlags& flags);
void add_measure_flags(CLI::App& app, CommonFlags& flags, const std::string& repeats_help);
void add_repeats_flag(CLI::App& app, CommonFlags& flags, const std::string& help);
void add_baseline_flags(CLI::App& app, CommonFlags& flags);
CLI::Option* add_fail_if_flag(CLI::App& app, std::vector<std::string>& fail_if);

// --device cpu|cuda|cuda:N, and the device it names; UnsupportedError where there is none.
void add_device_flag(CLI::App& app, std::string& device, const char* names = "-d,--device");
Device chosen_device(const std::string& device);

// Accepts only the given words; the error names the nearest.
CLI::Validator one_of(const std::string& kind, std::vector<std::string> words);
CLI::Validator whole_number(int64_t low, int64_t high);
// Above `low`, or also `low` itself.
CLI::Validator number_from(double low, bool may_be_low);
// A file, or a command whose first word is one.
CLI::Validator a_command();

// Bold where stdout is a terminal and NO_COLOR is not set; otherwise the text itself.
std::string bold(const std::string& text);

// One line, rewritten in place; silent with -q and where stderr is not a terminal.
class Progress {
 public:
  Progress(std::string verb, bool quiet);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(const std::string& what) const;

 private:
  std::string verb_;
  bool on_;
};

// To stdout, all of it or an error.
void write_out(const std::string& text);

// Writes a report in the chosen format: title, table and notes for md; with --baseline the comparison after it. Returns
// the exit code.
struct Presentation {
  struct Table {
    std::vector<bench::Json> rows;
    std::vector<bench::Column> columns;
  };
  std::string title;
  std::vector<bench::Column> columns;   // of the results; empty: they are in more_tables
  std::vector<Table> more_tables = {};  // after the results; empty ones are left out
  std::vector<std::string> notes;
};
int print_report(const bench::Report& report, const CommonFlags& flags, const Presentation& presentation);

}  // namespace deft::cli
