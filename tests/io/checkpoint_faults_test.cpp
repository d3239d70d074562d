// Faults while checkpoints are written and read. After each of them the newest whole checkpoint loads, the next save
// leaves no temporary file behind, and the error is one sentence that names the file.
#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <algorithm>
#include <random>

#include "checkpoint_util.h"
#include "file_fault.h"

namespace deft::io {
namespace {

namespace fs = std::filesystem;
using detail::file_calls;

// A folder with the checkpoint of step 1 in it. The newest only is kept, so that saving removes a file too.
struct SavedRun {
  SavedRun() { checkpoints.save(old, {1, "c"}); }

  size_t temporary_files() const {
    return static_cast<size_t>(std::count_if(fs::directory_iterator(checkpoints.folder()), fs::directory_iterator(),
                                             [](auto& f) { return f.path().extension() != ".safetensors"; }));
  }
  int64_t newest_step() const {
    auto found = checkpoints.newest("c");
    if (!found || !found->skipped.empty()) return -1;
    expect_same(found->checkpoint.state, found->checkpoint.info.step == 1 ? old : next);
    return found->checkpoint.info.step;
  }
  // Whatever happened: a whole checkpoint is there, the next save works and cleans up.
  void expect_usable() {
    EXPECT_GE(newest_step(), 1);
    checkpoints.save(next, {3, "c"});
    EXPECT_EQ(newest_step(), 3);
    EXPECT_EQ(temporary_files(), 0u);
    fs::remove_all(checkpoints.folder());
    fs::create_directories(checkpoints.folder());
    checkpoints.save(old, {1, "c"});
  }

