// Little-endian numbers from bytes in memory, in order. Nothing past the end is ever touched.
#pragma once

#include <bit>
#include <cstring>
#include <span>

#include "io/source.h"

namespace deft::io {

static_assert(std::endian::native == std::endian::little, "the file formats here are little-endian");

class ByteReader {
 public:
  ByteReader(std::span<const std::byte> bytes, const Source& source) : bytes_(bytes), source_(source) {}

  uint64_t offset() const { return at_; }
  uint64_t base() const { return source_.base; }
  uint64_t left() const { return bytes_.size() - at_; }

  std::span<const std::byte> bytes(uint64_t n, Field field) {
    if (n > left()) source_.fail(field, at_, "{} bytes are needed, but only {} are left", n, left());
    auto part = bytes_.subspan(at_, n);
    at_ += n;
    return part;
  }
  std::string_view text(uint64_t n, Field field) {
    auto part = bytes(n, field);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }
  template <class T>
  T number(Field field) {
    T value;
    std::memcpy(&value, bytes(sizeof(T), field).data(), sizeof(T));
    return value;
  }
  uint8_t u8(Field field) { return number<uint8_t>(field); }
  uint16_t u16(Field field) { return number<uint16_t>(field); }
  uint32_t u32(Field field) { return number<uint32_t>(field); }
  uint64_t u64(Field field) { return number<uint64_t>(field); }

 private:
  std::span<const std::byte> bytes_;
  uint64_t at_ = 0;
  const Source& source_;
};

}  // namespace deft::io
