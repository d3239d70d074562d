// Commands and their flags. CLI11 does the work, in command_line.cpp only: every file that included it took seconds
// longer to compile.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace deft::cli {

// What is wrong with the word after a flag; "" where nothing is.
using Check = std::function<std::string(const std::string& word)>;

// A flag or argument of a command; copies mean the same one.
class Flag {
 public:
  explicit Flag(CLI::Option* option) : option_(option) {}

  Flag check(Check check);
  Flag type_name(const std::string& name);
  Flag description(const std::string& text);
  Flag required();
  Flag delimiter(char between_values);
  Flag repeatable();  // one value each time
  Flag needs(Flag other);
  Flag excludes(Flag other);

 private:
  CLI::Option* option_;
};

// A verb and its flags; copies mean the same one.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  // Names are "-b,--batch", or "file" for an argument without a dash. The value must live until the verb ran.
  Flag add_option(const std::string& names, std::string& value, const std::string& help);
  Flag add_option(const std::string& names, int& value, const std::string& help);
  Flag add_option(const std::string& names, int64_t& value, const std::string& help);
  Flag add_option(const std::string& names, uint64_t& value, const std::string& help);
  Flag add_option(const std::string& names, double& value, const std::string& help);
  Flag add_option(const std::string& names, std::vector<std::string>& value, const std::string& help);
  // Given to `take` instead, as it was written.
  Flag add_option(const std::string& names, std::function<void(const std::string&)> take, const std::string& help);
  Flag add_flag(const std::string& names, bool& value, const std::string& help);
  void footer(const std::string& text);

  Flag flag(const std::string& name);
  bool has_flag(const std::string& name) const;
  // After parsing: whether the command, or the flag, was on the command line.
  bool named() const;
  bool given(const std::string& flag) const;

 private:
  CLI::App* app_;
};

struct UsageError : std::runtime_error {
  UsageError(std::string where, const std::string& what) : std::runtime_error(what), verb(std::move(where)) {}
  std::string verb;  // "deft bench modes"
};

class CommandLine {
 public:
  CommandLine(const std::string& program, const std::string& summary, const std::string& version);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // In a group, such as "bench", where that is not "".
  Command add(const std::string& group, const std::string& name, const std::string& summary);

  // Sets what the flags refer to; UsageError for what cannot be. False where nothing is left to do: --version and
  // --help of a command are printed here. --help without a command is not, no command is named() then.
  bool parse(std::vector<std::string> arguments);

 private:
  std::unique_ptr<CLI::App> app_;
  std::map<std::string, CLI::App*> groups_;
};

}  // namespace deft::cli
