// The doctor inside a program, and around one that knows nothing of it.
#include "doctor/doctor.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <tuple>

#include "base/error.h"
#include "core/grad_mode.h"
#include "doctor/rules.h"
#include "nn/nn.h"
#include "ops/all_ops.h"
#include "optim/sgd.h"
#include "profile/collector.h"

extern "C" void deft_doctor_autostart();

namespace deft {
namespace {

using Json = nlohmann::ordered_json;

uint32_t train(bool leak, int steps = 20) {
  nn::Linear model(8, 4);
  optim::SGD sgd(model.parameters(), {.lr = 0.01});
  Tensor total = zeros({});
  uint32_t line = 0;
  for (int i = 0; i < steps; ++i) {
    sgd.zero_grad();
    Tensor loss = model(randn({16, 8})).square().mean();
    loss.backward();
    sgd.step();
    line = Site::current().line() + 1;
    total += leak ? loss : loss.detach();
  }
  return line;
}

// Removed at the end.
struct Folder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / ("deft_doctor_" + std::to_string(getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};
std::string folder() {
  static const Folder f;
  return f.path.string();
}
std::string read(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Doctor, FindsAndProfilesInOneRun) {
  Doctor doctor({.name = "a test"});
  const uint32_t line = train(true);
  EXPECT_EQ(doctor.findings().size(), 1u);
  const DoctorResult r = doctor.stop();
  ASSERT_EQ(r.findings.size(), 1u);
  EXPECT_EQ(r.findings[0].id, "D003");
  EXPECT_EQ(r.findings[0].line, line);
  ASSERT_TRUE(r.profile && r.memory);
  EXPECT_GT(r.profile->wall_seconds, 0);
  EXPECT_FALSE(r.profile->ops.empty());
  EXPECT_GT(r.memory->host.peak.use.total, 0);
  EXPECT_NE(r.to_text().find("D003"), std::string::npos);

  const Json report = Json::parse(r.to_json());
  EXPECT_EQ(report["kind"], "deft doctor");
  EXPECT_EQ(report["workload"]["name"], "a test");
  const Json& f = report["findings"][0];
  EXPECT_EQ(f["id"], "D003");
  EXPECT_EQ(f["name"], "graph-kept-across-steps");
  EXPECT_EQ(f["severity"], "error");
  EXPECT_EQ(f["line"], line);
  EXPECT_GT(f["figures"]["mb_per_step"].get<double>(), 0);
  EXPECT_TRUE(report["profile"]["ops"].is_array());
  EXPECT_TRUE(report["memory"].is_object());
}

TEST(Doctor, WritesWhatTheNameSays) {
  Doctor doctor({.profile = false});
  train(true);
  const DoctorResult r = doctor.stop();
  EXPECT_FALSE(r.profile || r.memory);
  const std::string base = folder() + "/report";
  for (const char* ending : {".html", ".json", ".sarif", ".txt"}) r.write(base + ending);
  EXPECT_NE(read(base + ".html").find("<html"), std::string::npos);
  EXPECT_EQ(Json::parse(read(base + ".json"))["findings"].size(), 1u);
  EXPECT_EQ(Json::parse(read(base + ".sarif"))["version"], "2.1.0");
  EXPECT_NE(read(base + ".txt").find("D003"), std::string::npos);
  EXPECT_THROW(r.write(base + ".docx"), ValueError);
  EXPECT_THROW(r.write(folder() + "/none/report.html"), SaveError);
}

TEST(Doctor, OneAtATimeAndNothingIsLeftBehind) {
  {
    Doctor doctor;
    EXPECT_THROW(Doctor second, ValueError);
    train(false, 2);
  }
  EXPECT_FALSE(context().bits & kProfile);
  EXPECT_EQ(detail::active_observer(), nullptr);
  {
    profile::ProfileSession session;
    EXPECT_THROW(Doctor second, ValueError);
    Doctor watches({.profile = false});
    train(true);
    EXPECT_EQ(watches.stop().findings.size(), 1u);
  }
  Doctor doctor({.off = {"D003"}});
  train(true);
  EXPECT_TRUE(doctor.stop().findings.empty());
  EXPECT_THROW(doctor.stop(), ValueError);
}

TEST(Doctor, WatchesThreadsThatTheProgramStartsLater) {
  Doctor doctor({.profile = false});
  set_default_profiling(true);
  std::thread other([] { train(true); });
  other.join();
  set_default_profiling(false);
  EXPECT_EQ(doctor.stop().findings.size(), 1u);
}

TEST(Rules, TheTableIsWhole) {
  ASSERT_EQ(doctor::all_rules().size(), 26u);
  int number = 1;
  for (const doctor::RuleInfo& rule : doctor::all_rules()) {
    const std::string digits = std::to_string(number++);
    EXPECT_EQ(rule.id, "D" + std::string(3 - digits.size(), '0') + digits);
    for (const char* text : {rule.name, rule.title, rule.story, rule.fix, rule.example}) EXPECT_GT(strlen(text), 4u);
    EXPECT_NE(std::string(rule.example).find("// right"), std::string::npos) << rule.id;
    EXPECT_EQ(doctor::find_rule(rule.id), &rule);
    EXPECT_EQ(doctor::find_rule(rule.name), &rule);
  }
  EXPECT_EQ(doctor::find_rule("D999"), nullptr);
}

// --- Programs: this file's DISABLED_ tests, run in a process of their own

struct Outcome {
  int status;
  std::string errors;
  int exit_code() const { return WIFEXITED(status) ? WEXITSTATUS(status) : -1; }
};
Outcome run_program(const std::string& name, const std::string& environment) {
  EXPECT_NE(&deft_doctor_autostart, nullptr);  // and so it is linked
  const std::string errors = folder() + "/stderr";
  const std::string command =
      environment + " " + std::filesystem::read_symlink("/proc/self/exe").string() +
      " --gtest_also_run_disabled_tests --gtest_catch_exceptions=0 --gtest_filter=Program.DISABLED_" + name +
      " >/dev/null 2>" + errors;
  const int status = std::system(command.c_str());
  return {status, read(errors)};
}

TEST(Program, DISABLED_Leaks) { train(true); }
TEST(Program, DISABLED_LeaksOnAThread) {
  std::thread([] { train(true); }).join();
}
TEST(Program, DISABLED_IsClean) { train(false); }
TEST(Program, DISABLED_Throws) {
  train(true);
  ones({2, 3}) + ones({4, 5});
}
TEST(Program, DISABLED_ForksAndExitsElsewhere) {
  train(true);
  if (fork() == 0) exit(0);
  int status;
  wait(&status);
  std::thread([] { exit(0); }).join();
}

// What it looks for is found in each of three parts: before its own doctor, with it, and after it.
TEST(Program, DISABLED_HasADoctorOfItsOwn) {
  train(true);
  {
    Doctor own;
    train(true);
    EXPECT_EQ(own.stop().findings.size(), 1u);
    EXPECT_EQ(Doctor().findings().size(), 0u);  // never stopped
  }
  train(true);
}
TEST(Program, DISABLED_Aborts) { std::abort(); }
TEST(Program, DISABLED_RemovesTheFolder) { std::filesystem::remove_all(std::getenv("GONE")); }
TEST(Program, DISABLED_HasADoctorOnly) {
  Doctor own;
  train(true);
  if (own.stop().findings.size() != 1) std::abort();
}
TEST(Program, DISABLED_HasAProfileOfItsOwn) {
  profile::ProfileSession session;
  train(true);
  if (session.stop().ops.empty()) std::abort();
  Doctor own;
  own.stop();
}

TEST(Autostart, ReportsAtExit) {
  const std::string path = folder() + "/program.json";
  const Outcome run = run_program("Leaks", "DEFT_DOCTOR=" + path);
  EXPECT_EQ(run.exit_code(), 0) << run.errors;
  const Json report = Json::parse(read(path));
  ASSERT_EQ(report["findings"].size(), 1u);
  EXPECT_EQ(report["findings"][0]["id"], "D003");
  EXPECT_GT(report["profile"]["wall_s"].get<double>(), 0);
  EXPECT_TRUE(report["workload"]["name"].is_string());
  EXPECT_EQ(run.errors, "");
}
TEST(Autostart, WritesTextAndExitCodesOnlyWhereAsked) {
  Outcome run = run_program("LeaksOnAThread", "DEFT_DOCTOR=- DEFT_DOCTOR_PROFILE=0 DEFT_DOCTOR_EXIT=1");
  EXPECT_EQ(run.exit_code(), 4);
  EXPECT_NE(run.errors.find("D003"), std::string::npos) << run.errors;
  run = run_program("IsClean", "DEFT_DOCTOR=- DEFT_DOCTOR_PROFILE=0 DEFT_DOCTOR_EXIT=1");
  EXPECT_EQ(run.exit_code(), 0) << run.errors;
  EXPECT_EQ(run.errors.find("D0"), std::string::npos) << run.errors;
  run = run_program("Leaks", "DEFT_DOCTOR=");
  EXPECT_EQ(run.exit_code(), 0);
  EXPECT_EQ(run.errors, "");
}
TEST(Autostart, ReportsOfProgramsThatFail) {
  const std::string path = folder() + "/failed.sarif";
  const Outcome run = run_program("Throws", "DEFT_DOCTOR=" + path);
  EXPECT_NE(run.status, 0);
  EXPECT_EQ(Json::parse(read(path))["runs"][0]["results"][0]["ruleId"], "D003");
  EXPECT_NE(run.errors.find("ShapeError"), std::string::npos) << run.errors;  // as without the doctor
}
TEST(Autostart, OneProcessReportsFromAnyThread) {
  const std::string path = folder() + "/forked.json";
  const Outcome run = run_program("ForksAndExitsElsewhere", "DEFT_DOCTOR=" + path);
  EXPECT_EQ(run.exit_code(), 0) << run.errors;
  EXPECT_EQ(Json::parse(read(path))["findings"].size(), 1u);
}
TEST(Autostart, OneLineWhereTheFileCannotBeWritten) {
  const Outcome run = run_program("Leaks", "DEFT_DOCTOR=" + folder() + "/none/report.html");
  EXPECT_EQ(run.exit_code(), 3);
  EXPECT_EQ(run.errors.find("deft doctor: "), 0u) << run.errors;
  EXPECT_EQ(std::count(run.errors.begin(), run.errors.end(), '\n'), 1) << run.errors;
}
// Before main: abort() is not reached.
TEST(Autostart, AFileThatCannotBeWrittenIsNoticedBeforeTheWork) {
  for (const std::string& path : {folder() + "/none/report.html", folder() + "/report.docx", folder()}) {
    const Outcome run = run_program("Aborts", "DEFT_DOCTOR=" + path);
    EXPECT_EQ(run.exit_code(), 3) << run.errors;
    EXPECT_NE(run.errors.find(path), std::string::npos) << run.errors;
  }
}
TEST(Autostart, AFileThatCannotBeWrittenInTheEndIsAnExitCode) {
  const std::string gone = folder() + "/gone";
  std::filesystem::create_directory(gone);
  const Outcome run = run_program("RemovesTheFolder", "GONE=" + gone + " DEFT_DOCTOR=" + gone + "/report.json");
  EXPECT_EQ(run.exit_code(), 3) << run.errors;
}
TEST(Autostart, MakesRoomForTheProgramsOwn) {
  const std::string path = folder() + "/own.json", quick = "DEFT_DOCTOR_PROFILE=0 ";
  const std::tuple<const char*, std::string, int> programs[] = {{"HasADoctorOfItsOwn", "", 3},
                                                                {"HasADoctorOfItsOwn", quick, 3},
                                                                {"HasADoctorOnly", quick, 1},
                                                                {"HasAProfileOfItsOwn", "", 1}};
  for (const auto& [program, environment, count] : programs) {
    const Outcome run = run_program(program, environment + "DEFT_DOCTOR=" + path);
    ASSERT_EQ(run.exit_code(), 0) << program << ": " << run.errors;
    const Json report = Json::parse(read(path));
    ASSERT_EQ(report["findings"].size(), 1u) << program;
    EXPECT_EQ(report["findings"][0]["id"], "D003");
    EXPECT_GE(report["findings"][0]["count"].get<int>(), count) << program;
  }
}

}  // namespace
}  // namespace deft
