// The doctor inside a program: looks for mistakes, and where time and memory go, while it lives.
//
//   Doctor doctor;
//   train();
//   DoctorResult r = doctor.stop();
//   std::cerr << r.to_text();
//   r.write("report.html");
//
// Programs need no change for it: DEFT_DOCTOR=report.html ./program does the same from start to end. DEFT_DOCTOR=-
// writes the text to standard error, DEFT_DOCTOR_PROFILE=0 leaves times and memory out, DEFT_DOCTOR_EXIT=1 makes a
// program that would exit with 0 exit with 4 if there are findings. Programs that link the static library need
// -Wl,-u,deft_doctor_autostart for that.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "doctor/finding.h"
#include "profile/memory_timeline.h"
#include "profile/profile.h"

namespace deft {

struct DoctorOptions {
  std::vector<std::string> off = {};  // ids of rules: {"D014"}
  bool profile = true;                // times and memory, too; only one profile can run at a time
  std::string name = {};              // of what is examined, for the report
};

struct DoctorResult {
  std::vector<Finding> findings;  // the worst first
  std::optional<profile::Profile> profile;
  std::optional<profile::MemoryReport> memory;
  std::string name;

  std::string to_text() const;   // for a terminal
  std::string to_json() const;   // the whole report
  std::string to_html() const;   // the same as a page
  std::string to_sarif() const;  // the findings only
  // One of these, by the path's ending: .html, .json, .sarif or .txt. SaveError if it cannot be written.
  void write(const std::string& path) const;
};

// Watches the thread that makes it and everything this starts. One at a time.
class Doctor {
 public:
  explicit Doctor(const DoctorOptions& options = {});  // ValueError if another one, or a profile, runs
  ~Doctor();
  Doctor(const Doctor&) = delete;
  Doctor& operator=(const Doctor&) = delete;

  std::vector<Finding> findings() const;  // so far
  DoctorResult stop();                    // once, on the thread that made it

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace deft
