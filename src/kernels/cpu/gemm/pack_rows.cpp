#include "kernels/cpu/gemm/pack_rows.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/x86/pack_words.h"
#include "runtime/cpu_isa.h"
#include "runtime/half.h"
#if defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__x86_64__)
#include <immintrin.h>
#endif

namespace deft::cpu {

alignas(64) const unsigned char kZeroLine[kZeroLineBytes] = {};

namespace {

// Vectors of 16 bytes: every machine has them, and packing is bound by memory.
typedef uint32_t Words __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint64_t Doubles __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint8_t Bytes __attribute__((vector_size(16), aligned(1), may_alias));

template <class V>
V load(const void* p) {
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class V>
void store(void* p, V v) {
  std::memcpy(p, &v, sizeof v);
}
const char* at(const void* p, int64_t bytes) { return static_cast<const char*>(p) + bytes; }
char* at(void* p, int64_t bytes) { return static_cast<char*>(p) + bytes; }

// A unit is the group of one line. An incomplete last unit is filled with zeros.
template <int unit, unsigned char flip>
void pack_tail(const void* const* lines, int count, int64_t done, int64_t bytes, void* out) {
  for (int l = 0; l < count; ++l) {
    unsigned char tail[unit] = {};
    std::memcpy(tail, at(lines[l], done), static_cast<size_t>(bytes - done));
    for (int64_t i = 0; i < bytes - done; ++i) tail[i] ^= flip;
    std::memcpy(at(out, l * unit), tail, unit);
  }
}
template <int unit, unsigned char flip>
void copy_units(const void* const* lines, int count, int64_t begin, int64_t end, void* out, int64_t out_step) {
  for (int64_t p = begin; p < end; p += unit, out = at(out, out_step)) {
    for (int l = 0; l < count; ++l) pack_tail<unit, flip>(lines + l, 1, p, p + unit, at(out, l * unit));
  }
}

// Four lines of 4-byte units, transposed in blocks of 4 x 4.
template <unsigned char flip>
void pack_words(const void* const* lines, int count, int64_t bytes, void* out, int64_t out_step) {
  int64_t p = 0;
  if (count == 4) {
    const Bytes mask = Bytes{} + flip;
    const void *l0 = lines[0], *l1 = lines[1], *l2 = lines[2], *l3 = lines[3];
    for (; p + 16 <= bytes; p += 16, out = at(out, 4 * out_step)) {
      const Words a = load<Words>(at(l0, p)), b = load<Words>(at(l1, p));
      const Words c = load<Words>(at(l2, p)), d = load<Words>(at(l3, p));
      const Words ab0 = __builtin_shuffle(a, b, Words{0, 4, 1, 5}), ab1 = __builtin_shuffle(a, b, Words{2, 6, 3, 7});
      const Words cd0 = __builtin_shuffle(c, d, Words{0, 4, 1, 5}), cd1 = __builtin_shuffle(c, d, Words{2, 6, 3, 7});
      const auto put = [&](int64_t i, Words v) { store(at(out, i * out_step), reinterpret_cast<Bytes&>(v) ^ mask); };
      put(0, __builtin_shuffle(ab0, cd0, Words{0, 1, 4, 5}));
      put(1, __builtin_shuffle(ab0, cd0, Words{2, 3, 6, 7}));
      put(2, __builtin_shuffle(ab1, cd1, Words{0, 1, 4, 5}));
      put(3, __builtin_shuffle(ab1, cd1, Words{2, 3, 6, 7}));
    }
  }
  const int64_t whole = bytes / 4 * 4;
  copy_units<4, flip>(lines, count, p, whole, out, out_step);
  if (whole < bytes) pack_tail<4, flip>(lines, count, whole, bytes, at(out, (whole - p) / 4 * out_step));
}

// 8-byte units, transposed in blocks of 2 x 2.
template <unsigned char flip>
void pack_doubles(const void* const* lines, int count, int64_t bytes, void* out, int64_t out_step) {
  int64_t p = 0;
  if (count == 4) {
    const Bytes mask = Bytes{} + flip;
    const void *l0 = lines[0], *l1 = lines[1], *l2 = lines[2], *l3 = lines[3];
    for (; p + 16 <= bytes; p += 16, out = at(out, 2 * out_step)) {
      const Doubles a = load<Doubles>(at(l0, p)), b = load<Doubles>(at(l1, p));
      const Doubles c = load<Doubles>(at(l2, p)), d = load<Doubles>(at(l3, p));
      const auto put = [&](int64_t i, int64_t offset, Doubles v) {
        store(at(out, i * out_step + offset), reinterpret_cast<Bytes&>(v) ^ mask);
      };
      put(0, 0, __builtin_shuffle(a, b, Doubles{0, 2}));
      put(0, 16, __builtin_shuffle(c, d, Doubles{0, 2}));
      put(1, 0, __builtin_shuffle(a, b, Doubles{1, 3}));
      put(1, 16, __builtin_shuffle(c, d, Doubles{1, 3}));
    }
  }
  const int64_t whole = bytes / 8 * 8;
  copy_units<8, flip>(lines, count, p, whole, out, out_step);
  if (whole < bytes) pack_tail<8, flip>(lines, count, whole, bytes, at(out, (whole - p) / 8 * out_step));
}

// The same for all lines of a panel at once: pairs of lines, two units of each. Meanwhile the same lines of the next
// panel, `ahead` bytes on, are prefetched.
template <int width, unsigned char flip>
void pack_pairs(const void* const* lines, int64_t bytes, int64_t ahead, void* out) {
  const Bytes mask = Bytes{} + flip;
  const char* in[width];
  for (int l = 0; l < width; ++l) in[l] = at(lines[l], 0);
  char* to = at(out, 0);
  for (int64_t p = 0; p < bytes; p += 16, to += 16 * width) {
    if (ahead && p % 64 == 0) {
      for (int l = 0; l < width; ++l) __builtin_prefetch(in[l] + ahead + p);
    }
    Doubles v[width];
    for (int l = 0; l < width; ++l) v[l] = load<Doubles>(in[l] + p);
    const auto put = [&](int64_t offset, Doubles x) { store(to + offset, reinterpret_cast<Bytes&>(x) ^ mask); };
    for (int l = 0; l < width; l += 2) put(8 * l, __builtin_shuffle(v[l], v[l + 1], Doubles{0, 2}));
    for (int l = 0; l < width; l += 2) put(8 * (l + width), __builtin_shuffle(v[l], v[l + 1], Doubles{1, 3}));
  }
}
template <unsigned char flip>
PackPairs choose_pairs(int width) {
  return width == 8 ? pack_pairs<8, flip> : width == 12 ? pack_pairs<12, flip> : nullptr;
}

// Units of 1, 2 and 64 bytes.
template <int unit, unsigned char flip>
void pack_units(const void* const* lines, int count, int64_t bytes, void* out, int64_t out_step) {
  const int64_t whole = bytes / unit * unit;
  copy_units<unit, flip>(lines, count, 0, whole, out, out_step);
  if (whole < bytes) pack_tail<unit, flip>(lines, count, whole, bytes, at(out, whole / unit * out_step));
}

template <int64_t size, void (*pack_bytes)(const void* const*, int, int64_t, void*, int64_t)>
void values(const void* const* lines, int count, int64_t k, void* out, int64_t out_step) {
  pack_bytes(lines, count, k * size, out, out_step);
}

// ---- With conversion. `group` values make a unit.
template <class To, class From, int group>
void pack_converted(const void* const* lines, int count, int64_t k, void* out, int64_t out_step) {
  const int64_t whole = k / group * group;
  for (int l = 0; l < count; ++l) {
    const From* from = static_cast<const From*>(lines[l]);
    char* to = at(out, l * group * static_cast<int64_t>(sizeof(To)));
    for (int64_t p = 0; p < whole; p += group, to += out_step) {
      To unit[group];
      for (int g = 0; g < group; ++g) unit[g] = To(static_cast<float>(from[p + g]));
      std::memcpy(to, unit, sizeof unit);
    }
    if (whole == k) continue;
    To unit[group] = {};
    for (int64_t g = 0; whole + g < k; ++g) unit[g] = To(static_cast<float>(from[whole + g]));
    std::memcpy(to, unit, sizeof unit);
  }
}

// Converts through a buffer of words in L1, which is then packed as f32 lines. k is cut into pieces.
template <class From>
void widen(const From* from, int64_t count, float* to) {
#if defined(__aarch64__)
  if constexpr (std::is_same_v<From, Half>) {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(std::bit_cast<__fp16>(from[i].bits));
    return;
  }
#endif
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
}
template <class From>
void pack_widened(const void* const* lines, int count, int64_t k, void* out, int64_t out_step) {
  constexpr int64_t kPiece = 256;
  alignas(64) float buffer[4][kPiece];
  const void* pieces[4] = {buffer[0], buffer[1], buffer[2], buffer[3]};
  for (int64_t p = 0; p < k; p += kPiece, out = at(out, kPiece * out_step)) {
    const int64_t size = std::min(kPiece, k - p);
    for (int l = 0; l < count; ++l) widen(static_cast<const From*>(lines[l]) + p, size, buffer[l]);
    pack_words<0>(pieces, count, size * 4, out, out_step);
  }
}

#if defined(__aarch64__)
// BFCVTN rounds four values to nearest even in one instruction.
__attribute__((target("arch=armv8.2-a+bf16"))) void pack_bf16_by_4(const void* const* lines, int count, int64_t k,
                                                                   void* out, int64_t out_step) {
  int64_t p = 0;
  if (count == 4) {
    const auto *l0 = static_cast<const float*>(lines[0]), *l1 = static_cast<const float*>(lines[1]);
    const auto *l2 = static_cast<const float*>(lines[2]), *l3 = static_cast<const float*>(lines[3]);
    const auto pair = [](const float* x, const float* y) __attribute__((target("arch=armv8.2-a+bf16"))) {
      return vreinterpretq_u8_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(vld1q_f32(x)), vld1q_f32(y)));
    };
    for (; p + 4 <= k; p += 4, out = at(out, out_step)) {
      vst1q_u8(reinterpret_cast<uint8_t*>(out), pair(l0 + p, l1 + p));
      vst1q_u8(reinterpret_cast<uint8_t*>(out) + 16, pair(l2 + p, l3 + p));
    }
  }
  const void* rest[4];
  for (int l = 0; l < count; ++l) rest[l] = at(lines[l], p * 4);
  if (p < k) pack_converted<BFloat16, float, 4>(rest, count, k - p, out, out_step);
}
// The same for all lines of a panel at once, as pack_pairs().
template <int width>
__attribute__((target("arch=armv8.2-a+bf16"))) void pack_bf16_pairs(const void* const* lines, int64_t bytes,
                                                                    int64_t ahead, void* out) {
  const float* in[width];
  for (int l = 0; l < width; ++l) in[l] = static_cast<const float*>(lines[l]);
  auto* to = static_cast<bfloat16_t*>(out);
  for (int64_t p = 0; p < bytes / 4; p += 4, to += 4 * width) {
    if (ahead && p % 16 == 0) {
      for (int l = 0; l < width; ++l) __builtin_prefetch(at(in[l], ahead + 4 * p));
    }
    for (int l = 0; l < width; l += 2) {
      const bfloat16x8_t low = vcvtq_low_bf16_f32(vld1q_f32(in[l] + p));
      vst1q_bf16(to + 4 * l, vcvtq_high_bf16_f32(low, vld1q_f32(in[l + 1] + p)));
    }
  }
}
#endif
#if defined(__x86_64__)
// Units of one or two vectors, for AMX: 27 GB/s from memory instead of 7.
template <int unit, unsigned char flip>
[[gnu::target("avx512f")]] void pack_vectors(const void* const* lines, int count, int64_t bytes, void* out,
                                             int64_t out_step) {
  const int64_t whole = bytes / unit * unit;
  const __m512i mask = _mm512_set1_epi32(static_cast<int>(flip * 0x01010101u));
  for (int64_t p = 0; p < whole; p += unit, out = at(out, out_step)) {
    for (int l = 0; l < count; ++l) {
      for (int i = 0; i < unit; i += 64) {
        _mm512_storeu_si512(at(out, l * unit + i), _mm512_xor_si512(_mm512_loadu_si512(at(lines[l], p + i)), mask));
      }
    }
  }
  if (whole < bytes) pack_tail<unit, flip>(lines, count, whole, bytes, out);
}

// VCVTNEPS2BF16 rounds eight values to nearest even in one instruction.
__attribute__((target("avx512f,avx512vl,avx512bf16"))) void pack_bf16_by_32(const void* const* lines, int count,
                                                                            int64_t k, void* out, int64_t out_step) {
  const int64_t whole = k / 32 * 32;
  for (int l = 0; l < count; ++l) {
    const float* from = static_cast<const float*>(lines[l]);
    char* to = at(out, l * 64);
    for (int64_t p = 0; p < whole; p += 32, to += out_step) {
      const __m512bh v = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + p + 16), _mm512_loadu_ps(from + p));
      std::memcpy(to, &v, sizeof v);
    }
  }
  if (whole == k) return;
  const void* rest[4];
  for (int l = 0; l < count; ++l) rest[l] = at(lines[l], whole * 4);
  pack_converted<BFloat16, float, 32>(rest, count, k - whole, at(out, whole / 32 * out_step), out_step);
}
#endif

