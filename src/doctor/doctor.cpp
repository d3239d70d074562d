#include "doctor/doctor.h"

#include <fmt/format.h>

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "base/check.h"
#include "core/observer.h"
#include "doctor/doctor_hooks.h"
#include "doctor/findings_json.h"
#include "doctor/linter.h"
#include "doctor/profile_json.h"
#include "doctor/report_html.h"
#include "doctor/report_text.h"
#include "doctor/sarif.h"
#include "io/atomic_file.h"
#include "profile/bottleneck.h"
#include "profile/collector.h"
#include "runtime/backend.h"
#include "runtime/config.h"
#include "runtime/cpu_info.h"
#include "runtime/parallel.h"

namespace deft {

namespace {

using doctor::Json;

std::atomic<bool> one_runs{false};
std::atomic<void (*)()> give_way{nullptr};
std::atomic<void (*)(const DoctorResult&)> come_back{nullptr};

// Whether no other one runs; the doctor of DEFT_DOCTOR makes room.
bool take() {
  if (!one_runs.exchange(true)) return true;
  if (void (*make_room)() = give_way.load()) make_room();
  return !one_runs.exchange(true);
}

enum class Form : uint8_t { html, json, sarif, text };
Form form_of(std::string_view path) {
  for (const auto& [ending, form] : {std::pair{".html", Form::html}, std::pair{".json", Form::json},
                                     std::pair{".sarif", Form::sarif}, std::pair{".txt", Form::text}})
    if (path.ends_with(ending)) return form;
  DEFT_FAIL(ValueError, "Doctor: the name '{}' does not say what to write: end it with .html, .json, .sarif or .txt",
            path);
}

Json report_of(const DoctorResult& r) {
  Json report = {{"schema", 1}, {"kind", "deft doctor"}, {"version", kVersion}};
  report["machine"] = {{"cpu", cpu_info().model}, {"threads", num_threads()}, {"gpu", nullptr}};
  report["workload"] = {{"name", r.name.empty() ? Json() : Json(r.name)}};
  if (r.profile) {
    profile::Profile judged = *r.profile;
    profile::judge(judged);
    report["bottleneck"] = doctor::bottleneck_json(judged);
    report["profile"] = doctor::profile_json(judged, profile::roofs_of(judged));
  }
  if (r.memory) report["memory"] = doctor::memory_json(*r.memory);
  report["findings"] = doctor::findings_json(r.findings);
  return report;
}

std::string dumped(const Json& report) { return report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace

// --- What came of it ---------------------------------------------------------------------------------------------

std::string DoctorResult::to_text() const { return doctor::report_text(report_of(*this), false); }
std::string DoctorResult::to_json() const { return dumped(report_of(*this)); }
std::string DoctorResult::to_html() const { return doctor::report_html(report_of(*this)); }
std::string DoctorResult::to_sarif() const { return doctor::sarif(findings); }

void DoctorResult::write(const std::string& path) const {
  const Form form = form_of(path);
  const std::string text = form == Form::html    ? to_html()
                           : form == Form::json  ? to_json()
                           : form == Form::sarif ? to_sarif()
                                                 : to_text();
  io::AtomicFile file(path, text.size());
  file.write(text.data(), text.size());
  file.commit();
}

namespace doctor {

void check_report_path(const std::string& path) {
  namespace fs = std::filesystem;
  form_of(path);
  std::error_code none;
  const fs::path parent = fs::path(path).parent_path(), folder = parent.empty() ? "." : parent;
  DEFT_CHECK(!fs::is_directory(path, none), SaveError, "{}: this is a folder; name a file", path);
  DEFT_CHECK(fs::is_directory(folder, none), SaveError, "{}: there is no folder {}; make it first", path,
             folder.string());
  DEFT_CHECK(access(folder.c_str(), W_OK | X_OK) == 0, SaveError, "{}: files cannot be made in {} ({})", path,
             folder.string(), std::strerror(errno));
}

void set_doctor_hooks(const DoctorHooks& hooks) {
  give_way = hooks.give_way;
  come_back = hooks.come_back;
}

}  // namespace doctor

// --- While it observes -------------------------------------------------------------------------------------------

struct Doctor::Impl {
  DoctorOptions options;
  doctor::Linter linter;
  std::optional<profile::MemoryRecorder> memory;
  std::optional<profile::ProfileSession> session;
  std::optional<ProfileScope> watched;  // without a session

  explicit Impl(const DoctorOptions& o) : options(o), linter({.off = o.off}) {
    DEFT_CHECK(take(), ValueError, "Doctor: another one runs; stop() it first");
    try {
      begin();
    } catch (...) {
      end();
      throw;
    }
  }
  ~Impl() { end(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void begin() {
    if (!options.profile) {
      before = detail::active_observer();
      set_observer(&linter);
      watched.emplace("doctor");
      return;
    }
    memory.emplace();
    session.emplace(profile::ProfileOptions{.trace = false, .next = &linter});
  }
  void end() {
    if (watched) set_observer(before);
    watched.reset();
    session.reset();
    memory.reset();
    one_runs = false;
  }
  Observer* before = nullptr;
};

namespace {

void tell_of(const DoctorResult& result) {
  if (void (*back)(const DoctorResult&) = come_back.load()) back(result);
}

}  // namespace

Doctor::Doctor(const DoctorOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Doctor::~Doctor() {
  if (!impl_) return;
  try {
    DoctorResult found{.findings = impl_->linter.findings(), .profile = {}, .memory = {}, .name = {}};
    impl_.reset();
    tell_of(found);
  } catch (const std::exception&) {  // no memory for findings
  }
}

std::vector<Finding> Doctor::findings() const {
  DEFT_CHECK(impl_, ValueError, "Doctor: it was stopped already; use what stop() returned");
  return impl_->linter.findings();
}

DoctorResult Doctor::stop() {
  DEFT_CHECK(impl_, ValueError, "Doctor: it was stopped already");
  DoctorResult result;
  if (impl_->session) result.profile = impl_->session->stop();
  if (impl_->memory) result.memory = impl_->memory->report();
  result.name = impl_->options.name;
  impl_->end();
  result.findings = impl_->linter.findings();
  impl_.reset();
  tell_of(result);
  return result;
}

}  // namespace deft
