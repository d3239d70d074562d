#include "output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <sstream>

#include "base/check.h"
#include "comparison.h"
#include "exit_code.h"
#include "runtime/backend.h"
#include "suggest.h"

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
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw SaveError(fmt::format("could not write the result to standard output ({})", std::strerror(errno)));
  }
}

CLI::Validator one_of(const std::string& kind, std::vector<std::string> words) {
  auto check = [kind, words = std::move(words)](std::string& word) {
    bool known = std::find(words.begin(), words.end(), word) != words.end();
    return known ? std::string() : unknown_message(kind, word, words);
  };
  return {check, ""};
}

CLI::Validator whole_number(int64_t low, int64_t high) {
  auto check = [low, high](std::string& word) {
    int64_t value = 0;
    auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    bool good = error == std::errc() && end == word.data() + word.size() && low <= value && value <= high;
    std::string range = low == high ? fmt::format("{}", low) : fmt::format("a whole number from {} to {}", low, high);
    return good ? std::string() : fmt::format("found '{}', expected {}", word, range);
  };
  return {check, ""};
}

CLI::Validator number_from(double low, bool may_be_low) {
  auto check = [low, may_be_low](std::string& word) {
    double value = 0;
    auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    bool whole = error == std::errc() && end == word.data() + word.size() && std::isfinite(value);
    bool good = whole && (value > low || (may_be_low && value == low));
    return good ? std::string()
                : fmt::format("found '{}', expected a number {} {}", word, may_be_low ? "of at least" : "above", low);
  };
  return {check, ""};
}

void add_device_flag(CLI::App& app, std::string& device, const char* names) {
  auto check = [](std::string& word) {
    bool number = word.starts_with("cuda:") && word.size() > 5 && word.find_first_not_of("0123456789", 5) == word.npos;
    bool good = word == "cpu" || word == "cuda" || number;
    return good ? std::string() : fmt::format("found '{}', expected cpu, cuda or cuda:N", word);
  };
  app.add_option(names, device, "Where to run; default: cpu")
      ->check(CLI::Validator(check, ""))
      ->type_name("cpu|cuda|cuda:N");
}

Device chosen_device(const std::string& name) {
  Device device = parse_device(name == "cuda" ? "cuda:0" : name);
  DEFT_CHECK(device.index < device_count(device.type), UnsupportedError,
             "there is no device {}; deft info lists what is here", name);
  return device;
}

namespace {

bool is_on_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  if (!path || program.find('/') != program.npos) return false;
  std::istringstream folders(path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

}  // namespace

CLI::Validator a_command() {
  auto check = [](std::string& command) {
    std::string first = command.substr(0, command.find(' '));
    bool found = access(command.c_str(), F_OK) == 0 || access(first.c_str(), F_OK) == 0 || is_on_path(first);
    return found ? std::string()
                 : fmt::format("found '{}', expected a program or a command, such as python3 FILE", command);
  };
  return {check, ""};
}

void add_common_flags(CLI::App& app, CommonFlags& flags) {
  app.add_option("-o,--output", flags.format, "Form of the result; default: md")
      ->check(one_of("output format", {"md", "json", "csv"}))
      ->type_name("md|json|csv");
  app.add_flag("-q,--quiet", flags.quiet, "No progress on stderr");
}

CLI::Option* add_fail_if_flag(CLI::App& app, std::vector<std::string>& fail_if) {
  auto check = [](std::string& text) {
    try {
      parse_fail_if(text);
      return std::string();
    } catch (const ValueError& error) {
      return std::string(error.what());
    }
  };
  return app
      .add_option("--fail-if", fail_if,
                  "Exit code 1 where this holds, such as 'p99>+5%', 'samples_per_second<-5%', 'p99>1.2x', "
                  "'p99_ms>1.5', or several with 'and', 'or'; repeatable")
      ->check(CLI::Validator(check, ""))
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("CONDITION");
}

void add_baseline_flags(CLI::App& app, CommonFlags& flags) {
  auto check = [](std::string& path) {
    read_report(path);  // now, not after minutes of measuring
    return std::string();
  };
  CLI::Option* baseline = app.add_option("--baseline", flags.baseline, "Report to compare the result with")
                              ->check(CLI::Validator(check, ""))
                              ->type_name("FILE");
  add_fail_if_flag(app, flags.fail_if)->needs(baseline);
}

void add_repeats_flag(CLI::App& app, CommonFlags& flags, const std::string& help) {
  app.add_option("-r,--repeats", flags.repeats, help)->check(whole_number(1, 1'000'000))->type_name("N");
}

void add_measure_flags(CLI::App& app, CommonFlags& flags, const std::string& repeats_help) {
  add_common_flags(app, flags);
  add_baseline_flags(app, flags);
  app.add_option("-t,--threads", flags.threads, "Threads; default: what deft info says")
      ->check(whole_number(1, 1024))
      ->type_name("N");
  add_repeats_flag(app, flags, repeats_help);
}

std::string bold(const std::string& text) { return use_color() ? "\033[1m" + text + "\033[0m" : text; }

Progress::Progress(std::string verb, bool quiet) : verb_(std::move(verb)), on_(!quiet && isatty(STDERR_FILENO)) {}
Progress::~Progress() {
  if (on_) std::fputs("\r\033[K", stderr);
}
void Progress::show(const std::string& what) const {
  if (on_) fmt::print(stderr, "\r\033[K{}: {} ...", verb_, what);
}

int print_report(const bench::Report& report, const CommonFlags& flags, const Presentation& presentation) {
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
