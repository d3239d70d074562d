// The bytes of an archive, read from front to back: of a file, a gzipped file, or memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace deft::data {

class TarSource {
 public:
  virtual ~TarSource() = default;
  // Up to `bytes` from `offset`, fewer only at the end. If it is gzipped, offsets must not go back.
  virtual size_t read(uint64_t offset, char* to, size_t bytes) = 0;
  // False if it is known that there are fewer bytes.
  virtual bool may_reach(uint64_t end) const = 0;
  virtual bool gzipped() const { return false; }
};

// By its first bytes the file is gzipped or not.
std::unique_ptr<TarSource> open_tar(const std::string& path);
std::unique_ptr<TarSource> open_tar(std::span<const std::byte> bytes);

}  // namespace deft::data
