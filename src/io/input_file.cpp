#include "io/input_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "io/sha256.h"
#include "io/tensor_names.h"
#include "ops/creation.h"
#include "runtime/parallel.h"

namespace deft::io {

namespace {

constexpr uint64_t kPiece = uint64_t{4} << 20;  // of a large read

std::string error_text(int error) { return std::generic_category().message(error); }
int64_t modified_ns(const struct stat& s) { return s.st_mtim.tv_sec * 1'000'000'000 + s.st_mtim.tv_nsec; }

}  // namespace

struct InputFile::Mapping {
  Mapping(void* data_, uint64_t size_) : data(data_), size(size_) {}
  Mapping(const Mapping&) = delete;
  ~Mapping() { munmap(data, size); }
  void* data;
  uint64_t size;
};

InputFile::InputFile(const std::string& path, const char* format, const LoadOptions& options)
    : source_{format, path}, options_(options) {
  if (size_t at = path.find('\0'); at != path.npos) {
    source_.file = printable(path);
    source_.fail("path", at, "the path holds a NUL character");
  }
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO must not make us wait
  if (fd_ < 0) source_.fail("path", 0, "cannot open the file ({})", error_text(errno));
  try {
    struct stat s;
    if (fstat(fd_, &s) != 0) source_.fail("path", 0, "cannot examine the file ({})", error_text(errno));
    if (!S_ISREG(s.st_mode))
      source_.fail("path", 0, "this is a {}; a regular file is needed",
                   S_ISDIR(s.st_mode) ? "directory" : "device, pipe or socket");
    size_ = static_cast<uint64_t>(s.st_size);
    modified_ns_ = modified_ns(s);
    check_size_and_hash();
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

InputFile::InputFile(std::span<const std::byte> bytes, std::string name, const char* format, const LoadOptions& options)
    : source_{format, std::move(name)}, options_(options), size_(bytes.size()), bytes_(bytes) {
  check_size_and_hash();
}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

void InputFile::check_size_and_hash() {
  if (size_ == 0) source_.fail("file", 0, "the file is empty");
  if (options_.sha256.empty()) return;
  Sha256 hash;
  std::vector<std::byte> buffer(std::min(size_, kPiece));
  for (uint64_t at = 0; at < size_; at += buffer.size()) {
    auto part = std::span(buffer).first(std::min<uint64_t>(buffer.size(), size_ - at));
    read(at, part.data(), part.size(), "file");
    hash.add(part);
  }
  std::string found = hash.hex(), wanted = options_.sha256;
  std::transform(wanted.begin(), wanted.end(), wanted.begin(),
                 [](char c) { return c >= 'A' && c <= 'F' ? c + 32 : c; });
  if (found != wanted) source_.fail("sha256", 0, "the file has SHA-256 {}, expected {}; fetch it again", found, wanted);
}

void InputFile::read(uint64_t offset, void* to, uint64_t bytes, Field field) const {
  if (offset > size_ || bytes > size_ - offset)
    source_.fail(field, offset, "{} bytes are needed, but the file ends at byte {}", bytes, size_);
  if (fd_ < 0) {
    std::copy_n(bytes_.data() + offset, bytes, static_cast<std::byte*>(to));
    return;
  }
  auto* p = static_cast<char*>(to);
  for (uint64_t done = 0; done < bytes;) {
    ssize_t n = pread(fd_, p + done, bytes - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) source_.fail(field, offset + done, "reading failed ({})", error_text(errno));
    if (n == 0) source_.fail(field, offset + done, "the file became shorter while it was read; load it again");
    done += static_cast<uint64_t>(n);
  }
}

std::vector<std::byte> InputFile::read(uint64_t offset, uint64_t bytes, Field field) const {
  if (offset > size_ || bytes > size_ - offset)  // before any allocation
    source_.fail(field, offset, "{} bytes are needed, but the file ends at byte {}", bytes, size_);
  std::vector<std::byte> data(bytes);
  read(offset, data.data(), bytes, field);
  return data;
}

void InputFile::check_unchanged() const {
  if (fd_ < 0) return;
  struct stat s;
  if (fstat(fd_, &s) != 0) source_.fail("file", 0, "cannot examine the file ({})", error_text(errno));
  if (static_cast<uint64_t>(s.st_size) != size_ || modified_ns(s) != modified_ns_)
    source_.fail("file", 0, "the file was changed while it was read (it had {} bytes, now {}); load it again", size_,
                 s.st_size);
}

const std::shared_ptr<InputFile::Mapping>& InputFile::mapping() const {
  if (mapping_) return mapping_;
  // Private and writable: tensors may be changed in place, the file never is. No memory is set aside for all of it, or
  // a file larger than the memory could not be mapped.
  void* p = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd_, 0);
  if (p == MAP_FAILED) source_.fail("file", 0, "cannot map the file ({})", error_text(errno));
  mapping_ = std::make_shared<Mapping>(p, size_);
  return mapping_;
}

InputFile::Place InputFile::place(uint64_t offset, const Shape& sizes, DType dtype) const {
  Meta meta = Meta::dense(sizes, dtype, kCPU);
  // Elements off their alignment have to be copied.
  if (options_.mmap && fd_ >= 0 && meta.numel && offset % size_of(dtype) == 0) {
    auto map = mapping();
    return {Tensor(make_external(static_cast<char*>(map->data) + offset, meta, [map] {})), true};
  }
  return {empty(sizes, dtype), meta.numel == 0};
}

void PendingReads::add(void* to, uint64_t offset, uint64_t bytes) {
  for (uint64_t at = 0; at < bytes; at += kPiece)
    pieces_.push_back({static_cast<char*>(to) + at, offset + at, std::min(kPiece, bytes - at)});
}

void PendingReads::run(const InputFile& file) const {
  parallel_for(0, static_cast<int64_t>(pieces_.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      file.read(pieces_[i].offset, pieces_[i].to, pieces_[i].bytes, "data");
  });
}

void check_bools(const Tensor& t, const Source& source, Field field, uint64_t offset) {
  if (t.dtype() != DType::boolean) return;
  const auto* p = static_cast<const uint8_t*>(t.data_ptr());
  uint8_t all = 0;
  for (int64_t i = 0; i < t.numel(); ++i) all |= p[i];
  if (all <= 1) return;
  const uint8_t* bad = std::find_if(p, p + t.numel(), [](uint8_t b) { return b > 1; });
  source.fail(field, offset + static_cast<uint64_t>(bad - p), "a bool is 0 or 1, found {}", *bad);
}

}  // namespace deft::io
