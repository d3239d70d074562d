// Tar archives read from the first member to the last: ustar, GNU long names, pax headers, also gzipped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace deft::io {
struct Source;
}

namespace deft::data {

struct TarLimits {
  uint64_t member_bytes = uint64_t{1} << 30;
  uint64_t name_bytes = 1024;
  uint64_t pax_bytes = 1 << 20;  // of one extended header
};

// A regular file in an archive.
struct TarMember {
  std::string name;  // without a leading "./"
  uint64_t size = 0;
  uint64_t data = 0;  // where its bytes start; in a gzipped archive among the unpacked ones
};

class TarSource;

class TarReader {
 public:
  // LoadError if the file cannot be read. Gzipped archives are detected by their first bytes; in a build
  // without zlib they are an UnsupportedError.
  explicit TarReader(const std::string& path, const TarLimits& limits = {});
  // The same for an archive in memory, not gzipped; the bytes must outlive the reader. `name` stands for the file.
  TarReader(std::span<const std::byte> bytes, const std::string& name, const TarLimits& limits = {});
  ~TarReader();
  TarReader(const TarReader&) = delete;
  TarReader& operator=(const TarReader&) = delete;

  // The next member; what was not read of the one before is skipped, without reading it unless the file is gzipped.
  // False at the end. Directories, devices and volume labels are passed over. LoadError with the offset for what breaks
  // the format; also for links, since what they stand for is missing, and for names that lead out of the archive.
  bool next(TarMember& member);
  // The bytes of the member that next() gave, once.
  void read(std::vector<char>& bytes);
  const std::string& path() const { return path_; }
  bool gzipped() const;

 private:
  struct Header;
  struct Extended;
  io::Source place() const;
  bool read_header(Header& h);
  std::string_view read_extended(const Header& h, uint64_t limit, const char* field);
  void read_pax(const Header& h, Extended& extended);
  void enter(const Header& h, uint64_t size, const char* field, uint64_t limit);

  std::string path_;
  TarLimits limits_;
  std::unique_ptr<TarSource> source_;
  uint64_t data_ = 0, size_ = 0;  // of the last member
  uint64_t next_header_ = 0;
  std::vector<char> extended_;
};

}  // namespace deft::data
