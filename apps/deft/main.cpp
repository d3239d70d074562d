// The deft command line. Result on stdout, everything else on stderr; exit codes in exit_code.h.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/note.h"
#include "bench/machine.h"
#include "data/data_error.h"
#include "doctor_script.h"
#include "exit_code.h"
#include "output.h"
#include "trainer.h"
#include "verbs.h"

namespace deft::cli {

namespace {

void print_help() {
  std::vector<std::string> paths;  // a group's name in front of its first verb only
  std::string group;
  for (const Verb& verb : verbs()) {
    paths.push_back(verb.group == group ? verb.name : verb.path());
    group = verb.group;
  }
  write_out(fmt::format(
      "deft {}: a compact, very fast deep-learning framework. Start with one of these:\n"
      "\n"
      "  deft doctor                    why a workload is slow, what helps, and a plan with the proof\n"
      "  deft train                     a small convolutional net learns drawn characters in a minute or two\n"
      "  deft info                      what this machine is, and what is fast on it\n"
      "\n"
      "Verbs: {}. Flags, defaults and units: deft VERB --help\n"
      "Common flags: -o md|json|csv, -t threads, -r repeats, -q quiet, --version\n"
      "Exit codes: 0 ok, 1 regression or failed run, 2 usage, 3 unsupported or bad file, 4 findings, 5 out of memory, "
      "70 internal error\n",
      bench::build_info().version, fmt::join(paths, ", ")));
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

int run(const std::vector<std::string>& arguments) {
  CommandLine line("deft", "A compact, very fast deep-learning framework.",
                   fmt::format("deft {}", bench::build_info().version));
  std::vector<std::pair<Command, std::function<int()>>> runs;
  for (const Verb& verb : verbs()) {
    Command command = line.add(verb.group, verb.name, verb.summary);
    runs.emplace_back(command, verb.add(command));
  }
  if (!line.parse(arguments)) return kOk;
  for (const auto& [command, run_verb] : runs) {
    if (command.named()) return run_verb();
  }
  print_help();
  return kOk;
}

int fail(int code, const std::string& kind, std::string what) {
  std::replace(what.begin(), what.end(), '\n', ' ');
  print_note("{}: {}\n", kind, what);
  return code;
}

// Nothing here may need memory of its own.
int fail_for_memory(const char* what) {
  std::fputs("deft: out of memory: ", stderr);
  std::fputs(what, stderr);
  std::fputs("\n", stderr);
  return kOutOfMemory;
}
int fail_for_memory() {
  return fail_for_memory("the system gave no more; take smaller batches or fewer workers, or close other programs");
}

// Code of others ends the program where memory is refused in a destructor or another function that must not throw:
// nlohmann's trees need some to be destroyed, CLI11 to look for a name.
std::terminate_handler end_otherwise = nullptr;
[[noreturn]] void end_of_program() {
  try {
    if (const std::exception_ptr last = std::current_exception()) std::rethrow_exception(last);
  } catch (const OutOfMemoryError& error) {
    _exit(fail_for_memory(error.what()));
  } catch (const std::bad_alloc&) {
    _exit(fail_for_memory());
  } catch (...) {
  }
  end_otherwise();
  std::abort();
}

// A sample that cannot be read; running out of memory is no matter of the sample.
int fail_for_sample(const data::DataError& error) {
  try {
    if (error.cause) std::rethrow_exception(error.cause);
  } catch (const OutOfMemoryError& of_memory) {
    return fail_for_memory(of_memory.what());
  } catch (const std::bad_alloc&) {
    return fail_for_memory();
  } catch (...) {
  }
  return fail(kUnsupported, "deft",
              fmt::format("{}; deft train and eval leave it out with --on-error skip", error.what()));
}

int run_and_flush(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (is_doctor_of_script(arguments)) run_doctor_of_script(arguments);
  const int code = run(with_default_verb(arguments));
  std::cout.flush();
  write_out("");  // flushes all output: a failed write is an error
  if (!std::cout) throw SaveError("could not write the result to standard output");
  return code;
}

// A file that is opened must not get the number of a closed stdout or stderr: what is meant for those would go into it.
void keep_standard_numbers() {
  for (int number : {0, 1, 2})
    if (fcntl(number, F_GETFD) < 0 && open("/dev/null", O_RDONLY) < 0) return;
}

int guarded_main(int argc, char** argv) {
  keep_standard_numbers();
  end_otherwise = std::set_terminate(end_of_program);
  try {
    return run_and_flush(argc, argv);
  } catch (const UsageError& error) {
    return fail(kUsage, error.verb, fmt::format("{} (see {} --help)", error.what(), error.verb));
  } catch (const UnsupportedError& error) {
    return fail(kUnsupported, "deft: not supported here", error.what());
  } catch (const LoadError& error) {
    return fail(kUnsupported, "deft", error.what());
  } catch (const SaveError& error) {
    return fail(kUnsupported, "deft", error.what());
  } catch (const data::DataError& error) {
    return fail_for_sample(error);
  } catch (const TrainingError& error) {
    return fail(kRegression, "deft", error.what());
  } catch (const OutOfMemoryError& error) {
    return fail_for_memory(error.what());
  } catch (const std::bad_alloc&) {
    return fail_for_memory();
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
