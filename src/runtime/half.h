// 16-bit floats. Storage types: arithmetic happens in float.
#pragma once

#include <bit>
#include <cstdint>

namespace deft {

struct BFloat16 {
  uint16_t bits;
  BFloat16() = default;
  // Rounds to nearest even; NaN stays NaN.
  constexpr explicit BFloat16(float f) : bits(0) {
    uint32_t u = std::bit_cast<uint32_t>(f);
    if ((u & 0x7fffffff) > 0x7f800000) {
      bits = static_cast<uint16_t>((u >> 16) | 0x40);
    } else {
      bits = static_cast<uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16);
    }
  }
  constexpr operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

struct Half {
  uint16_t bits;
  Half() = default;
  constexpr explicit Half(float f) : bits(encode(f)) {}
  constexpr operator float() const { return decode(bits); }

 private:
  static constexpr uint16_t encode(float f) {
    uint32_t u = std::bit_cast<uint32_t>(f);
    uint16_t sign = static_cast<uint16_t>((u >> 16) & 0x8000);
    uint32_t a = u & 0x7fffffff;
    if (a > 0x7f800000) return sign | 0x7e00;
    if (a >= 0x477ff000) return sign | 0x7c00;  // rounds to infinity
    if (a < 0x38800000) {                       // subnormal: let the float adder round
      float r = std::bit_cast<float>(a) + 0.5f;
      return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(r) - 0x3f000000);
    }
    uint32_t odd = (a >> 13) & 1;
    return sign | static_cast<uint16_t>((a + 0xc8000fff + odd) >> 13);
  }
  static constexpr float decode(uint16_t h) {
    uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
    uint32_t a = h & 0x7fff;
    if (a >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | ((a & 0x3ff) << 13));
    if (a >= 0x0400) return std::bit_cast<float>(sign | ((a << 13) + 0x38000000));
    float r = static_cast<float>(a) * 0x1p-24f;
    return sign ? -r : r;
  }
};

}  // namespace deft
