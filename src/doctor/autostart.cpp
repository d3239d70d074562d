// DEFT_DOCTOR=report.html ./program: the doctor of a whole program, which knows nothing of it.
//
// Note [Before main and after it]
// It starts when the library is loaded: the library has no objects that would still have to be initialised (isa_targets
// only reads the environment). It ends in a handler for exit() that is registered after the thread pool's, and so runs
// before that: measuring what the machine can do needs threads. A program that ends by an uncaught exception gets
// its report from the terminate handler. Children of fork() have the handlers, too, but not the doctor.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "doctor/doctor_hooks.h"
#include "doctor/linter.h"
#include "profile/collector.h"
#include "runtime/parallel.h"
#include "runtime/profile_hook.h"

namespace deft {

namespace {

constexpr int kFindingsExit = 4, kNotWrittenExit = 3;

// Note [A program with a doctor of its own]
// There is one observer at a time. Where the program makes a Doctor, the one here ends, and begins again when that one
// is done; what both found is in the report. Where it makes a ProfileSession, the one here goes on without times and
// memory.
struct Autostart {
  std::recursive_mutex mutex;
  std::string target;
  std::optional<Doctor> doctor;
  bool profile = true;
  std::vector<DoctorResult> parts;  // of the program, those that are over
  std::terminate_handler terminate = nullptr;
  pid_t process = getpid();
  bool exit_code = false, finished = false;
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

bool is_on() { return autostart && autostart->process == getpid(); }
bool to_stderr(const std::string& target) { return target == "-" || target == "1"; }

// The doctor is told not to come back while it is stopped here.
void end_part() {
  if (!autostart->doctor) return;
  doctor::set_doctor_hooks({});
  try {
    autostart->parts.push_back(result_of(*autostart->doctor));
  } catch (const std::exception& e) {
    complain(e.what());
  }
  autostart->doctor.reset();
}

void stop_for_another();
void give_way_to_a_profile();
void start_again(const DoctorResult& found);

void begin_part(bool profile) {
  try {
    autostart->doctor.emplace(DoctorOptions{.profile = profile, .name = program_name()});
  } catch (const std::exception& e) {
    complain(e.what());
  }
  doctor::set_doctor_hooks({.give_way = stop_for_another, .come_back = start_again});
}

void stop_for_another() {
  if (!is_on()) return;
  std::lock_guard lock(autostart->mutex);
  end_part();
  doctor::set_doctor_hooks({.give_way = nullptr, .come_back = start_again});
}
void give_way_to_a_profile() {
  if (!is_on()) return;
  std::lock_guard lock(autostart->mutex);
  if (!autostart->doctor || !autostart->profile) return;
  autostart->profile = false;
  end_part();
  begin_part(false);
}
void start_again(const DoctorResult& found) {
  if (!is_on()) return;
  std::lock_guard lock(autostart->mutex);
  if (autostart->doctor || autostart->finished) return;
  autostart->parts.push_back(found);
  begin_part(autostart->profile);
}

// All parts together; times and memory of the longest.
DoctorResult whole() {
  DoctorResult all{.findings = {}, .profile = {}, .memory = {}, .name = program_name()};
  for (DoctorResult& part : autostart->parts) {
    all.findings.insert(all.findings.end(), part.findings.begin(), part.findings.end());
    if (!part.profile || (all.profile && all.profile->wall_seconds > part.profile->wall_seconds)) continue;
    all.profile = std::move(part.profile);
    all.memory = std::move(part.memory);
  }
  all.findings = doctor::merged(std::move(all.findings));
  return all;
}

// 0, or the exit code that a program gets which would exit with 0.
int finish() noexcept {
  if (!is_on() || autostart->finished) return 0;
  autostart->finished = true;
  try {
    std::lock_guard lock(autostart->mutex);
    set_default_profiling(false);
    profile::set_session_gives_way(nullptr);
    end_part();
    const DoctorResult result = whole();
    if (to_stderr(autostart->target))
      std::fputs(result.to_text().c_str(), stderr);
    else
      result.write(autostart->target);
    return autostart->exit_code && !result.findings.empty() ? kFindingsExit : 0;
  } catch (const std::exception& e) {
    complain(e.what());
    return kNotWrittenExit;
  }
}

void at_exit(int status, void*) {
  const int code = finish();
  if (code == 0 || status != 0) return;
  std::cout.flush();
  std::clog.flush();
  std::fflush(nullptr);
  _exit(code);
}

[[noreturn]] void at_terminate() {
  finish();
  if (autostart->terminate) autostart->terminate();
  std::abort();
}

void start(const char* target) {
  if (!to_stderr(target)) doctor::check_report_path(target);
  autostart = new Autostart;
  autostart->target = target;
  autostart->exit_code = is_set("DEFT_DOCTOR_EXIT");
  const char* profile = std::getenv("DEFT_DOCTOR_PROFILE");
  parallel_for(0, 2, 1, [](int64_t, int64_t) {});  // the pool registers its own handler first
  autostart->profile = !profile || std::string(profile) != "0";
  begin_part(autostart->profile);
  profile::set_session_gives_way(give_way_to_a_profile);
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
  } catch (const std::exception& e) {  // before main: nothing is lost but the wait
    deft::complain(e.what());
    _exit(deft::kNotWrittenExit);
  }
}