template <int64_t size, unsigned char flip>
PackLines pack_same(int group) {
  switch (size * group) {
    case 1:
      return values<size, pack_units<1, flip>>;
    case 2:
      return values<size, pack_units<2, flip>>;
    case 4:
      return values<size, pack_words<flip>>;
    case 8:
      return values<size, pack_doubles<flip>>;
    case 64:
#if defined(__x86_64__)
      if (cpu_has("avx512f")) return values<size, pack_vectors<64, flip>>;
#endif
      return values<size, pack_units<64, flip>>;
#if defined(__x86_64__)
    case 128:  // for split panels
      return values<size, pack_vectors<128, flip>>;
#endif
    default:
      return nullptr;
  }
}

PackLines pack_to_bf16(int group) {
#if defined(__aarch64__)
  if (group == 4 && cpu_has("bf16")) return pack_bf16_by_4;
#elif defined(__x86_64__)
  if (group == 32 && cpu_has("avx512_bf16")) return pack_bf16_by_32;
#endif
  switch (group) {
    case 2:
      return pack_converted<BFloat16, float, 2>;
    case 4:
      return pack_converted<BFloat16, float, 4>;
    case 32:
      return pack_converted<BFloat16, float, 32>;
    default:
      return nullptr;
  }
}

#if defined(__x86_64__)
template <unsigned char flip>
int64_t words_512(const void* const* lines, int width, int64_t bytes, int64_t ahead, void* out) {
  return pack_words_512(lines, width, bytes, ahead, flip, out);
}
#endif

