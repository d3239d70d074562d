// Saving: the path always names a whole file, whatever fails and wherever the program is killed.
#include "io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>

#include "file_fault.h"
#include "io/safetensors.h"
#include "io_util.h"

namespace deft::io {
namespace {

using detail::file_calls;

const NamedTensors kOld{{"w", full({3}, 1.0)}}, kNew{{"w", full({5}, 2.0)}, {"b", full({2}, 3.0)}};

bool is_old_or_new(const std::string& path) {
  NamedTensors found = load_safetensors(path).tensors;
  return (found.size() == 1 && same_bits(found[0].tensor, kOld[0].tensor)) ||
         (found.size() == 2 && same_bits(found[0].tensor, kNew[0].tensor));
}
int calls_of_a_save(const Folder& folder) {
  Fault none(-1, 0);
  save_safetensors(folder / "count", kNew);
  return Fault::calls;
}

TEST(AtomicFile, EveryCallFailsOnce) {
  Folder folder;
  int calls = calls_of_a_save(folder);
  EXPECT_GE(calls, 10);  // create, lock, reserve, write 4 times, sync, close, rename; open, sync, close the folder
  for (int error : {ENOSPC, EIO, EDQUOT, EACCES}) {
    for (int at = 0; at < calls; ++at) {
      save_safetensors(folder / "x", kOld);
      bool failed = false;
      try {
        Fault fault(at, error);
        save_safetensors(folder / "x", kNew);
      } catch (const SaveError& e) {
        failed = true;
        std::string text = e.what();
        EXPECT_NE(text.find(folder / "x"), std::string::npos) << text;
        EXPECT_EQ(text.find("bytes are needed") != std::string::npos, error == ENOSPC || error == EDQUOT) << text;
      }
      NamedTensors found = load_safetensors(folder / "x").tensors;
      EXPECT_EQ(found.size(), failed ? 1u : 2u) << "call " << at;
      EXPECT_EQ(folder.files(), 2u) << "call " << at;  // no temporary file is left
    }
  }
}

TEST(AtomicFile, KilledAtEveryCall) {
  Folder folder;
  int calls = calls_of_a_save(folder);
  for (int at = 0; at < calls; ++at) {
    std::string path = folder / ("kill" + std::to_string(at));
    save_safetensors(path, kOld);
    pid_t child = fork();
    if (child == 0) {
      Fault fault(at, 0);
      save_safetensors(path, kNew);
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status)) << at;
    EXPECT_TRUE(is_old_or_new(path)) << at;
  }
}

TEST(AtomicFile, InterruptedAndShortWrites) {
  Folder folder;
  static int turn;
  turn = 0;
  auto saved = file_calls();
  file_calls().write = [](int fd, const void* p, size_t n) {
    if (turn++ % 2) {
      errno = EINTR;
      return ssize_t{-1};
    }
    return ::write(fd, p, std::min<size_t>(n, 3));
  };
  save_safetensors(folder / "x", kNew);
  file_calls() = saved;
  EXPECT_GT(turn, 50);
  EXPECT_TRUE(is_old_or_new(folder / "x"));
}

// Opening, locking and syncing are tried again, too.
TEST(AtomicFile, EveryCallMayBeInterrupted) {
  Folder folder;
  static int interrupted;
  interrupted = 0;
  static const auto saved = file_calls();
  static const auto first_fails = [](int& done) {
    if (done++ % 2) return false;
    ++interrupted;
    errno = EINTR;
    return true;
  };
  static int opened, locked, synced;
  opened = locked = synced = 0;
  file_calls().open = [](const char* p, int flags, mode_t m) {
    return !(flags & O_DIRECTORY) && first_fails(opened) ? -1 : saved.open(p, flags, m);
  };
  file_calls().lock = [](int fd) { return first_fails(locked) ? -1 : saved.lock(fd); };
  file_calls().sync = [](int fd) { return first_fails(synced) ? -1 : saved.sync(fd); };
  save_safetensors(folder / "x", kNew);
  file_calls() = saved;
  EXPECT_EQ(opened, 2);
  EXPECT_EQ(locked, 2);
  EXPECT_GE(synced, 2);
  EXPECT_TRUE(is_old_or_new(folder / "x"));
}

// The file's bytes before it gets its name, and the name itself, which lies in the folder, after that.
TEST(AtomicFile, TheFileAndThenItsNameAreMadePermanent) {
  Folder folder;
  static std::vector<std::string> events;
  static ino_t synced_folder;
  events.clear(), synced_folder = 0;
  static const auto saved = file_calls();
  file_calls().sync = [](int fd) {
    struct stat s = {};
    fstat(fd, &s);
    events.push_back(S_ISDIR(s.st_mode) ? "sync folder" : "sync file");
    if (S_ISDIR(s.st_mode)) synced_folder = s.st_ino;
    return saved.sync(fd);
  };
  file_calls().rename = [](const char* from, const char* to) {
    events.push_back("rename");
    return saved.rename(from, to);
  };
  save_safetensors(folder / "x", kNew);
  file_calls() = saved;
  EXPECT_EQ(events, (std::vector<std::string>{"sync file", "rename", "sync folder"}));
  struct stat s = {};
  ASSERT_EQ(stat(folder.path.c_str(), &s), 0);
  EXPECT_EQ(synced_folder, s.st_ino);
}

TEST(AtomicFile, SaysHowMuchRoomIsNeededAndFree) {
  Folder folder;
  try {
    Fault fault(2, ENOSPC);
    save_safetensors(folder / "x", kNew);
    FAIL();
  } catch (const SaveError& e) {
    std::string text = e.what();
    EXPECT_NE(text.find("cannot reserve room"), std::string::npos) << text;
    EXPECT_NE(text.find("148 bytes are needed, "), std::string::npos) << text;
    EXPECT_NE(text.find(" are free; what was there before is untouched"), std::string::npos) << text;
  }
  EXPECT_EQ(folder.files(), 0u);
}

TEST(AtomicFile, FileSystemsThatCannotLockOrReserve) {
  Folder folder;
  for (int call : {1, 2}) {
    Fault fault(call, EOPNOTSUPP);
    save_safetensors(folder / "x", kNew);
    EXPECT_TRUE(is_old_or_new(folder / "x"));
  }
}

TEST(AtomicFile, BadPaths) {
  Folder folder;
  EXPECT_THROW(save_safetensors(folder / "missing/x", kNew), SaveError);
  EXPECT_THROW(save_safetensors(folder.path.string(), kNew), SaveError);
  EXPECT_THROW(save_safetensors("", kNew), SaveError);
  EXPECT_THROW(save_safetensors(std::string("a\0b", 3), kNew), SaveError);
  std::filesystem::create_symlink(folder / "loop", folder / "loop");
  save_safetensors(folder / "loop", kNew);  // leads nowhere: replaced
  EXPECT_TRUE(is_old_or_new(folder / "loop"));
}

TEST(AtomicFile, LinksAreFollowedAndModesKept) {
  Folder folder;
  save_safetensors(folder / "real", kOld);
  ASSERT_EQ(chmod((folder / "real").c_str(), 0640), 0);
  std::filesystem::create_symlink("real", folder / "link");
  save_safetensors(folder / "link", kNew);
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(load_safetensors(folder / "real").tensors.size(), 2u);
  struct stat s;
  ASSERT_EQ(stat((folder / "real").c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777, 0640u);
}

TEST(AtomicFile, StaleTemporaryFilesAndTwoSavers) {
  Folder folder;
  write_file(folder / "x.tmp-1-0-0", "stale");
  save_safetensors(folder / "x", kOld);
  {
    AtomicFile first(folder / "x"), second(folder / "x");
    std::string bytes = read_file(folder / "x");
    first.write(bytes.data(), bytes.size());
    second.write(bytes.data(), bytes.size());
    first.commit();
    second.commit();
    EXPECT_THROW(second.commit(), SaveError);
  }
  EXPECT_TRUE(is_old_or_new(folder / "x"));
  EXPECT_EQ(folder.files(), 2u);
}

}  // namespace
}  // namespace deft::io
