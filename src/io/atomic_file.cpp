#include "io/atomic_file.h"

#include <fcntl.h>
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

constexpr uint64_t kMaxWrite = uint64_t{1} << 30;  // Linux writes at most 2 GiB at once

// Unlike those of other savers, in this process and elsewhere.
std::string temporary_name(const std::string& path) {
  static std::atomic<uint64_t> count{0};
  auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return fmt::format("{}.tmp-{}-{}-{:x}", path, getpid(), count.fetch_add(1), now);
}

// close() has failed and freed the number either way: it must not be tried again.
int close_once(int& fd) {
  int result = file_calls().close(fd);
  fd = -1;
  return result;
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
  temporary_ = temporary_name(path_);
  fd_ = file_calls().open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) {
    int error = errno;
    temporary_.clear();  // not ours
    fail("cannot create a file beside it", error);
  }
  if (replaces) (void)::fchmod(fd_, old.st_mode & 07777);  // not being allowed to is no reason not to save
  try {
    reserve();
  } catch (...) {
    close_once(fd_);
    ::unlink(temporary_.c_str());
    throw;
  }
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) close_once(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
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
    ssize_t n = file_calls().write(fd_, p, std::min(bytes, kMaxWrite));
    if (n < 0 && errno == EINTR) continue;
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
  if (file_calls().sync(fd_) != 0) fail("cannot sync the file", errno);
  if (close_once(fd_) != 0) fail("cannot close the file", errno);
  if (file_calls().rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot rename the new file", errno);
  temporary_.clear();
  // The new name is in place; only a loss of power could still bring the old one back.
  int folder = file_calls().open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  if (folder < 0) return;
  (void)file_calls().sync(folder);  // some file systems cannot, and sync the rename by themselves
  close_once(folder);
}

}  // namespace deft::io
