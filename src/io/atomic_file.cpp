#include "io/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>

#include "base/check.h"

namespace deft::io {

namespace detail {

FileCalls& file_calls() {
  static FileCalls calls{
      [](const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); },
      [](int fd, const void* data, size_t bytes) { return ::write(fd, data, bytes); },
      [](int fd) { return ::flock(fd, LOCK_EX); },
      [](int fd, uint64_t bytes) { return ::fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes)); },
      [](int fd) { return ::fsync(fd); },
      [](int fd) { return ::close(fd); },
      [](const char* from, const char* to) { return ::rename(from, to); },
  };
  return calls;
}

}  // namespace detail

namespace {

using detail::file_calls;

constexpr std::string_view kTemporary = ".tmp-";
constexpr uint64_t kMaxWrite = uint64_t{1} << 30;  // Linux writes at most 2 GiB at once

// Unlike those of other savers, in this process and elsewhere.
std::string temporary_name(const std::string& path) {
  static std::atomic<uint64_t> count{0};
  auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return fmt::format("{}{}{}-{}-{:x}", path, kTemporary, getpid(), count.fetch_add(1), now);
}

template <class F>
auto unless_interrupted(F call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// Failed or not, close() has freed the number: it must not be tried again. Interrupted after a sync is no failure.
int close_once(int& fd) {
  int result = file_calls().close(fd);
  fd = -1;
  return result != 0 && errno == EINTR ? 0 : result;
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path, uint64_t bytes) : path_(path), expected_(bytes) {
  namespace fs = std::filesystem;
  DEFT_CHECK(!path.empty() && path.find('\0') == std::string::npos, SaveError,
             "save: the path '{}' is empty or holds a NUL character", path.c_str());
  std::error_code ignored;
  if (fs::is_symlink(path, ignored)) path_ = fs::weakly_canonical(path, ignored).string();
  if (path_.empty()) path_ = path;  // a link that leads in a circle is replaced
  fs::path folder = fs::path(path_).parent_path();
  folder_ = (folder.empty() ? fs::path(".") : folder).string();
  struct stat old;
  bool replaces = ::stat(path_.c_str(), &old) == 0;
  DEFT_CHECK(!replaces || S_ISREG(old.st_mode), SaveError,
             "save: {} exists and is not a regular file; choose another path", path_);
  try {
    create();
    if (replaces) (void)::fchmod(fd_, old.st_mode & 07777);  // not being allowed to is no reason not to save
    reserve();
  } catch (...) {
    discard();
    throw;
  }
}

AtomicFile::~AtomicFile() { discard(); }

// A file that is not locked yet looks abandoned, and another saver may remove it: then a new one is made.
void AtomicFile::create() {
  struct stat made = {};
  do {
    discard();
    std::string name = temporary_name(path_);
    fd_ = unless_interrupted(
        [&] { return file_calls().open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
    if (fd_ < 0) fail("cannot create a file beside it", errno);
    temporary_ = name;
    if (unless_interrupted([&] { return file_calls().lock(fd_); }) != 0) return;
    lock_ = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  } while (::fstat(fd_, &made) == 0 && made.st_nlink == 0);
}

void AtomicFile::discard() {
  if (fd_ >= 0) close_once(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
  if (lock_ >= 0) ::close(lock_);
  lock_ = -1;
}

// A full disk is noticed before anything is written. File systems that cannot reserve notice later.
void AtomicFile::reserve() const {
  if (!expected_ || file_calls().allocate(fd_, expected_) == 0) return;
  if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG) fail("cannot reserve room", errno);
}

void AtomicFile::fail(const char* what, int error) const {
  std::string room;
  struct statvfs disk;
  if ((error == ENOSPC || error == EDQUOT || error == EFBIG) && ::statvfs(folder_.c_str(), &disk) == 0) {
    uint64_t free = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
    room = fmt::format("; {} bytes are needed, {} are free", std::max(expected_, written_), free);
  }
  DEFT_FAIL(SaveError, "save: {}: {} ({}){}; what was there before is untouched", path_, what,
            std::generic_category().message(error), room);
}

void AtomicFile::write(const void* data, uint64_t bytes) {
  const auto* p = static_cast<const char*>(data);
  while (bytes) {
    ssize_t n = unless_interrupted([&] { return file_calls().write(fd_, p, std::min(bytes, kMaxWrite)); });
    if (n <= 0) {
      int error = n < 0 ? errno : EIO;
      written_ += bytes;  // what would have been needed
      fail("cannot write", error);
    }
    p += n;
    bytes -= static_cast<uint64_t>(n);
    written_ += static_cast<uint64_t>(n);
  }
}

void AtomicFile::commit() {
  DEFT_CHECK(fd_ >= 0, SaveError, "save: {} was committed before", path_);
  if (unless_interrupted([&] { return file_calls().sync(fd_); }) != 0) fail("cannot sync the file", errno);
  if (close_once(fd_) != 0) fail("cannot close the file", errno);
  if (file_calls().rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot rename the new file", errno);
  temporary_.clear();
  discard();
  // The new name is in place; only a loss of power could still bring the old one back.
  int folder = file_calls().open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  if (folder < 0) return;
  (void)file_calls().sync(folder);  // some file systems cannot, and sync the rename by themselves
  close_once(folder);
}

void remove_abandoned(const std::string& folder, const std::string& prefix) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  for (fs::directory_iterator at(folder, ignored), end; !ignored && at != end; at.increment(ignored)) {
    std::string name = at->path().filename();
    if (!name.starts_with(prefix) || name.find(kTemporary) == name.npos) continue;
    int fd = ::open(at->path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) continue;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) ::unlink(at->path().c_str());
    ::close(fd);
  }
}

}  // namespace deft::io
