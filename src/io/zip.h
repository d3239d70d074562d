// Zip archives: members stored or deflated, zip64, no encryption, one disk. Everything is checked before it is used.
#pragma once

#include <string_view>
#include <vector>

#include "io/input_file.h"

namespace deft::io {

class ByteReader;

struct ZipEntry {
  std::string_view name;  // valid as long as the archive
  bool deflated = false;
  uint32_t crc = 0;
  uint64_t packed = 0, size = 0;  // bytes in the file and unpacked
  uint64_t header = 0, data = 0;  // offsets in the file
};

class ZipArchive {
 public:
  // LoadError if anything is wrong with the directory: see Note [What makes a zip] in zip.cpp. The file must outlive
  // it.
  explicit ZipArchive(const InputFile& file);
  ZipArchive(const ZipArchive&) = delete;

  const std::vector<ZipEntry>& entries() const { return entries_; }  // in the order of the directory
  const ZipEntry* find(std::string_view name) const;                 // nullptr if there is none
  // Unpacks to `to`, which has room for e.size bytes; LoadError if the CRC is wrong.
  void read(const ZipEntry& e, void* to) const;
  // LoadError if the CRC of bytes already read or mapped is wrong.
  void check_crc(const ZipEntry& e, uint32_t found) const;
  const InputFile& file() const { return file_; }
  // For errors in the contents of a member.
  Source source_of(const ZipEntry& e, const char* format) const;

 private:
  struct Directory {
    uint64_t offset, bytes, entries;
  };
  Directory find_directory() const;
  Directory find_directory64(uint64_t end_record, const Directory& plain) const;
  void read_entry(ByteReader& in);
  void read_zip64(ZipEntry& e, std::span<const std::byte> extra, uint64_t at) const;
  void check_local(ZipEntry& e, uint64_t directory) const;
  void check_sizes() const;
  void check_names();
  void check_overlap() const;
  void inflate(const ZipEntry& e, std::byte* to) const;

  const InputFile& file_;
  std::vector<std::byte> directory_;
  std::vector<ZipEntry> entries_;
  std::vector<const ZipEntry*> by_name_;
};

// Why this cannot be the name of a member ("leads out of the archive"), or nullptr.
const char* member_name_fault(std::string_view name, uint64_t max_bytes);

}  // namespace deft::io
