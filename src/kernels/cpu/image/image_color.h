// Colours of 8-bit images: the changes of colour jitter, and the conversion of bytes to normalised floats. Integers, or
// single IEEE operations that no compiler can fuse: the same bits on every machine.
#pragma once

#include <cstdint>

namespace deft::cpu {

// All on interleaved RGB, in place; factors in units of 2^-16, results rounded and held to 0..255.
// value = base + factor (value - base): brightness with base 0, contrast with base mean_gray().
void blend_with_level(uint8_t* pixels, int64_t count, int base, int32_t factor);
// The same with each pixel's own gray as base: saturation.
void blend_with_gray(uint8_t* pixels, int64_t count, int32_t factor);
// Rotates the hue by `turn` / 2^16 of the circle, -0.5 to 0.5; value and saturation (of HSV) stay.
void turn_hue(uint8_t* pixels, int64_t count, int32_t turn);
// Mean of the grays, rounded. Gray is (77 R + 150 G + 29 B) / 256, rounded: within 0.7 of ITU-R 601's.
int mean_gray(const uint8_t* pixels, int64_t count);
void to_gray(const uint8_t* pixels, int64_t count, uint8_t* gray);

// out[i] = (in[i] - mean[i]) * scale[i]
void normalize_bytes(const uint8_t* in, int64_t n, const float* mean, const float* scale, float* out);
// Three planes from interleaved RGB.
void split_channels(const uint8_t* pixels, int64_t count, uint8_t* red, uint8_t* green, uint8_t* blue);

}  // namespace deft::cpu
