// Transposes of small blocks of values, in vectors of at most 16 bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace deft::cpu {

// Transposes 4 x 4 values. T: an unsigned integer of the element's size.
template <class T>
struct Block4 {
  typedef T V __attribute__((vector_size(4 * sizeof(T))));
  V a, b, c, d;
  static V load(const T* p) {
    V v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static void store(V v, T* p) { std::memcpy(p, &v, sizeof v); }
  void transpose() {
    const V ab0 = __builtin_shuffle(a, b, V{0, 4, 1, 5}), ab1 = __builtin_shuffle(a, b, V{2, 6, 3, 7});
    const V cd0 = __builtin_shuffle(c, d, V{0, 4, 1, 5}), cd1 = __builtin_shuffle(c, d, V{2, 6, 3, 7});
    a = __builtin_shuffle(ab0, cd0, V{0, 1, 4, 5}), b = __builtin_shuffle(ab0, cd0, V{2, 3, 6, 7});
    c = __builtin_shuffle(ab1, cd1, V{0, 1, 4, 5}), d = __builtin_shuffle(ab1, cd1, V{2, 3, 6, 7});
  }
};

// Vectors of 32 bytes are not in the calling convention of every machine.
template <>
struct Block4<uint64_t> {
  struct V {
    uint64_t v[4];
  };
  V a, b, c, d;
  static V load(const uint64_t* p) {
    V v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static void store(const V& v, uint64_t* p) { std::memcpy(p, &v, sizeof v); }
  void transpose() {
    V* rows[4] = {&a, &b, &c, &d};
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < i; ++j) std::swap(rows[i]->v[j], rows[j]->v[i]);
    }
  }
};

// Interleaves two rows of 16-bit values or four rows of bytes, as the words that VNNI and AMX instructions multiply:
// out[group * j + g] = rows[g][j], j < count.
template <int group>
inline void interleave_words(const void* const* rows, int64_t count, void* out) {
  using T = std::conditional_t<group == 2, uint16_t, uint8_t>;
  constexpr int kLanes = 16 / sizeof(T);
  typedef T V __attribute__((vector_size(16)));
  typedef uint16_t Pairs __attribute__((vector_size(16)));
  const T* row[group];
  for (int g = 0; g < group; ++g) row[g] = static_cast<const T*>(rows[g]);
  T* to = static_cast<T*>(out);
  const auto load = [&](int g, int64_t j) {
    V v;
    std::memcpy(&v, row[g] + j, sizeof v);
    return v;
  };
  const auto store = [&](int64_t vector, auto v) { std::memcpy(to + vector * kLanes, &v, sizeof v); };
  int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes, to += group * kLanes) {
    if constexpr (group == 2) {
      constexpr V kLow{0, 8, 1, 9, 2, 10, 3, 11}, kHigh{4, 12, 5, 13, 6, 14, 7, 15};
      const V a = load(0, j), b = load(1, j);
      store(0, __builtin_shuffle(a, b, kLow)), store(1, __builtin_shuffle(a, b, kHigh));
    } else {
      constexpr V kLow{0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23};
      constexpr V kHigh{8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
      constexpr Pairs kLow2{0, 8, 1, 9, 2, 10, 3, 11}, kHigh2{4, 12, 5, 13, 6, 14, 7, 15};
      const V a = load(0, j), b = load(1, j), c = load(2, j), d = load(3, j);
      const Pairs ab0 = Pairs(__builtin_shuffle(a, b, kLow)), ab1 = Pairs(__builtin_shuffle(a, b, kHigh));
      const Pairs cd0 = Pairs(__builtin_shuffle(c, d, kLow)), cd1 = Pairs(__builtin_shuffle(c, d, kHigh));
      store(0, __builtin_shuffle(ab0, cd0, kLow2)), store(1, __builtin_shuffle(ab0, cd0, kHigh2));
      store(2, __builtin_shuffle(ab1, cd1, kLow2)), store(3, __builtin_shuffle(ab1, cd1, kHigh2));
    }
  }
  for (; j < count; ++j, to += group) {
    for (int g = 0; g < group; ++g) to[g] = row[g][j];
  }
}

