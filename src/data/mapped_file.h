// A file in memory as it is on disk: its pages come when they are touched.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace deft::data {

// Read only, so that a file may be larger than the memory.
class MappedFile {
 public:
  // LoadError naming `format` unless it is a regular file that can be read.
  MappedFile(std::string path, const char* format);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  const char* format() const { return format_; }
  std::string_view bytes() const { return {data_, size_}; }
  // LoadError if the file was shortened or written to since it was mapped. To be called before every read: touching
  // bytes that the file lost ends the program. Only a file that shrinks between this call and the read still does that.
  void check_unchanged() const;

 private:
  [[noreturn]] void fail(const char* what, int error) const;

  std::string path_;
  const char* format_;
  int fd_ = -1;
  const char* data_ = nullptr;
  size_t size_ = 0;
  int64_t modified_ns_ = 0;
};

}  // namespace deft::data
