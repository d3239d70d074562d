// The deft command line. Result on stdout, everything else on stderr; exit codes in exit_code.h.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>

#include "base/error.h"
#include "bench/machine.h"
#include "exit_code.h"
#include "suggest.h"
#include "trainer.h"
#include "verbs.h"

namespace deft::cli {

namespace {

struct UsageError : std::runtime_error {
  UsageError(std::string where, const std::string& what) : std::runtime_error(what), verb(std::move(where)) {}
  std::string verb;  // "deft bench modes"
};

// Flags as "-b,--batch N"; bounds and defaults are in the text.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_type_size() == 0 ? "" : " " + option->get_type_name();
  }
};

void print_help() {
  std::vector<std::string> paths;  // a group's name in front of its first verb only
  std::string group;
  for (const Verb& verb : verbs()) {
    paths.push_back(verb.group == group ? verb.name : verb.path());
    group = verb.group;
  }
  fmt::print(
      "deft {}: a compact, very fast deep-learning framework. Start with one of these:\n"
      "\n"
      "  deft doctor                    why a workload lags, what helps, and a plan that proves it\n"
      "  deft train                     a small convolutional net learns drawn characters in a minute or two\n"
      "  deft info                      what this machine is, and what is fast on it\n"
      "\n"
      "Verbs: {}. Flags, defaults and units: deft VERB --help\n"
      "Common flags: -o md|json|csv, -t threads, -r repeats, -q quiet, --version\n"
      "Exit codes: 0 ok, 1 regression or failed run, 2 usage, 3 unsupported or bad file, 4 findings, 70 internal "
      "error\n",
      bench::build_info().version, fmt::join(paths, ", "));
}

// A group named without one of its verbs means the first of them: `deft bench` is `deft bench modes`.
std::vector<std::string> with_default_verb(std::vector<std::string> arguments) {
  for (const Verb& verb : verbs()) {
    bool named = !arguments.empty() && !verb.group.empty() && arguments[0] == verb.group;
    if (!named) continue;
    bool help = arguments.size() > 1 && (arguments[1] == "-h" || arguments[1] == "--help");
    if (!help && (arguments.size() == 1 || arguments[1].starts_with('-')))
      arguments.insert(arguments.begin() + 1, verb.name);
    break;
  }
  return arguments;
}

class CommandLine {
 public:
  CommandLine() : app_("A compact, very fast deep-learning framework.", "deft") {
    app_.formatter(std::make_shared<HelpFormatter>());
    app_.allow_extras();  // unknown words are ours to explain
    app_.set_version_flag("-V,--version", fmt::format("deft {}", bench::build_info().version));
    for (const Verb& verb : verbs()) {
      CLI::App* parent = verb.group.empty() ? &app_ : group(verb.group);
      CLI::App* sub = parent->add_subcommand(verb.name, verb.summary);
      sub->allow_extras();
      entries_.push_back({sub, verb.add(*sub)});
    }
  }

  int run(std::vector<std::string> arguments) {
    std::reverse(arguments.begin(), arguments.end());  // the order CLI11 wants
    try {
      app_.parse(arguments);
    } catch (const CLI::Success& success) {  // --help, --version
      bool top_help = app_.get_subcommands().empty() && dynamic_cast<const CLI::CallForHelp*>(&success);
      if (!top_help) return app_.exit(success);
      print_help();
      return kOk;
    } catch (const CLI::ParseError& error) {
      reject_extras(&app_);  // an unknown flag before a bad value is the better explanation
      throw UsageError(path_of(innermost()), error.what());
    }
    reject_extras(&app_);
    for (const Entry& entry : entries_) {
      if (entry.app->parsed()) return entry.run();
    }
    print_help();
    return kOk;
  }

 private:
  struct Entry {
    CLI::App* app;
    std::function<int()> run;
  };

  CLI::App* group(const std::string& name) {
    CLI::App*& made = groups_[name];
    if (!made) made = app_.add_subcommand(name, fmt::format("Verbs of deft {}", name))->allow_extras();
    return made;
  }

  static std::vector<std::string> flags_of(const CLI::App* app) {
    std::vector<std::string> flags;
    for (const CLI::Option* option : app->get_options()) {
      for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
      for (const std::string& name : option->get_snames()) flags.push_back("-" + name);
    }
    return flags;
  }

  const CLI::App* innermost() const {
    const CLI::App* app = &app_;
    while (!app->get_subcommands().empty()) app = app->get_subcommands().back();
    return app;
  }
  static std::string path_of(const CLI::App* app) {
    return app->get_parent() ? path_of(app->get_parent()) + " " + app->get_name() : app->get_name();
  }

  static void reject_extras(const CLI::App* app) {
    for (const std::string& word : app->remaining()) {
      if (word != "--") throw UsageError(path_of(app), why_unknown(app, word));
    }
    for (const CLI::App* sub : app->get_subcommands()) reject_extras(sub);
  }
  static std::string why_unknown(const CLI::App* app, const std::string& word) {
    if (word.starts_with('-')) return unknown_message("flag", word.substr(0, word.find('=')), flags_of(app));
    std::vector<std::string> names;
    for (const CLI::App* sub : app->get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(sub->get_name());
    return names.empty() ? fmt::format("unexpected argument '{}'", word) : unknown_message("verb", word, names);
  }

  CLI::App app_;
  std::map<std::string, CLI::App*> groups_;
  std::vector<Entry> entries_;
};

int fail(int code, const std::string& kind, std::string what) {
  std::replace(what.begin(), what.end(), '\n', ' ');
  fmt::print(stderr, "{}: {}\n", kind, what);
  return code;
}

int guarded_main(int argc, char** argv) {
  try {
    return CommandLine().run(with_default_verb({argv + 1, argv + argc}));
  } catch (const UsageError& error) {
    return fail(kUsage, error.verb, fmt::format("{} (see {} --help)", error.what(), error.verb));
  } catch (const UnsupportedError& error) {
    return fail(kUnsupported, "deft: not supported here", error.what());
  } catch (const LoadError& error) {
    return fail(kUnsupported, "deft", error.what());
  } catch (const SaveError& error) {
    return fail(kUnsupported, "deft", error.what());
  } catch (const TrainingError& error) {
    return fail(kRegression, "deft", error.what());
  } catch (const ValueError& error) {
    return fail(kUsage, "deft", error.what());
  } catch (const ShapeError& error) {  // of a given file, or of a length the model has no room for
    return fail(kUsage, "deft", error.what());
  } catch (const DTypeError& error) {
    return fail(kUsage, "deft", error.what());
  } catch (const std::exception& error) {
    return fail(kInternal, "deft: internal error", error.what());
  } catch (...) {
    return fail(kInternal, "deft: internal error", "unknown exception");
  }
}

}  // namespace

}  // namespace deft::cli

int main(int argc, char** argv) { return deft::cli::guarded_main(argc, argv); }
