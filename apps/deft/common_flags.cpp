#include "common_flags.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/check.h"
#include "comparison.h"
#include "runtime/backend.h"
#include "suggest.h"

namespace deft::cli {

Check one_of(const std::string& kind, std::vector<std::string> words) {
  return [kind, words = std::move(words)](const std::string& word) {
    bool known = std::find(words.begin(), words.end(), word) != words.end();
    return known ? std::string() : unknown_message(kind, word, words);
  };
}

Check whole_number(int64_t low, int64_t high) {
  return [low, high](const std::string& word) {
    int64_t value = 0;
    auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    bool good = error == std::errc() && end == word.data() + word.size() && low <= value && value <= high;
    std::string range = low == high ? fmt::format("{}", low) : fmt::format("a whole number from {} to {}", low, high);
    return good ? std::string() : fmt::format("found '{}', expected {}", word, range);
  };
}

Check number_from(double low, bool may_be_low) {
  return [low, may_be_low](const std::string& word) {
    double value = 0;
    auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    bool whole = error == std::errc() && end == word.data() + word.size() && std::isfinite(value);
    bool good = whole && (value > low || (may_be_low && value == low));
    return good ? std::string()
                : fmt::format("found '{}', expected a number {} {}", word, may_be_low ? "of at least" : "above", low);
  };
}

void add_device_flag(Command command, std::string& device, const char* names) {
  auto check = [](const std::string& word) {
    bool number = word.starts_with("cuda:") && word.size() > 5 && word.find_first_not_of("0123456789", 5) == word.npos;
    bool good = word == "cpu" || word == "cuda" || number;
    return good ? std::string() : fmt::format("found '{}', expected cpu, cuda or cuda:N", word);
  };
  command.add_option(names, device, "Where to run; default: cpu").check(check).type_name("cpu|cuda|cuda:N");
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

Check a_command() {
  return [](const std::string& command) {
    std::string first = command.substr(0, command.find(' '));
    bool found = access(command.c_str(), F_OK) == 0 || access(first.c_str(), F_OK) == 0 || is_on_path(first);
    return found ? std::string()
                 : fmt::format("found '{}', expected a program or a command, such as python3 FILE", command);
  };
}

void add_common_flags(Command command, CommonFlags& flags) {
  command.add_option("-o,--output", flags.format, "Output format; default: md")
      .check(one_of("output format", {"md", "json", "csv"}))
      .type_name("md|json|csv");
  command.add_flag("-q,--quiet", flags.quiet, "No progress on stderr");
}

Flag add_fail_if_flag(Command command, std::vector<std::string>& fail_if) {
  auto check = [](const std::string& text) {
    try {
      parse_fail_if(text);
      return std::string();
    } catch (const ValueError& error) {
      return std::string(error.what());
    }
  };
  return command
      .add_option("--fail-if", fail_if,
                  "Exit code 1 where this holds, such as 'p99>+5%', 'samples_per_second<-5%', 'p99>1.2x', "
                  "'p99_ms>1.5', or several with 'and', 'or'; repeatable")
      .check(check)
      .repeatable()
      .type_name("CONDITION");
}

void add_baseline_flags(Command command, CommonFlags& flags) {
  auto check = [](const std::string& path) {
    read_report(path);  // now, not after minutes of measuring
    return std::string();
  };
  Flag baseline = command.add_option("--baseline", flags.baseline, "Report to compare the result with")
                      .check(check)
                      .type_name("FILE");
  add_fail_if_flag(command, flags.fail_if).needs(baseline);
}

void add_repeats_flag(Command command, CommonFlags& flags, const std::string& help) {
  command.add_option("-r,--repeats", flags.repeats, help).check(whole_number(1, 1'000'000)).type_name("N");
}

void add_measure_flags(Command command, CommonFlags& flags, const std::string& repeats_help) {
  add_common_flags(command, flags);
  add_baseline_flags(command, flags);
  command.add_option("-t,--threads", flags.threads, "Threads; default: what deft info says")
      .check(whole_number(1, 1024))
      .type_name("N");
  add_repeats_flag(command, flags, repeats_help);
}

}  // namespace deft::cli