// Bytes of the opposite sign to the panel's.
bool flips(const GemmTile& tile, Side side, DType from) {
  return (from == DType::u8) != (tile.panel == Panel::u8s8 && side == Side::a);
}

PackLines choose(const GemmTile& tile, Side side, DType from) {
  const int group = tile.group(side);
  switch (tile.panel) {
    case Panel::f32:
      if (from == DType::f32) return pack_same<4, 0>(group);
      if (group != 1) return nullptr;
      if (from == DType::bf16) return pack_widened<BFloat16>;
      return from == DType::f16 ? pack_widened<Half> : nullptr;
    case Panel::f64:
      return from == DType::f64 ? pack_same<8, 0>(group) : nullptr;
    case Panel::f16:
      if (from == DType::f16) return pack_same<2, 0>(group);
      return from == DType::f32 && group == 1 ? pack_converted<Half, float, 1> : nullptr;
    case Panel::bf16:
      if (from == DType::bf16) return pack_same<2, 0>(group);
      return from == DType::f32 ? pack_to_bf16(group) : nullptr;
    case Panel::s8:
    case Panel::u8s8:
      if (from != DType::i8 && from != DType::u8) return nullptr;
      return flips(tile, side, from) ? pack_same<1, 0x80>(group) : pack_same<1, 0>(group);
    case Panel::split:
      return nullptr;
  }
  return nullptr;
}

}  // namespace

