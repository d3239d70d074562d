#include "output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>

#include "base/error.h"
#include "base/note.h"
#include "bench/interrupt.h"
#include "comparison.h"
#include "exit_code.h"
#include "late_end.h"

namespace deft::cli {

namespace {

bool use_color() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return isatty(STDOUT_FILENO) && !(no_color && *no_color) && !(term && std::string_view(term) == "dumb");
}

// The first line of a table is its header.
std::string with_bold_header(const std::string& table) {
  size_t end = table.find('\n');
  return bold(table.substr(0, end)) + table.substr(end);
}

std::string markdown_of(const bench::Report& report, const Presentation& presentation) {
  std::string out = fmt::format("{}\n\n", presentation.title);
  if (!report.results.empty() && !presentation.columns.empty())
    out += with_bold_header(bench::to_markdown(report.results, presentation.columns)) + "\n";
  for (const Presentation::Table& table : presentation.more_tables)
    if (!table.rows.empty()) out += with_bold_header(bench::to_markdown(table.rows, table.columns)) + "\n";
  for (const std::string& note : presentation.notes) out += note + "\n";
  if (report.interrupted) out += "Interrupted: only what was measured until then.\n";
  return out;
}

}  // namespace

void write_out(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written || std::ferror(stdout)) {  // now, or when something was printed before
    throw SaveError(fmt::format("could not write the result to standard output ({})", std::strerror(errno)));
  }
}

std::string bold(const std::string& text) { return use_color() ? "\033[1m" + text + "\033[0m" : text; }

Progress::Progress(std::string verb, bool quiet) : verb_(std::move(verb)), on_(!quiet && isatty(STDERR_FILENO)) {}
Progress::~Progress() {
  if (on_) std::fputs("\r\033[K", stderr);
}
void Progress::show(const std::string& what) const {
  if (on_) print_note("\r\033[K{}: {} ...", verb_, what);
}

int print_rows_so_far(const CommonFlags& flags) {
  bench::Report report;
  report.results = bench::rows_so_far();
  report.interrupted = true;
  std::vector<bench::Column> columns;
  for (const bench::Json& row : report.results)
    for (const auto& [key, value] : row.items())
      if (std::ranges::find(columns, key, &bench::Column::key) == columns.end())
        columns.push_back({key, key, bench::kFourDigits});
  if (flags.format == "json")
    write_out(report.to_json().dump(2, ' ', false, bench::Json::error_handler_t::replace) + "\n");
  else if (flags.format == "csv")
    write_out(bench::to_csv(report.results));
  else
    write_out(
        markdown_of(report, {.title = "Stopped in the middle of a measurement", .columns = columns, .notes = {}}));
  return 128 + bench::interrupt_signal();
}

int print_report(const bench::Report& report, const CommonFlags& flags, const Presentation& presentation) {
  claim_the_end();
  bench::Json json = report.to_json();
  std::optional<Comparison> comparison;
  std::exception_ptr cannot_compare;  // thrown after what was measured is written
  try {
    if (!flags.baseline.empty()) comparison = compare_reports(read_report(flags.baseline), json, flags.fail_if);
  } catch (const Error&) {
    cannot_compare = std::current_exception();
  }
  if (flags.format == "json") {
    if (comparison) json["comparison"] = to_json(*comparison);
    write_out(json.dump(2) + "\n");
  } else if (flags.format == "csv") {
    write_out(bench::to_csv(report.results));
  } else {
    write_out(markdown_of(report, presentation));
    if (comparison) write_out(fmt::format("\nCompared with {}\n\n{}", flags.baseline, to_text(*comparison, false)));
  }
  if (cannot_compare) std::rethrow_exception(cannot_compare);
  int code = comparison ? tell(*comparison) : kOk;
  return report.interrupted ? kInterrupted : code;
}

}  // namespace deft::cli
