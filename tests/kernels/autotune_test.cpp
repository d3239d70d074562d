#include "kernels/cpu/autotune.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>
#include <thread>

#include "runtime/context.h"
#include "runtime/cpu_isa.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace {

namespace fs = std::filesystem;

int64_t fake_now = 0;
int64_t fake_clock(bool) { return fake_now; }

class Autotuning : public testing::Test {
 protected:
  Autotuning() : mode_(autotune()), threads_(num_threads()) {
    std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = (fs::temp_directory_path() / ("deft_tune_" + std::to_string(getpid()) + "_" + name)).string();
    file_ = folder_ + "/inner/autotune.txt";
    set_autotune(Autotune::on);
  }
  ~Autotuning() override {
    set_autotune(mode_);
    set_num_threads(threads_);
    fs::remove_all(folder_);
  }
  static Tuner::Options in_memory() { return {"", "machine", fake_clock}; }
  Tuner::Options on_disk(const char* machine = "machine") const { return {file_, machine, fake_clock}; }
  static TuneKey key(int64_t n) { return {TunedOp::gemm, DType::f32, 0, {n, 64, 64}}; }

  // One call of an op whose candidates take the given nanoseconds; returns the one that ran.
  static int call(Tuner& t, const TuneKey& k, const std::vector<int64_t>& costs) {
    TunedRun run(k, static_cast<int64_t>(costs.size()), TunedRun::kLeastWork, &t);
    fake_now += costs[static_cast<size_t>(run.choice())];
    return run.choice();
  }
  static std::vector<int> calls(Tuner& t, const TuneKey& k, const std::vector<int64_t>& costs, int count) {
    std::vector<int> ran;
    for (int i = 0; i < count; ++i) ran.push_back(call(t, k, costs));
    return ran;
  }
  std::string text() const {
    std::ifstream in(file_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void put(const std::string& contents) const {
    fs::create_directories(fs::path(file_).parent_path());
    std::ofstream(file_, std::ios::binary) << contents;
  }
  // What a new tuner says about the file, and what it finds for key(1).
  std::pair<std::string, int> notes_of_loading(const char* machine = "machine") const {
    testing::internal::CaptureStderr();
    Tuner t(on_disk(machine));
    return {testing::internal::GetCapturedStderr(), t.found(key(1))};
  }

  std::string folder_, file_;

 private:
  Autotune mode_;
  int threads_;
};

TEST_F(Autotuning, SizesAreClassesOfAQuarterOctave) {
  for (int i = 0; i < 64; ++i) EXPECT_EQ(size_class(i), i);
  EXPECT_EQ(size_class(79), size_class(64));
  EXPECT_EQ(size_class(80), size_class(64) + 1);
  EXPECT_EQ(size_class(128), size_class(64) + 4);
  EXPECT_EQ(size_class(1023), size_class(1024) - 1);
  EXPECT_LT(size_class(INT64_MAX), 512);
  EXPECT_EQ(size_class(-5), 0);
}

TEST_F(Autotuning, KeysDifferInEverythingThatDecidesTheSpeed) {
  set_num_threads(2);
  const TuneKey base(TunedOp::gemm, DType::f32, 3, {100, 200, 300});
  EXPECT_EQ(base, TuneKey(TunedOp::gemm, DType::f32, 3, {98, 194, 290}));  // the same classes
  EXPECT_EQ(base.threads(), 2);
  std::set<std::pair<uint64_t, uint64_t>> seen;
  auto add = [&](const TuneKey& k) { EXPECT_TRUE(seen.insert({k.shape, k.kind}).second); };
  add(base);
  add({TunedOp::conv, DType::f32, 3, {100, 200, 300}});
  add({TunedOp::gemm, DType::bf16, 3, {100, 200, 300}});
  add({TunedOp::gemm, DType::f32, 2, {100, 200, 300}});
  add({TunedOp::gemm, DType::f32, 3, {200, 100, 300}});
  add({TunedOp::gemm, DType::f32, 3, {100, 200, 400}});
  set_num_threads(3);
  add({TunedOp::gemm, DType::f32, 3, {100, 200, 300}});
  if (isa_level() > 0) {
    IsaGuard lower(isa_choice().levels[0].name);
    add({TunedOp::gemm, DType::f32, 3, {100, 200, 300}});
  }
}

TEST_F(Autotuning, EachCallTriesTheNextCandidateAndThenTheFastestStays) {
  Tuner t(in_memory());
  // The first run of a shape does not count.
  EXPECT_EQ(calls(t, key(1), {500, 300, 400}, 10), (std::vector<int>{0, 0, 1, 2, 0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(t.found(key(1)), 1);
  EXPECT_EQ(calls(t, key(1), {500, 300, 400}, 5), (std::vector<int>{1, 1, 1, 1, 1}));
  EXPECT_EQ(t.found(key(2)), -1);
}

TEST_F(Autotuning, TheBestOfThreeRunsCounts) {
  Tuner t(in_memory());
  call(t, key(1), {1, 1});
  calls(t, key(1), {500, 9000}, 2);  // disturbed
  calls(t, key(1), {500, 300}, 2);
  calls(t, key(1), {500, 9000}, 2);
  EXPECT_EQ(t.found(key(1)), 1);
}

TEST_F(Autotuning, TheFirstCandidateStaysUnlessAnotherIsClearlyFaster) {
  Tuner t(in_memory());
  calls(t, key(1), {1000, 990}, 10);
  EXPECT_EQ(t.found(key(1)), 0);
  calls(t, key(2), {1000, 970}, 10);
  EXPECT_EQ(t.found(key(2)), 1);
}

TEST_F(Autotuning, LongRunsAreTriedOnceAndMustGainMore) {
  Tuner t(in_memory());
  calls(t, key(1), {40'000'000, 30'000'000, 20'000'000}, 4);
  EXPECT_EQ(t.found(key(1)), 2);
  calls(t, key(2), {40'000'000, 36'000'000, 37'000'000}, 4);
  EXPECT_EQ(t.found(key(2)), 0);
}

TEST_F(Autotuning, ModesDecideHowManyAreTried) {
  Tuner t(in_memory());
  const std::vector<int64_t> costs = {9, 8, 7, 6, 5, 4};
  set_autotune(Autotune::off);
  EXPECT_EQ(calls(t, key(1), costs, 30), std::vector<int>(30, 0));
  EXPECT_EQ(t.keys(), 0u);
  set_autotune(Autotune::on);
  calls(t, key(1), costs, 20);
  EXPECT_EQ(t.found(key(1)), Tuner::kShortList - 1);
  set_autotune(Autotune::exhaustive);  // tries again, with all of them
  calls(t, key(1), costs, 20);
  EXPECT_EQ(t.found(key(1)), 5);
  set_autotune(Autotune::on);  // and that stays known
  EXPECT_EQ(call(t, key(1), costs), 5);
}

TEST_F(Autotuning, DeterministicModeRunsTheFirstCandidate) {
  Tuner t(in_memory());
  calls(t, key(1), {500, 300}, 10);
  ASSERT_EQ(call(t, key(1), {500, 300}), 1);
  set_deterministic(true);
  EXPECT_TRUE(deterministic());
  EXPECT_EQ(call(t, key(1), {500, 300}), 0);
  EXPECT_EQ(calls(t, key(2), {500, 300}, 10), std::vector<int>(10, 0));
  set_deterministic(false);
  EXPECT_FALSE(deterministic());
  EXPECT_EQ(call(t, key(1), {500, 300}), 1);
  EXPECT_EQ(t.found(key(2)), -1);
}

TEST_F(Autotuning, SmallWorkAndSingleCandidatesAreNotTuned) {
  Tuner t(in_memory());
  for (int i = 0; i < 20; ++i) {
    TunedRun small(key(1), 3, TunedRun::kLeastWork - 1, &t);
    EXPECT_EQ(small.choice(), 0);
    TunedRun single(key(2), 1, TunedRun::kLeastWork, &t);
    EXPECT_EQ(single.choice(), 0);
  }
  EXPECT_EQ(t.keys(), 0u);
}

TEST_F(Autotuning, ARunThatThrowsSaysNothing) {
  Tuner t(in_memory());
  for (int i = 0; i < 10; ++i) {
    try {
      TunedRun run(key(1), 2, TunedRun::kLeastWork, &t);
      throw std::runtime_error("failed");
    } catch (const std::runtime_error&) {
    }
  }
  EXPECT_EQ(t.found(key(1)), -1);
  EXPECT_EQ(calls(t, key(1), {500, 300}, 7), (std::vector<int>{0, 0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(t.found(key(1)), 1);
}

TEST_F(Autotuning, SeveralThreadsTuneTogether) {
  Tuner t({"", "machine", [](bool) { return int64_t{0}; }});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&t, i] {
      for (int n = 0; n < 2000; ++n) {
        const TuneKey k = key(n % 40 + i % 2);
        const Tuner::Pick p = t.pick(k, 3, Autotune::on);
        EXPECT_TRUE(p.choice >= 0 && p.choice < 3);
        if (p.timed) t.finish(k, p.choice, p.choice == 2 ? 10 : 20);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int n = 0; n < 41; ++n) EXPECT_EQ(t.found(key(n)), 2) << n;
}

TEST_F(Autotuning, MemoryIsBounded) {
  Tuner t(in_memory());
  for (uint64_t i = 0; i < Tuner::kMostKeys + 500; ++i) {
    const TuneKey k(i * 977, 1);
    const Tuner::Pick p = t.pick(k, 3, Autotune::on);
    EXPECT_EQ(p.timed, i < Tuner::kMostKeys);
    EXPECT_EQ(p.choice, 0);
  }
  EXPECT_EQ(t.keys(), Tuner::kMostKeys);
}

TEST_F(Autotuning, ResultsAreReadBack) {
  {
    Tuner t(on_disk());
    calls(t, key(1), {500, 300}, 10);
    calls(t, key(2), {300, 500}, 10);
    calls(t, key(3), {300, 500}, 3);  // not finished
  }
  EXPECT_EQ(notes_of_loading(), (std::pair<std::string, int>("", 1)));
  Tuner t(on_disk());
  EXPECT_EQ(t.found(key(2)), 0);
  EXPECT_EQ(t.found(key(3)), -1);
  EXPECT_EQ(call(t, key(1), {500, 300, 400, 200}), 0);  // more candidates now: tried anew
  const std::string before = text();
  t.save();
  EXPECT_EQ(text(), before);  // nothing new
}

TEST_F(Autotuning, MachinesShareAFile) {
  for (const char* machine : {"machine", "deft 9, Other CPU"}) {
    Tuner t(on_disk(machine));
    EXPECT_EQ(t.found(key(1)), -1);
    calls(t, key(1), machine[0] == 'm' ? std::vector<int64_t>{5, 3} : std::vector<int64_t>{3, 5}, 10);
  }
  EXPECT_EQ(notes_of_loading("machine").second, 1);
  EXPECT_EQ(notes_of_loading("deft 9, Other CPU").second, 0);
}

TEST_F(Autotuning, DamagedAndForeignFilesAreIgnoredWithANote) {
  {
    Tuner t(on_disk());
    calls(t, key(1), {500, 300}, 10);
  }
  const std::string good = text();
  std::string flipped = good, other_version = good;
  flipped[good.size() - 3] ^= 1;
  other_version[other_version.find(" 1 ") + 1] = '2';
  for (const std::string& bad : {flipped, other_version, good.substr(0, good.size() - 5), good.substr(0, 20),
                                 good + "machine\t1 1 0 2\n", std::string()}) {
    put(bad);
    EXPECT_EQ(notes_of_loading(),
              (std::pair<std::string, int>("deft: " + file_ + " is damaged or of another version; ignored\n", -1)));
  }
  {  // and is replaced
    testing::internal::CaptureStderr();
    Tuner t(on_disk());
    calls(t, key(1), {500, 300}, 10);
    testing::internal::GetCapturedStderr();
  }
  EXPECT_EQ(text(), good);

  for (const std::string& foreign : {std::string("#!/bin/sh\n"), std::string((1 << 20) + 1, 'x')}) {
    put(foreign);
    testing::internal::CaptureStderr();
    {
      Tuner t(on_disk());
      calls(t, key(1), {500, 300}, 10);
    }
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "deft: " + file_ + " is not a file of autotuning results; ignored\n");
    EXPECT_EQ(text(), foreign);  // not ours to overwrite
  }
}

TEST_F(Autotuning, LinesThatMakeNoSenseAreLeftOut) {
  {
    Tuner t(on_disk("machine\t1 1 7 2\nmachine\t2 2 0 99\nmachine\nmachine\tx\nmachine\t0 0 0 2\nother"));
    calls(t, key(1), {500, 300}, 10);
  }
  Tuner t(on_disk());
  EXPECT_EQ(t.keys(), 0u);
  EXPECT_EQ(notes_of_loading("other").second, 1);
}

TEST_F(Autotuning, TheFileIsBounded) {
  for (int round = 0; round < 3; ++round) {
    Tuner t(on_disk(round == 0 ? "old" : round == 1 ? "middle" : "machine"));
    for (uint64_t i = 0; i < Tuner::kMostKeys; ++i) {
      while (true) {
        const TuneKey k(i, 1);
        const Tuner::Pick p = t.pick(k, 2, Autotune::on);
        if (!p.timed) break;
        t.finish(k, p.choice, 100 - p.choice * 50);
      }
    }
  }
  const std::string all = text();
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), static_cast<int64_t>(Tuner::kMostLines) + 1);
  EXPECT_LT(all.size(), size_t{1} << 20);
  EXPECT_EQ(all.find("old"), all.npos);  // the oldest go first
  Tuner t(on_disk());
  EXPECT_EQ(t.keys(), Tuner::kMostKeys / 2);  // room for new ones
  EXPECT_TRUE(t.pick(TuneKey(1 << 20, 1), 2, Autotune::on).timed);
}

TEST_F(Autotuning, AFolderThatCannotBeWrittenIsNoError) {
  fs::create_directories(folder_);
  std::ofstream(folder_ + "/inner") << "a file where the folder should be";
  testing::internal::CaptureStderr();
  {
    Tuner t(on_disk());
    calls(t, key(1), {500, 300}, 10);
    EXPECT_EQ(t.found(key(1)), 1);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(Autotuning, WritersInSeveralProcessesNeverLeaveADamagedFile) {
  std::vector<pid_t> children;
  for (int64_t child = 0; child < 3; ++child) {
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      for (int64_t round = 0; round < 40; ++round) {
        Tuner t(on_disk());
        calls(t, key(child * 1000 + round), {500, 300}, 10);
      }
      _exit(0);
    }
    children.push_back(pid);
  }
  std::string notes;
  size_t running = children.size();
  while (running > 0) {
    notes += notes_of_loading().first;
    if (waitpid(-1, nullptr, WNOHANG) > 0) --running;
  }
  EXPECT_EQ(notes + notes_of_loading().first, "");
  EXPECT_GE(Tuner(on_disk()).keys(), 1u);
  for (const auto& entry : fs::directory_iterator(fs::path(file_).parent_path())) EXPECT_EQ(entry.path(), file_);
}

TEST_F(Autotuning, TheFolderComesFromTheEnvironment) {
  const char* names[] = {"DEFT_CACHE_DIR", "XDG_CACHE_HOME", "HOME"};
  std::vector<std::pair<const char*, std::string>> before;
  for (const char* name : names) {
    if (const char* text = getenv(name)) before.emplace_back(name, text);
    setenv(name, (std::string("/") + name).c_str(), 1);
  }
  EXPECT_EQ(tuner_file(), "/DEFT_CACHE_DIR/autotune.txt");
  setenv("DEFT_CACHE_DIR", "", 1);
  EXPECT_EQ(tuner_file(), "") << "switched off";
  unsetenv("DEFT_CACHE_DIR");
  EXPECT_EQ(tuner_file(), "/XDG_CACHE_HOME/deft/autotune.txt");
  setenv("XDG_CACHE_HOME", "", 1);
  EXPECT_EQ(tuner_file(), "/HOME/.cache/deft/autotune.txt");
  unsetenv("HOME");
  EXPECT_EQ(tuner_file(), "");
  for (const char* name : names) unsetenv(name);
  for (const auto& [name, text] : before) setenv(name, text.c_str(), 1);
}

// The process's own tuner, in a fresh process: reads at first use, writes at exit.
void run_and_exit(const std::string& folder, int expected_first) {
  setenv("DEFT_CACHE_DIR", folder.c_str(), 1);
  unsetenv("DEFT_AUTOTUNE");
  set_num_threads(1);
  int ran = -1;
  for (int i = 0; i < 10; ++i) {
    TunedRun run(TunedOp::conv, DType::f32, 0, {9}, 2, TunedRun::kLeastWork);
    if (i == 0 && run.choice() != expected_first) exit(3);
    ran = run.choice();
    volatile int64_t sink = 0;
    for (int64_t n = 0; n < (ran == 0 ? 400'000 : 4'000); ++n) sink = sink + n;
  }
  exit(ran);
}
TEST_F(Autotuning, TheProcessKeepsItsResultsForTheNext) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv("DEFT_TEST_FOLDER", folder_.c_str(), 0);  // the fresh process has another one of its own, and inherits this
  const std::string folder = getenv("DEFT_TEST_FOLDER");
  EXPECT_EXIT(run_and_exit(folder, 0), testing::ExitedWithCode(1), "");
  EXPECT_EXIT(run_and_exit(folder, 1), testing::ExitedWithCode(1), "");
  unsetenv("DEFT_TEST_FOLDER");
}

}  // namespace
}  // namespace deft::cpu
