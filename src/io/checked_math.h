// Arithmetic on sizes from files: overflow is an answer, not a wrapped number.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace deft::io {

inline std::optional<uint64_t> checked_add(uint64_t a, uint64_t b) {
  uint64_t r;
  if (__builtin_add_overflow(a, b, &r)) return {};
  return r;
}
inline std::optional<uint64_t> checked_mul(uint64_t a, uint64_t b) {
  uint64_t r;
  if (__builtin_mul_overflow(a, b, &r)) return {};
  return r;
}
// Bits of a dense tensor. None when those of its sizes other than 0 exceed int64: no Meta could hold it.
inline std::optional<uint64_t> checked_bits(std::span<const uint64_t> sizes, uint64_t bits_per_element) {
  uint64_t total = bits_per_element;
  bool empty = false;
  for (uint64_t s : sizes) {
    empty |= s == 0;
    auto next = checked_mul(total, s ? s : 1);
    if (!next || *next > INT64_MAX) return {};
    total = *next;
  }
  return empty ? 0 : total;
}

}  // namespace deft::io
