#include "command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "suggest.h"

namespace deft::cli {

namespace {

// Flags as "-b,--batch N"; bounds and defaults are in the text.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_type_size() == 0 ? "" : " " + option->get_type_name();
  }
};

std::vector<std::string> flags_of(const CLI::App* app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app->get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
    for (const std::string& name : option->get_snames()) flags.push_back("-" + name);
  }
  return flags;
}

const CLI::App* innermost(const CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().back();
  return app;
}
std::string path_of(const CLI::App* app) {
  return app->get_parent() ? path_of(app->get_parent()) + " " + app->get_name() : app->get_name();
}

std::string why_unknown(const CLI::App* app, const std::string& word) {
  if (word.starts_with('-')) return unknown_message("flag", word.substr(0, word.find('=')), flags_of(app));
  std::vector<std::string> names;
  for (const CLI::App* sub : app->get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(sub->get_name());
  return names.empty() ? fmt::format("unexpected argument '{}'", word) : unknown_message("verb", word, names);
}
void reject_extras(const CLI::App* app) {
  for (const std::string& word : app->remaining()) {
    if (word != "--") throw UsageError(path_of(app), why_unknown(app, word));
  }
  for (const CLI::App* sub : app->get_subcommands()) reject_extras(sub);
}

}  // namespace

Flag Flag::check(Check check) {
  auto of_word = [check = std::move(check)](std::string& word) { return check(word); };
  option_->check(CLI::Validator(of_word, ""));
  return *this;
}
Flag Flag::type_name(const std::string& name) { return Flag(option_->type_name(name)); }
Flag Flag::description(const std::string& text) { return Flag(option_->description(text)); }
Flag Flag::required() { return Flag(option_->required()); }
Flag Flag::delimiter(char between_values) { return Flag(option_->delimiter(between_values)); }
Flag Flag::repeatable() { return Flag(option_->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)); }
Flag Flag::needs(Flag other) { return Flag(option_->needs(other.option_)); }
Flag Flag::excludes(Flag other) { return Flag(option_->excludes(other.option_)); }

Flag Command::add_option(const std::string& names, std::string& value, const std::string& help) {
  return Flag(app_->add_option(names, value, help));
}
Flag Command::add_option(const std::string& names, int& value, const std::string& help) {
  return Flag(app_->add_option(names, value, help));
}
Flag Command::add_option(const std::string& names, int64_t& value, const std::string& help) {
  return Flag(app_->add_option(names, value, help));
}
Flag Command::add_option(const std::string& names, uint64_t& value, const std::string& help) {
  return Flag(app_->add_option(names, value, help));
}
Flag Command::add_option(const std::string& names, double& value, const std::string& help) {
  return Flag(app_->add_option(names, value, help));
}
Flag Command::add_option(const std::string& names, std::vector<std::string>& value, const std::string& help) {
  return Flag(app_->add_option(names, value, help));
}
Flag Command::add_option(const std::string& names, std::function<void(const std::string&)> take,
                         const std::string& help) {
  return Flag(app_->add_option_function<std::string>(names, take, help));
}
Flag Command::add_flag(const std::string& names, bool& value, const std::string& help) {
  return Flag(app_->add_flag(names, value, help));
}
void Command::footer(const std::string& text) { app_->footer(text); }

Flag Command::flag(const std::string& name) { return Flag(app_->get_option(name)); }
bool Command::has_flag(const std::string& name) const { return app_->get_option_no_throw(name) != nullptr; }
bool Command::named() const { return app_->parsed(); }
bool Command::given(const std::string& flag) const { return app_->count(flag) > 0; }

CommandLine::CommandLine(const std::string& program, const std::string& summary, const std::string& version)
    : app_(std::make_unique<CLI::App>(summary, program)) {
  app_->formatter(std::make_shared<HelpFormatter>());
  app_->allow_extras();  // unknown words are ours to explain
  app_->set_version_flag("-V,--version", version);
}
CommandLine::~CommandLine() = default;

Command CommandLine::add(const std::string& group, const std::string& name, const std::string& summary) {
  CLI::App* parent = app_.get();
  if (!group.empty()) {
    CLI::App*& made = groups_[group];
    if (!made) made = app_->add_subcommand(group, fmt::format("Verbs of deft {}", group))->allow_extras();
    parent = made;
  }
  return Command(parent->add_subcommand(name, summary)->allow_extras());
}

bool CommandLine::parse(std::vector<std::string> arguments) {
  std::reverse(arguments.begin(), arguments.end());  // the order CLI11 wants
  try {
    app_->parse(arguments);
  } catch (const CLI::Success& success) {  // --help, --version
    bool top_help = app_->get_subcommands().empty() && dynamic_cast<const CLI::CallForHelp*>(&success);
    if (!top_help) app_->exit(success);
    return top_help;
  } catch (const CLI::ParseError& error) {
    reject_extras(app_.get());  // an unknown flag before a bad value is the better explanation
    throw UsageError(path_of(innermost(app_.get())), error.what());
  }
  reject_extras(app_.get());
  return true;
}

}  // namespace deft::cli
