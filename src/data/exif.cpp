#include "data/exif.h"

namespace deft::data {

namespace {

struct Tiff {
  std::span<const uint8_t> bytes;
  bool big;
  bool holds(uint64_t at, uint64_t count) const { return at <= bytes.size() && count <= bytes.size() - at; }
  uint32_t u16(uint64_t at) const {
    uint32_t a = bytes[at], b = bytes[at + 1];
    return big ? a << 8 | b : b << 8 | a;
  }
  uint32_t u32(uint64_t at) const {
    uint32_t a = u16(at), b = u16(at + 2);
    return big ? a << 16 | b : b << 16 | a;
  }
};

}  // namespace

int exif_orientation(std::span<const uint8_t> bytes) {
  constexpr uint32_t kMagic = 42, kOrientation = 0x0112, kShort = 3;
  constexpr uint64_t kEntry = 12;
  if (bytes.size() < 8 || bytes[0] != bytes[1] || (bytes[0] != 'M' && bytes[0] != 'I')) return 1;
  Tiff tiff{bytes, bytes[0] == 'M'};
  uint64_t at = tiff.u32(4);
  if (tiff.u16(2) != kMagic || !tiff.holds(at, 2)) return 1;
  uint64_t entries = tiff.u16(at);
  for (at += 2; entries > 0 && tiff.holds(at, kEntry); --entries, at += kEntry) {
    if (tiff.u16(at) != kOrientation || tiff.u16(at + 2) != kShort) continue;
    uint32_t value = tiff.u16(at + 8);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

}  // namespace deft::data