// Interleaves four rows of 16-bit values, as groups of four values of k are packed: out[4 * j + g] = rows[g][j],
// j < count.
inline void interleave_four(const uint16_t* const rows[4], int64_t count, uint16_t* out) {
  typedef uint16_t Eight __attribute__((vector_size(16)));
  typedef uint16_t Four __attribute__((vector_size(8)));
  const auto load = [](auto& v, const uint16_t* p) { std::memcpy(&v, p, sizeof v); };
  const auto store = [](uint16_t* p, auto v) { std::memcpy(p, &v, sizeof v); };
  int64_t j = 0;
  for (; j + 8 <= count; j += 8, out += 32) {
    Eight a, b, c, d;
    load(a, rows[0] + j), load(b, rows[1] + j), load(c, rows[2] + j), load(d, rows[3] + j);
    constexpr Eight kLow{0, 8, 1, 9, 2, 10, 3, 11}, kHigh{4, 12, 5, 13, 6, 14, 7, 15};
    const Eight ac0 = __builtin_shuffle(a, c, kLow), ac1 = __builtin_shuffle(a, c, kHigh);
    const Eight bd0 = __builtin_shuffle(b, d, kLow), bd1 = __builtin_shuffle(b, d, kHigh);
    store(out, __builtin_shuffle(ac0, bd0, kLow));
    store(out + 8, __builtin_shuffle(ac0, bd0, kHigh));
    store(out + 16, __builtin_shuffle(ac1, bd1, kLow));
    store(out + 24, __builtin_shuffle(ac1, bd1, kHigh));
  }
  for (; j + 4 <= count; j += 4, out += 16) {
    Four a, b, c, d;
    load(a, rows[0] + j), load(b, rows[1] + j), load(c, rows[2] + j), load(d, rows[3] + j);
    constexpr Four kLow{0, 4, 1, 5}, kHigh{2, 6, 3, 7};
    const Four ac0 = __builtin_shuffle(a, c, kLow), ac1 = __builtin_shuffle(a, c, kHigh);
    const Four bd0 = __builtin_shuffle(b, d, kLow), bd1 = __builtin_shuffle(b, d, kHigh);
    store(out, __builtin_shuffle(ac0, bd0, kLow));
    store(out + 4, __builtin_shuffle(ac0, bd0, kHigh));
    store(out + 8, __builtin_shuffle(ac1, bd1, kLow));
    store(out + 12, __builtin_shuffle(ac1, bd1, kHigh));
  }
  for (; j < count; ++j, out += 4) {
    for (int g = 0; g < 4; ++g) out[g] = rows[g][j];
  }
}

// Interleaves eight rows of bytes: out[8 * j + g] = rows[g][j], j < count.
inline void interleave_eight(const uint8_t* const rows[8], int64_t count, uint8_t* out) {
  typedef uint8_t Eight __attribute__((vector_size(8)));
  typedef uint8_t V __attribute__((vector_size(16)));
  constexpr V kLow{0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23};
  constexpr V kHigh{8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  int64_t j = 0;
  for (; j + 8 <= count; j += 8, out += 64) {
    // Interleaves rows g and g + 4, and so on: each step doubles the length of the groups.
    V a[4], b[4];
    for (int g = 0; g < 4; ++g) {
      Eight x, y;
      std::memcpy(&x, rows[g] + j, sizeof x);
      std::memcpy(&y, rows[g + 4] + j, sizeof y);
      const V wide_x = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
      const V wide_y = __builtin_shufflevector(y, y, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
      a[g] = __builtin_shuffle(wide_x, wide_y, kLow);
    }
    for (int g = 0; g < 2; ++g) {
      b[2 * g] = __builtin_shuffle(a[g], a[g + 2], kLow), b[2 * g + 1] = __builtin_shuffle(a[g], a[g + 2], kHigh);
    }
    for (int g = 0; g < 2; ++g) {
      const V low = __builtin_shuffle(b[g], b[g + 2], kLow), high = __builtin_shuffle(b[g], b[g + 2], kHigh);
      std::memcpy(out + 32 * g, &low, sizeof low);
      std::memcpy(out + 32 * g + 16, &high, sizeof high);
    }
  }
  for (; j < count; ++j, out += 8) {
    for (int g = 0; g < 8; ++g) out[g] = rows[g][j];
  }
}

}  // namespace deft::cpu
