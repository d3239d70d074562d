#include "doctor_script.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "base/check.h"

namespace deft::cli {

namespace {

namespace fs = std::filesystem;

constexpr const char* kHow = "set DEFT_PYTHON to the Python that has the script's PyTorch";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// $DEFT_PYTHON, that of an active virtual environment, or python3 on the path.
std::string the_python() {
  if (std::string named = variable("DEFT_PYTHON"); !named.empty()) return named;
  if (std::string active = variable("VIRTUAL_ENV"); !active.empty()) {
    const std::string python = active + "/bin/python3";
    if (access(python.c_str(), X_OK) == 0) return python;
  }
  return "python3";
}

// The package where it lies beside this program: in a build tree, or where both were unpacked.
std::optional<std::string> package_beside() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return {};
  const fs::path root = program.parent_path().parent_path();
  for (const char* folder : {"python", "lib/python3/dist-packages", "share/deft/python"}) {
    const fs::path doctor = root / folder / "deft" / "doctor";
    if (fs::exists(doctor / "__main__.py", error)) return doctor.string();
  }
  return {};
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

// The exit code of a Python that runs `code`; 127: there is no such program.
int python_says(const std::string& python, const char* code) {
  std::vector<std::string> words = {python, "-c", code};
  std::vector<char*> arguments = pointers(words);
  const pid_t child = fork();
  if (child == 0) {
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  int status = 0;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 127;
}

}  // namespace

bool is_doctor_of_script(const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0] != "doctor") return false;
  const auto end = std::ranges::find(arguments, "--");
  return std::any_of(arguments.begin(), end, [](const std::string& word) { return word.ends_with(".py"); });
}

void run_doctor_of_script(const std::vector<std::string>& arguments) {
  const std::string python = the_python();
  std::vector<std::string> words = {python};
  if (const auto package = package_beside()) {
    words.push_back(*package);
  } else {
    const int found = python_says(python, "import importlib.util as u, sys; sys.exit(u.find_spec('deft') is None)");
    DEFT_CHECK(found != 127, UnsupportedError, "there is no Python '{}' to run the script with; {}", python, kHow);
    DEFT_CHECK(found == 0, UnsupportedError,
               "the Python package of Deft is neither beside this program nor installed for '{}'; run `{} -m pip "
               "install deft`, or {}",
               python, python, kHow);
    words.insert(words.end(), {"-m", "deft.doctor"});
  }
  words.insert(words.end(), arguments.begin() + 1, arguments.end());
  execvp(python.c_str(), pointers(words).data());
  DEFT_FAIL(UnsupportedError, "the Python '{}' cannot be started ({}); {}", python, std::strerror(errno), kHow);
}

}  // namespace deft::cli
