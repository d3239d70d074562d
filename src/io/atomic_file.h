// A file that appears whole or not at all: written beside its path, synced, renamed.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace deft::io {

class AtomicFile {
 public:
  // SaveError if the folder cannot be written, or has no room for `bytes` (0: not known in advance). A link is
  // followed: the file it names is replaced.
  explicit AtomicFile(const std::string& path, uint64_t bytes = 0);
  ~AtomicFile();  // removes what was written unless commit() succeeded
  AtomicFile(const AtomicFile&) = delete;

  void write(const void* data, uint64_t bytes);
  // Makes the file permanent under its path. Before this returns, the path names the old file or the new one, both
  // whole.
  void commit();

 private:
  [[noreturn]] void fail(const char* what, int error) const;
  void reserve() const;

  std::string path_, folder_, temporary_;
  uint64_t expected_, written_ = 0;
  int fd_ = -1;
};

namespace detail {

// The system calls of AtomicFile. Tests replace them to fail, to be interrupted or to write less than asked.
struct FileCalls {
  int (*open)(const char*, int, mode_t);
  ssize_t (*write)(int, const void*, size_t);
  int (*allocate)(int, uint64_t);
  int (*sync)(int);
  int (*close)(int);
  int (*rename)(const char*, const char*);
};
FileCalls& file_calls();

}  // namespace detail

}  // namespace deft::io
