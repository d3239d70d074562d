// DEFT_DOCTOR=report.html ./program: the doctor of a whole program, which knows nothing of it.
//
// Note [Before main and after it]
// It starts when the library is loaded: the library has no objects that would still have to be initialised (isa_targets
// only reads the environment). It ends in a handler for exit() that is registered after the thread pool's, and so runs
// before that: measuring what the machine can do needs threads. A program that ends by an exception nobody caught gets
// its report from the terminate handler. Children of fork() have the handlers, too, but not the doctor.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>

#include "base/error.h"
#include "doctor/doctor.h"
#include "runtime/parallel.h"
#include "runtime/profile_hook.h"

namespace deft {

namespace {

constexpr int kFindingsExit = 4;

struct Autostart {
  std::string target;
  std::optional<Doctor> doctor;
  std::terminate_handler terminate = nullptr;
  pid_t process = getpid();
  bool exit_code = false;
};
Autostart* autostart = nullptr;  // never destroyed: threads may still run when the program ends

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value && *value && std::string(value) != "0";
}

std::string program_name() {
  char path[4096];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
  const std::string whole(path, n > 0 ? static_cast<size_t>(n) : 0);
  return whole.substr(whole.rfind('/') + 1);
}

void complain(const char* what) { std::fprintf(stderr, "deft doctor: %s\n", what); }

// Where another thread ends the program than the one it began on, times cannot be had.
DoctorResult result_of(Doctor& doctor) {
  try {
    return doctor.stop();
  } catch (const Error&) {
    return {.findings = doctor.findings(), .profile = {}, .memory = {}, .name = program_name()};
  }
}

// Whether there were findings.
bool finish() noexcept {
  if (!autostart || !autostart->doctor || autostart->process != getpid()) return false;
  try {
    set_default_profiling(false);
    const DoctorResult result = result_of(*autostart->doctor);
    autostart->doctor.reset();
    if (autostart->target == "-" || autostart->target == "1")
      std::fputs(result.to_text().c_str(), stderr);
    else
      result.write(autostart->target);
    return !result.findings.empty();
  } catch (const std::exception& e) {
    autostart->doctor.reset();
    complain(e.what());
    return false;
  }
}

void at_exit(int status, void*) {
  const bool found = finish();
  if (!found || !autostart->exit_code || status != 0) return;
  std::cout.flush();
  std::clog.flush();
  std::fflush(nullptr);
  _exit(kFindingsExit);
}

[[noreturn]] void at_terminate() {
  finish();
  if (autostart->terminate) autostart->terminate();
  std::abort();
}

void start(const char* target) {
  autostart = new Autostart;
  autostart->target = target;
  autostart->exit_code = is_set("DEFT_DOCTOR_EXIT");
  const char* profile = std::getenv("DEFT_DOCTOR_PROFILE");
  parallel_for(0, 2, 1, [](int64_t, int64_t) {});  // the pool registers its own handler first
  autostart->doctor.emplace(DoctorOptions{.profile = !profile || std::string(profile) != "0", .name = program_name()});
  set_default_profiling(true);
  on_exit(at_exit, nullptr);
  autostart->terminate = std::set_terminate(at_terminate);
}

}  // namespace

}  // namespace deft

extern "C" [[gnu::constructor, gnu::used, gnu::visibility("default")]] void deft_doctor_autostart() {
  const char* target = std::getenv("DEFT_DOCTOR");
  if (!target || !*target || std::string(target) == "0") return;
  try {
    deft::start(target);
  } catch (const std::exception& e) {
    deft::complain(e.what());
  }
}
