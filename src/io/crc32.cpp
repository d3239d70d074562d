#include "io/crc32.h"

#include <array>
#include <cstring>

#if defined(__aarch64__) && !defined(__clang__)
#include <sys/auxv.h>
#endif

namespace deft::io {

namespace {

// kTables[k][b]: the CRC of byte b followed by k zero bytes. Eight of them take eight bytes at a time.
constexpr auto kTables = [] {
  std::array<std::array<uint32_t, 256>, 8> t{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = c & 1 ? c >> 1 ^ 0xedb88320 : c >> 1;
    t[0][i] = c;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t i = 0; i < 256; ++i) t[k][i] = t[k - 1][i] >> 8 ^ t[0][t[k - 1][i] & 0xff];
  return t;
}();

uint64_t load8(const std::byte* p) {
  uint64_t v;
  std::memcpy(&v, p, 8);
  return v;
}

#if defined(__aarch64__) && !defined(__clang__)
[[gnu::target("+crc")]] uint32_t crc32_instruction(uint32_t crc, std::span<const std::byte> bytes) {
  crc = ~crc;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) crc = __builtin_aarch64_crc32x(crc, load8(bytes.data()));
  for (std::byte b : bytes) crc = __builtin_aarch64_crc32b(crc, static_cast<uint8_t>(b));
  return ~crc;
}
#endif

}  // namespace

uint32_t detail::crc32_portable(uint32_t crc, std::span<const std::byte> bytes) {
  crc = ~crc;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    uint64_t v = load8(bytes.data()) ^ crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][v >> 8 * k & 0xff];
  }
  for (std::byte b : bytes) crc = crc >> 8 ^ kTables[0][(crc ^ static_cast<uint32_t>(b)) & 0xff];
  return ~crc;
}

uint32_t crc32(uint32_t crc, std::span<const std::byte> bytes) {
#if defined(__aarch64__) && !defined(__clang__)
  static const bool instruction = getauxval(AT_HWCAP) & HWCAP_CRC32;
  if (instruction) return crc32_instruction(crc, bytes);
#endif
  return detail::crc32_portable(crc, bytes);
}

}  // namespace deft::io
