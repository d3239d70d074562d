#include "data/tar_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <vector>

#include "io/source.h"
#ifdef DEFT_HAS_ZLIB
#include <zlib.h>
#endif

namespace deft::data {

namespace {

class MemorySource final : public TarSource {
 public:
  explicit MemorySource(std::span<const std::byte> bytes) : bytes_(bytes) {}
  size_t read(uint64_t offset, char* to, size_t bytes) override {
    if (offset >= bytes_.size()) return 0;
    size_t n = std::min(bytes, bytes_.size() - offset);
    std::memcpy(to, bytes_.data() + offset, n);
    return n;
  }
  bool may_reach(uint64_t end) const override { return end <= bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
};

class FileSource final : public TarSource {
 public:
  explicit FileSource(const std::string& path) : place_{"tar", path} {
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO must not make us wait
    if (fd_ < 0) fail("path", 0, "cannot open the file");
    struct stat s {};
    if (fstat(fd_, &s) == 0 && S_ISREG(s.st_mode)) {
      size_ = static_cast<uint64_t>(s.st_size);
      posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL);
      return;
    }
    ::close(fd_);
    place_.fail("path", 0, "this is a {}; a regular file is needed",
                S_ISDIR(s.st_mode) ? "directory" : "device or pipe");
  }
  ~FileSource() override { ::close(fd_); }

  size_t read(uint64_t offset, char* to, size_t bytes) override {
    size_t done = from_buffer(offset, to, bytes);
    if (done == bytes) return done;
    offset += done;
    if (bytes - done >= kLargest) return done + read_file(offset, to + done, bytes - done);
    // After a jump little is read at first: perhaps only a header is wanted before the next one.
    window_ = offset == start_ + filled_ ? std::min(2 * window_, kLargest) : kSmallest;
    window_ = std::max(window_, bytes - done);
    buffer_.resize(std::max(buffer_.size(), window_));
    start_ = offset;
    filled_ = read_file(offset, buffer_.data(), window_);
    return done + from_buffer(offset, to + done, bytes - done);
  }
  bool may_reach(uint64_t end) const override { return end <= size_; }

 private:
  static constexpr size_t kSmallest = 4 << 10, kLargest = 256 << 10;

  size_t from_buffer(uint64_t offset, char* to, size_t bytes) const {
    if (offset < start_ || offset >= start_ + filled_) return 0;
    auto at = static_cast<size_t>(offset - start_);
    size_t n = std::min(bytes, filled_ - at);
    std::memcpy(to, buffer_.data() + at, n);
    return n;
  }

  size_t read_file(uint64_t offset, char* to, size_t bytes) const {
    size_t done = 0;
    while (done < bytes) {
      ssize_t n = pread(fd_, to + done, bytes - done, static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("file", offset + done, "reading failed");
      if (n == 0) break;
      done += static_cast<size_t>(n);
    }
    return done;
  }

  [[noreturn]] void fail(const char* field, uint64_t offset, const char* what) const {
    place_.fail(field, offset, "{} ({})", what, std::generic_category().message(errno));
  }

  io::Source place_;
  int fd_ = -1;
  uint64_t size_ = 0, start_ = 0;
  size_t filled_ = 0, window_ = kSmallest;
  std::vector<char> buffer_;
};

#ifdef DEFT_HAS_ZLIB
class GzipSource final : public TarSource {
 public:
  explicit GzipSource(const std::string& path) : place_{"tar", path}, file_(gzopen(path.c_str(), "rbe"), gzclose) {
    if (!file_) place_.fail("path", 0, "cannot open the file");
    gzbuffer(file_.get(), 128 << 10);
  }
  size_t read(uint64_t offset, char* to, size_t bytes) override {
    char skipped[4096];
    while (at_ < offset)
      if (!unpack(skipped, std::min<uint64_t>(sizeof(skipped), offset - at_))) return 0;
    size_t done = 0;
    while (done < bytes)
      if (size_t n = unpack(to + done, bytes - done))
        done += n;
      else
        break;
    return done;
  }
  bool may_reach(uint64_t end) const override { return !ended_ || end <= at_; }
  bool gzipped() const override { return true; }

 private:
  size_t unpack(char* to, size_t bytes) {
    int n = gzread(file_.get(), to, static_cast<unsigned>(std::min<size_t>(bytes, 1 << 20)));
    int code = Z_OK;
    const char* text = gzerror(file_.get(), &code);
    if (n < 0 || code == Z_BUF_ERROR) place_.fail("gzip", at_, "the file is broken or ends too early: {}", text);
    at_ += static_cast<uint64_t>(n);
    ended_ = n == 0;
    return static_cast<size_t>(n);
  }

  io::Source place_;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file_;
  uint64_t at_ = 0;
  bool ended_ = false;
};
#endif

}  // namespace

std::unique_ptr<TarSource> open_tar(const std::string& path) {
  auto file = std::make_unique<FileSource>(path);
  char magic[2] = {};
  file->read(0, magic, 2);
  if (magic[0] != '\x1f' || magic[1] != '\x8b') return file;
#ifdef DEFT_HAS_ZLIB
  return std::make_unique<GzipSource>(path);
#else
  DEFT_FAIL(UnsupportedError, "{}: this build has no zlib; unpack the file with gunzip first", path);
#endif
}

std::unique_ptr<TarSource> open_tar(std::span<const std::byte> bytes) { return std::make_unique<MemorySource>(bytes); }

}  // namespace deft::data
