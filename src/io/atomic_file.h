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
  void create();
  void discard();
  void reserve() const;

  std::string path_, folder_, temporary_;
  uint64_t expected_, written_ = 0;
  int fd_ = -1;
  int lock_ = -1;  // a second number of the same file, which keeps it locked until it has its name
};

// Removes temporary files that killed savers left in `folder`, of files whose names begin with `prefix`. Files that are
// being written are locked and stay, whoever writes them; where the file system has no locks, everything stays.
void remove_abandoned(const std::string& folder, const std::string& prefix);

namespace detail {

// The system calls of AtomicFile. Tests replace them to fail, to be interrupted or to write less than asked.
struct FileCalls {
  int (*open)(const char*, int, mode_t);
  ssize_t (*write)(int, const void*, size_t);
  int (*lock)(int);
  int (*allocate)(int, uint64_t);
  int (*sync)(int);
  int (*close)(int);
  int (*rename)(const char*, const char*);
};
FileCalls& file_calls();

}  // namespace detail

}  // namespace deft::io