PanelRows::PanelRows(const GemmTile& tile, Side side, DType from)
    : pack_(choose(tile, side, from)),
      width_(tile.width(side)),
      group_(tile.group(side)),
      group_bytes_(tile.group(side) * size_of(tile.panel)),
      value_bytes_(static_cast<int64_t>(size_of(from))) {
  if (group_bytes_ == 8 && value_bytes_ == size_of(tile.panel) && pack_) {
    pairs_ = value_bytes_ == 1 && flips(tile, side, from) ? choose_pairs<0x80>(width_) : choose_pairs<0>(width_);
  }
#if defined(__aarch64__)
  if (pack_ == pack_bf16_by_4) pairs_ = width_ == 8 ? pack_bf16_pairs<8> : width_ == 12 ? pack_bf16_pairs<12> : nullptr;
#endif
#if defined(__x86_64__)
  if (group_bytes_ == 4 && value_bytes_ * group_ == 4 && pack_ && cpu_has("avx512f") && cpu_has("avx512dq") &&
      cpu_has("avx512vl")) {
    const bool bytes = size_of(tile.panel) == 1;
    words_ = bytes && flips(tile, side, from) ? words_512<0x80> : words_512<0>;
  }
#endif
}

void PanelRows::set(const void* first, int64_t line, int64_t live, bool more) {
  for (int64_t l = 0; l < width_; ++l) {
    lines_[l] = kZeroLine;
    if (l < live) lines_[l] = at(first, l * line * value_bytes_);
  }
  ahead_ = more ? width_ * line * value_bytes_ : 0;
}

