#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/image/image_color.cpp"
#include "hwy/foreach_target.h"
//
#include <algorithm>
#include <cstdlib>

#include "hwy/highway.h"
#include "kernels/cpu/image/image_color.h"

// Plain loops: compilers vectorise them, three channels at a time where they are interleaved.
HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

inline int gray_of(const uint8_t* p) { return (77 * p[0] + 150 * p[1] + 29 * p[2] + 128) >> 8; }

inline uint8_t blend(int value, int base, int32_t factor) {
  return static_cast<uint8_t>(std::clamp(base + (((value - base) * factor + (1 << 15)) >> 16), 0, 255));
}

void level_blend(uint8_t* HWY_RESTRICT pixels, int64_t count, int base, int32_t factor) {
  for (int64_t i = 0; i < 3 * count; ++i) pixels[i] = blend(pixels[i], base, factor);
}

void gray_blend(uint8_t* HWY_RESTRICT pixels, int64_t count, int32_t factor) {
  for (int64_t i = 0; i < count; ++i) {
    uint8_t* p = pixels + 3 * i;
    int gray = gray_of(p), r = p[0], g = p[1], b = p[2];
    p[0] = blend(r, gray, factor);
    p[1] = blend(g, gray, factor);
    p[2] = blend(b, gray, factor);
  }
}

// Hue times chroma is an integer: with d = max - min, hue runs from 0 to 6 d, and so does all that follows from it.
void hue_turn(uint8_t* HWY_RESTRICT pixels, int64_t count, int32_t turn) {
  for (int64_t i = 0; i < count; ++i) {
    uint8_t* p = pixels + 3 * i;
    int r = p[0], g = p[1], b = p[2];
    int high = std::max(r, std::max(g, b)), low = std::min(r, std::min(g, b)), d = high - low;
    int hue = high == r ? g - b : high == g ? 2 * d + b - r : 4 * d + r - g;
    hue += (6 * d * turn + (1 << 15)) >> 16;
    hue = hue < 0 ? hue + 6 * d : hue;
    hue = hue >= 6 * d ? hue - 6 * d : hue;
    p[0] = static_cast<uint8_t>(low + std::clamp(std::abs(hue - 3 * d) - d, 0, d));
    p[1] = static_cast<uint8_t>(low + std::clamp(2 * d - std::abs(hue - 2 * d), 0, d));
    p[2] = static_cast<uint8_t>(low + std::clamp(2 * d - std::abs(hue - 4 * d), 0, d));
  }
}

int64_t gray_sum(const uint8_t* HWY_RESTRICT pixels, int64_t count) {
  int64_t sum = 0;
  constexpr int64_t kBlock = 4096;  // its sum fits 32 bits
  for (int64_t i = 0; i < count; i += kBlock) {
    uint32_t part = 0;
    for (int64_t k = i; k < std::min(count, i + kBlock); ++k) part += static_cast<uint32_t>(gray_of(pixels + 3 * k));
    sum += part;
  }
  return sum;
}

void gray_copy(const uint8_t* HWY_RESTRICT pixels, int64_t count, uint8_t* HWY_RESTRICT gray) {
  for (int64_t i = 0; i < count; ++i) gray[i] = static_cast<uint8_t>(gray_of(pixels + 3 * i));
}

void normalized(const uint8_t* HWY_RESTRICT in, int64_t n, const float* HWY_RESTRICT mean,
                const float* HWY_RESTRICT scale, float* HWY_RESTRICT out) {
  for (int64_t i = 0; i < n; ++i) out[i] = (static_cast<float>(in[i]) - mean[i]) * scale[i];
}

void split(const uint8_t* HWY_RESTRICT pixels, int64_t count, uint8_t* HWY_RESTRICT red, uint8_t* HWY_RESTRICT green,
           uint8_t* HWY_RESTRICT blue) {
  for (int64_t i = 0; i < count; ++i) {
    red[i] = pixels[3 * i];
    green[i] = pixels[3 * i + 1];
    blue[i] = pixels[3 * i + 2];
  }
}

}  // namespace
}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft::cpu {
HWY_EXPORT(level_blend);
HWY_EXPORT(gray_blend);
HWY_EXPORT(hue_turn);
HWY_EXPORT(gray_sum);
HWY_EXPORT(gray_copy);
HWY_EXPORT(normalized);
HWY_EXPORT(split);

void blend_with_level(uint8_t* pixels, int64_t count, int base, int32_t factor) {
  HWY_DYNAMIC_DISPATCH(level_blend)(pixels, count, base, factor);
}
void blend_with_gray(uint8_t* pixels, int64_t count, int32_t factor) {
  HWY_DYNAMIC_DISPATCH(gray_blend)(pixels, count, factor);
}
void turn_hue(uint8_t* pixels, int64_t count, int32_t turn) { HWY_DYNAMIC_DISPATCH(hue_turn)(pixels, count, turn); }
int mean_gray(const uint8_t* pixels, int64_t count) {
  return static_cast<int>((HWY_DYNAMIC_DISPATCH(gray_sum)(pixels, count) + count / 2) / count);
}
void to_gray(const uint8_t* pixels, int64_t count, uint8_t* gray) {
  HWY_DYNAMIC_DISPATCH(gray_copy)(pixels, count, gray);
}
void normalize_bytes(const uint8_t* in, int64_t n, const float* mean, const float* scale, float* out) {
  HWY_DYNAMIC_DISPATCH(normalized)(in, n, mean, scale, out);
}
void split_channels(const uint8_t* pixels, int64_t count, uint8_t* red, uint8_t* green, uint8_t* blue) {
  HWY_DYNAMIC_DISPATCH(split)(pixels, count, red, green, blue);
}

}  // namespace deft::cpu
#endif  // HWY_ONCE