  Folder folder;
  NoSync fast;
  CheckpointFolder checkpoints{folder / "run", 1};
  State old = example(1), next = example(2);
};

// Runs `work` in a process of its own; the result is how it ended. Exit status 1: an unexpected error.
template <class F>
int in_child(F work) {
  pid_t child = fork();
  if (child == 0) {
    try {
      work();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
      _exit(1);
    }
    _exit(0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}
bool ended_well(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

int calls_of_a_save() {
  SavedRun run;
  Fault none(-1, 0);
  run.checkpoints.save(run.next, {2, "c"});
  return Fault::calls;
}

void expect_one_sentence(const std::string& text, const std::string& path) {
  EXPECT_NE(text.find(path), std::string::npos) << text;
  EXPECT_NE(text.find("what was there before is untouched"), std::string::npos) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  EXPECT_EQ(text.find(". "), std::string::npos) << text;
}

// --- FI2: killed at every system call. With ptrace these are all calls the process makes, and the moments before and
// after each; 0 when the save was over before that moment, -1 where tracing is not allowed.

int kill_at_stop(SavedRun& run, int stop) {
  pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(77);
    raise(SIGSTOP);
    run.checkpoints.save(run.next, {2, "c"});
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) return -1;
  for (int i = 0; i < stop; ++i) {
    ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    waitpid(child, &status, 0);
    if (WIFEXITED(status)) return 0;
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return 1;
}

TEST(CheckpointFaults, KilledAtEverySystemCall) {
  SavedRun run;
  int stop = 1, with_new = 0;
  for (;; ++stop) {
    int killed = kill_at_stop(run, stop);
    if (killed < 0) GTEST_SKIP() << "this system does not let processes trace others";
    if (killed == 0) break;
    with_new += run.newest_step() == 2;
    run.expect_usable();
  }
  EXPECT_GT(stop, 40);  // twice: open, lock, ..., unlink of the old one
  EXPECT_GT(with_new, 4);
  EXPECT_LT(with_new, stop - 20);
}

TEST(CheckpointFaults, KilledAtEveryCallOfTheWriter) {
  SavedRun run;
  int calls = calls_of_a_save();
  for (int at = 0; at < calls; ++at) {
    int status = in_child([&] {
      Fault fault(at, 0);
      run.checkpoints.save(run.next, {2, "c"});
    });
    EXPECT_TRUE(WIFSIGNALED(status)) << at;
    run.expect_usable();
  }
}

TEST(CheckpointFaults, KilledAtEveryCallOfTheBackgroundWriter) {
  SavedRun run;
  int calls = calls_of_a_save();
  for (int at = 0; at < calls; ++at) {
    int status = in_child([&] {
      Fault fault(at, 0);
      run.checkpoints.save_async(run.next, {2, "c"});
      run.checkpoints.wait();
    });
    EXPECT_TRUE(WIFSIGNALED(status)) << at;
    run.expect_usable();
  }
}

// --- FI3, FI4: each call fails once, with no room left, a broken disk, a quota, a read-only file system.

TEST(CheckpointFaults, EveryCallFailsOnce) {
  SavedRun run;
  int calls = calls_of_a_save();
  for (int error : {ENOSPC, EIO, EDQUOT, EROFS, EMFILE}) {
    int failures = 0;
    for (int at = 0; at < calls; ++at) {
      bool failed = false;
      try {
        Fault fault(at, error);
        run.checkpoints.save(run.next, {2, "c"});
      } catch (const SaveError& e) {
        failed = true;
        expect_one_sentence(e.what(), "step-0000000002.safetensors");
      }
      failures += failed;
      EXPECT_EQ(run.temporary_files(), 0u) << "call " << at;
      EXPECT_EQ(run.newest_step(), failed ? 1 : 2) << "call " << at;
      run.expect_usable();
    }
    EXPECT_GE(failures, 9) << error;  // create, 6 writes, sync, close, rename; not: lock, the folder's calls
  }
}

// FI3 without a hook: the system stops the file at every size.
TEST(CheckpointFaults, FilesMayNotGrowAnyFurther) {
  SavedRun run;
  uint64_t size = fs::file_size(run.checkpoints.newest()->path);
  for (uint64_t limit = 0; limit < size; limit += 40) {
    int status = in_child([&] {
      signal(SIGXFSZ, SIG_IGN);
      rlimit most{limit, limit};
      setrlimit(RLIMIT_FSIZE, &most);
      try {
        run.checkpoints.save(run.next, {2, "c"});
        _exit(2);
      } catch (const SaveError& e) {
        _exit(std::string(e.what()).find("bytes are needed") != std::string::npos ? 0 : 3);
      }
    });
    EXPECT_TRUE(ended_well(status)) << limit << ": " << status;
    EXPECT_EQ(run.temporary_files(), 0u);
    EXPECT_EQ(run.newest_step(), 1);
  }
  run.expect_usable();
}

// FI5
TEST(CheckpointFaults, ShortWrites) {
  for (size_t most : {1, 3, 7, 64}) {
    SavedRun run;
    static size_t most_bytes;
    most_bytes = most;
    file_calls().write = [](int fd, const void* p, size_t n) { return ::write(fd, p, std::min(n, most_bytes)); };
    run.checkpoints.save(run.next, {2, "c"});
    EXPECT_EQ(run.newest_step(), 2);
  }
}

// FI6: every call but rename, which is never interrupted.
TEST(CheckpointFaults, InterruptedAtEveryCall) {
  SavedRun run;
  int calls = calls_of_a_save(), renames = 0;
  for (int at = 0; at < calls; ++at) {
    try {
      Fault fault(at, EINTR);
      run.checkpoints.save(run.next, {2, "c"});
      EXPECT_EQ(run.newest_step(), 2);
    } catch (const SaveError& e) {
      EXPECT_NE(std::string(e.what()).find("rename"), std::string::npos) << e.what();
      ++renames;
    }
    run.expect_usable();
  }
  EXPECT_EQ(renames, 1);
}

TEST(CheckpointFaults, SignalsWhileSaving) {
  SavedRun run;
  static volatile sig_atomic_t signals;
  signals = 0;
  struct sigaction action = {}, before;
  action.sa_handler = [](int) { signals = signals + 1; };  // without SA_RESTART
  sigaction(SIGALRM, &action, &before);
  itimerval often{{0, 200}, {0, 200}}, never{};
  setitimer(ITIMER_REAL, &often, nullptr);
  for (int64_t i = 0; i < 5000 && (i < 100 || signals < 50); ++i) run.checkpoints.save(run.next, {2 + i, "c"});
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &before, nullptr);
  EXPECT_GE(signals, 50);
  EXPECT_GE(run.newest_step(), 101);
  EXPECT_EQ(run.temporary_files(), 0u);
}

// FI7: the real thing, as a user who is not root.
TEST(CheckpointFaults, FolderThatMayNotBeWritten) {
  SavedRun run;
  ASSERT_EQ(chmod(run.checkpoints.folder().c_str(), 0555), 0);
  int status = in_child([&] {
    if (geteuid() == 0 && setuid(65534) != 0) _exit(2);
    try {
      run.checkpoints.save(run.next, {2, "c"});
      _exit(3);
    } catch (const SaveError& e) {
      expect_one_sentence(e.what(), "step-0000000002.safetensors");
    }
    if (run.newest_step() != 1) _exit(4);  // reading goes on
    if (::testing::Test::HasFailure()) _exit(5);
  });
  EXPECT_TRUE(ended_well(status)) << status;
  ASSERT_EQ(chmod(run.checkpoints.folder().c_str(), 0755), 0);
  run.expect_usable();
}

// Silence would mean: begin again.
TEST(CheckpointFaults, FolderThatMayNotBeListed) {
  SavedRun run;
  ASSERT_EQ(chmod(run.checkpoints.folder().c_str(), 0300), 0);
  int status = in_child([&] {
    if (geteuid() == 0 && setuid(65534) != 0) _exit(2);
    EXPECT_THROW(run.checkpoints.newest(), LoadError);
    if (::testing::Test::HasFailure()) _exit(5);
  });
  EXPECT_TRUE(ended_well(status)) << status;
  ASSERT_EQ(chmod(run.checkpoints.folder().c_str(), 0755), 0);
}

// --- FI8, FI9 on the newest file of a folder: the older one is taken, or nothing is lost.

TEST(CheckpointFaults, NewestTruncatedAtEveryPlace) {
  SavedRun run;
  CheckpointFolder both(run.checkpoints.folder(), 2);
  std::string path = both.save(run.next, {2, "c"}), bytes = read_file(path);
  for (size_t size = 0; size < bytes.size(); ++size) {
    rewrite_file(path, bytes.substr(0, size));
    auto found = both.newest("c");
    ASSERT_TRUE(found) << size;
    ASSERT_EQ(found->checkpoint.info.step, 1) << size;
    ASSERT_EQ(found->skipped.size(), 1u);
  }
}

TEST(CheckpointFaults, NewestWithOneFlippedBit) {
  SavedRun run;
  CheckpointFolder both(run.checkpoints.folder(), 2);
  std::string path = both.save(run.next, {2, "c"}), bytes = read_file(path);
  int older = 0;
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string bad = bytes;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    rewrite_file(path, bad);
    auto found = both.newest("c");
    ASSERT_TRUE(found) << bit;
    expect_same(found->checkpoint.state, found->checkpoint.info.step == 1 ? run.old : run.next);
    older += found->checkpoint.info.step == 1;
  }
  EXPECT_GT(older, static_cast<int>(7 * bytes.size()));
}

TEST(CheckpointFaults, AllFilesDamaged) {
  SavedRun run;
  write_file(run.checkpoints.newest()->path, "rubbish");
  EXPECT_THROW(run.checkpoints.newest(), LoadError);  // not "there is none", which would begin again
}

// FI10: what killed savers left goes; what is being written, and what is not ours, stays.
TEST(CheckpointFaults, StaleTemporaryFiles) {
  SavedRun run;
  std::string base = run.checkpoints.folder() + "/step-0000000007.safetensors";
  write_file(base + ".tmp-1-0-0", "stale");
  write_file(base + ".tmp-999999-3-17af", "");
  write_file(run.checkpoints.folder() + "/notes.tmp-1", "a user's");
  AtomicFile busy(base);
  busy.write("x", 1);
  EXPECT_EQ(run.temporary_files(), 4u);
  run.checkpoints.save(run.next, {2, "c"});
  EXPECT_EQ(run.temporary_files(), 2u);
  busy.commit();
  EXPECT_EQ(read_file(base), "x");
  EXPECT_TRUE(fs::exists(run.checkpoints.folder() + "/notes.tmp-1"));
}

// FI11
TEST(CheckpointFaults, SeveralSaversInOneFolder) {
  SavedRun run;
  constexpr int kSavers = 3, kSaves = 200;
  std::vector<pid_t> children;
  for (int saver = 0; saver < kSavers; ++saver) {
    pid_t child = fork();
    if (child == 0) {
      try {
        for (int64_t i = 0; i < kSaves; ++i) {
          if (saver == 0) {
            run.checkpoints.save_async(run.next, {2 + i, "c"});
          } else {
            run.checkpoints.save(run.next, {2 + i, "c"});  // the same names at about the same time
          }
        }
        run.checkpoints.wait();
      } catch (const std::exception& e) {
        std::fprintf(stderr, "saver %d: %s\n", saver, e.what());
        _exit(1);
      }
      _exit(0);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(ended_well(status)) << status;
  }
  EXPECT_EQ(run.newest_step(), 1 + kSaves);
  EXPECT_EQ(run.temporary_files(), 0u);
}

// FI12: files go while they are read; there is always a newer one.
TEST(CheckpointFaults, LoadWhileSaving) {
  SavedRun run;
  pid_t child = fork();
  if (child == 0) {
    for (int64_t i = 0; i < 1000; ++i) run.checkpoints.save(run.next, {2 + i, "c"});
    _exit(0);
  }
  int status = 0, loads = 0;
  int64_t last = 1;
  for (bool over = false; !over; ++loads) {
    over = waitpid(child, &status, WNOHANG) == child;
    int64_t step = run.newest_step();
    ASSERT_GE(step, last);
    last = step;
  }
  EXPECT_TRUE(ended_well(status));
  EXPECT_EQ(last, 1001);
  EXPECT_GT(loads, 20);
}

// FI13: the mapped file lives on under its old bytes.
TEST(CheckpointFaults, SaveOntoTheMappedFile) {
  SavedRun run;
  LoadOptions mapped;
  mapped.mmap = true;
  Checkpoint loaded = load_checkpoint(run.checkpoints.newest()->path, mapped);
  run.checkpoints.save(run.next, {1, "c"});  // another state at the same path
  expect_same(loaded.state, run.old);
  run.checkpoints.save(loaded.state, {1, "c"});  // and the mapped tensors themselves
  EXPECT_EQ(run.newest_step(), 1);
  run.checkpoints.save_async(loaded.state, {1, "c"});
  run.checkpoints.wait();
  EXPECT_EQ(run.newest_step(), 1);
}

// --- FI14

void replace(std::string& text, const std::string& from, const std::string& to) {
  size_t at = text.find(from);
  ASSERT_NE(at, text.npos) << from;
  text.replace(at, from.size(), to);
}

// A whole file of version 2: with the checksum that a first attempt to load it asks for.
void make_future_file(const std::string& path) {
  std::string bytes = read_file(path);
  replace(bytes, R"("deft.checkpoint":"1")", R"("deft.checkpoint":"2")");
  write_file(path, bytes);
  try {
    load_checkpoint(path);
    FAIL();
  } catch (const LoadError& e) {
    std::string text = e.what();
    size_t found = text.find(": is ") + 5, says = text.find("says ") + 5;
    replace(bytes, text.substr(says, 8), text.substr(found, 8));
    write_file(path, bytes);
  }
}

TEST(CheckpointFaults, VersionFromTheFuture) {
  SavedRun run;
  CheckpointFolder both(run.checkpoints.folder(), 2);
  make_future_file(both.save(run.next, {2, "c"}));
  try {
    both.newest("c");  // the older one would load, but steps would be lost in silence
    FAIL();
  } catch (const LoadError& e) {
    EXPECT_EQ(e.field, "version") << e.what();
    EXPECT_NE(std::string(e.what()).find("use the Deft that wrote it"), std::string::npos) << e.what();
  }
}

TEST(CheckpointFaults, AnotherConfiguration) {
  SavedRun run;
  try {
    run.checkpoints.newest("d");
    FAIL();
  } catch (const ValueError& e) {
    EXPECT_NE(std::string(e.what()).find("belongs to another run: it has 'c', this run 'd'"), std::string::npos);
  }
  EXPECT_EQ(run.newest_step(), 1);
}

// FI19 as far as this layer goes: a missing section is an error that names it.
TEST(CheckpointFaults, MissingSection) {
  SavedRun run;
  State state = example(1);
  state.values["run.rng_seed"] = int64_t{3};
  run.checkpoints.save(state, {2, "c"});
  State back = run.checkpoints.newest()->checkpoint.state.part("run");
  EXPECT_EQ(back.get<int64_t>("rng_seed"), 3);
  try {
    back.get<int64_t>("rng_offset");
    FAIL();
  } catch (const ValueError& e) {
    EXPECT_NE(std::string(e.what()).find("rng_offset"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace deft::io