void PanelRows::pack(int64_t k, void* out) const {
  if (words_) {
    const int64_t done = words_(lines_, width_, k * value_bytes_, ahead_, out) / value_bytes_;
    if (done < k) pack_part(done, k - done, at(out, done / group_ * width_ * group_bytes_));
    return;
  }
  // Long lines come from memory: GEMMs of 3136 x 64 x 576 gain 2 to 3 %. With k = 256 bf16 loses 3 %.
  constexpr int64_t kLong = 512;
  if (pairs_ && k * value_bytes_ % 16 == 0) return pairs_(lines_, k * value_bytes_, k < kLong ? 0 : ahead_, out);
  if (ahead_ == 0 || k < kLong) return pack_part(0, k, out);
  constexpr int64_t kPiece = 64;  // a multiple of every group
  for (int64_t p = 0; p < k; p += kPiece) {
    const int64_t size = std::min(kPiece, k - p);
    for (int l = 0; l < width_; ++l) {
      const char* next = at(lines_[l], ahead_ + p * value_bytes_);
      for (int64_t i = 0; i < size * value_bytes_; i += 64) __builtin_prefetch(next + i);
    }
    pack_part(p, size, at(out, p * width_ * group_bytes_ / group_));
  }
}

void PanelRows::pack_part(int64_t from, int64_t k, void* out) const {
  const int count = std::min(4, width_);
  for (int next = 0; next < width_; next += 4) {
    const int l = std::min(next, width_ - count);  // the last four may overlap the previous four
    const void* lines[4];
    for (int i = 0; i < count; ++i) lines[i] = at(lines_[l + i], from * value_bytes_);
    pack_(lines, count, k, at(out, l * group_bytes_), width_ * group_bytes_);
  }
}

}  // namespace deft::cpu
