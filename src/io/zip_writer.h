// Writes zip archives of stored members, with zip64 records where sizes need them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "io/atomic_file.h"

namespace deft::io {

class ZipWriter {
 public:
  explicit ZipWriter(const std::string& path, uint64_t bytes = 0) : file_(path, bytes) {}
  // The parts one after the other are the member. ValueError for a name that no archive may hold or that was used.
  void add(const std::string& name, std::span<const std::span<const std::byte>> parts);
  void commit();

 private:
  struct Entry {
    std::string name;
    uint32_t crc;
    uint64_t size, header;
  };
  void write(const std::string& bytes);

  AtomicFile file_;
  uint64_t at_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace deft::io
