#include "data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "io/source.h"

namespace deft::data {

namespace {

int64_t modified_ns(const struct stat& s) { return s.st_mtim.tv_sec * 1'000'000'000 + s.st_mtim.tv_nsec; }

}  // namespace

MappedFile::MappedFile(std::string path, const char* format) : path_(std::move(path)), format_(format) {
  fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO must not make us wait
  if (fd_ < 0) fail("cannot open the file", errno);
  try {
    struct stat s;
    if (fstat(fd_, &s) != 0) fail("cannot examine the file", errno);
    if (!S_ISREG(s.st_mode)) fail("a regular file is needed", S_ISDIR(s.st_mode) ? EISDIR : EINVAL);
    size_ = static_cast<size_t>(s.st_size);
    modified_ns_ = modified_ns(s);
    if (size_ == 0) return;
    void* p = mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd_, 0);
    if (p == MAP_FAILED) fail("cannot map the file", errno);
    data_ = static_cast<const char*>(p);
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

MappedFile::~MappedFile() {
  if (data_) munmap(const_cast<char*>(data_), size_);
  ::close(fd_);
}

void MappedFile::check_unchanged() const {
  struct stat s;
  if (fstat(fd_, &s) != 0) fail("cannot examine the file", errno);
  if (static_cast<size_t>(s.st_size) == size_ && modified_ns(s) == modified_ns_) return;
  io::Source{format_, path_}.fail(
      "file", 0, "the file was changed after it was opened (it had {} bytes, now {}); open it again", size_, s.st_size);
}

void MappedFile::fail(const char* what, int error) const {
  io::Source{format_, path_}.fail("path", 0, "{} ({})", what, std::generic_category().message(error));
}

}  // namespace deft::data
