// Sizes of cached blocks: multiples of 512 bytes up to 4 KiB, then eight steps per power of two.
#pragma once

#include <bit>
#include <cstddef>

namespace deft::cuda {

inline constexpr size_t kBlockAlignment = 512;
inline constexpr size_t kMaxBlock = size_t{1} << 47;
inline constexpr int kSizeClasses = 288;

struct SizeClass {
  int index;
  size_t bytes;
};
constexpr SizeClass size_class_of(size_t bytes) {
  size_t units = bytes == 0 ? 1 : (bytes + kBlockAlignment - 1) / kBlockAlignment;
  if (units <= 8) return {static_cast<int>(units) - 1, units * kBlockAlignment};
  int shift = std::bit_width(units - 1) - 4;
  size_t step = ((units - 1) >> shift) + 1;  // 9..16
  return {8 + shift * 8 + static_cast<int>(step) - 9, (step << shift) * kBlockAlignment};
}
constexpr size_t size_class_bytes(int index) {
  if (index < 8) return (static_cast<size_t>(index) + 1) * kBlockAlignment;
  int shift = (index - 8) / 8;
  return (static_cast<size_t>((index - 8) % 8 + 9) << shift) * kBlockAlignment;
}
static_assert(size_class_of(kMaxBlock).index < kSizeClasses);
static_assert(size_class_bytes(size_class_of(1'000'000).index) == size_class_of(1'000'000).bytes);

}  // namespace deft::cuda
