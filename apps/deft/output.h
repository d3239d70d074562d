// What every verb shares: the result on stdout, one line of progress on stderr.
#pragma once

#include <string>
#include <vector>

#include "bench/report.h"
#include "common_flags.h"

namespace deft::cli {

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
// Of a measurement that cannot be waited for: the rows that are there, in the chosen format. The exit code.
int print_rows_so_far(const CommonFlags& flags);
int print_report(const bench::Report& report, const CommonFlags& flags, const Presentation& presentation);

}  // namespace deft::cli
