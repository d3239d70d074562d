#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/copy/transpose.cpp"
#include "hwy/foreach_target.h"
//
#include <algorithm>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/cpu/copy/transpose.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Blocks are passed by value: stores of bytes might otherwise change one, and every field would be loaded again.

// Elements at any distance, one by one.
template <class T>
void move_each(TransposeBlock b) {
  for (int64_t j = 0; j < b.cols; ++j) {
    const char* s = b.src + j * b.src_stride;
    char* d = b.dst + j * static_cast<int64_t>(sizeof(T));
    for (int64_t i = 0; i < b.rows; ++i) std::memcpy(d + i * b.dst_stride, s + i * b.src_step, sizeof(T));
  }
}
// The columns from j on, which whole vectors leave over.
template <class T>
void move_rest(TransposeBlock b, int64_t j) {
  b.src += j * b.src_stride;
  b.dst += j * static_cast<int64_t>(sizeof(T));
  b.cols -= j;
  move_each<T>(b);
}

// Elements of 16 bytes or more: whole vectors, the last one overlapping.
void move_long(TransposeBlock b) {
  for (int64_t j = 0; j < b.cols; ++j) {
    const char* s = b.src + j * b.src_stride;
    char* d = b.dst + j * static_cast<int64_t>(b.size);
    for (int64_t i = 0; i < b.rows; ++i, s += b.src_step, d += b.dst_stride) {
      for (size_t k = 0; k + 16 < b.size; k += 16) std::memcpy(d + k, s + k, 16);
      std::memcpy(d + b.size - 16, s + b.size - 16, 16);
    }
  }
}

void move_odd(TransposeBlock b) {
  for (int64_t j = 0; j < b.cols; ++j) {
    for (int64_t i = 0; i < b.rows; ++i) {
      std::memcpy(b.dst + i * b.dst_stride + j * static_cast<int64_t>(b.size),
                  b.src + j * b.src_stride + i * b.src_step, b.size);
    }
  }
}

#if HWY_TARGET != HWY_SCALAR

template <class T>
inline constexpr int kSide = 16 / sizeof(T);
template <class T>
using Tag = hn::Full128<T>;

// Loads and stores are of bytes: the elements may be of any type.
template <class T>
inline hn::Vec<Tag<T>> load(const char* p) {
  return hn::BitCast(Tag<T>(), hn::LoadU(Tag<uint8_t>(), reinterpret_cast<const uint8_t*>(p)));
}
template <class T>
inline void store(hn::Vec<Tag<T>> v, char* p) {
  hn::StoreU(hn::BitCast(Tag<uint8_t>(), v), Tag<uint8_t>(), reinterpret_cast<uint8_t*>(p));
}

// log2(side) rounds of interleaving the upper half of the vectors with the lower half transpose a square.
template <class T, int rounds>
struct Interleave {
  static HWY_INLINE void run(hn::Vec<Tag<T>>* a) {
    constexpr int n = kSide<T>;
    hn::Vec<Tag<T>> b[n];
#pragma GCC unroll 16
    for (int i = 0; i < n / 2; ++i) {
      b[2 * i] = hn::InterleaveLower(Tag<T>(), a[i], a[i + n / 2]);
      b[2 * i + 1] = hn::InterleaveUpper(Tag<T>(), a[i], a[i + n / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < n; ++i) a[i] = b[i];
    Interleave<T, rounds - 1>::run(a);
  }
};
template <class T>
struct Interleave<T, 0> {
  static HWY_INLINE void run(hn::Vec<Tag<T>>*) {}
};

template <class T>
HWY_INLINE void transpose_square(const char* s, int64_t s_stride, char* d, int64_t d_stride) {
  constexpr int n = kSide<T>, rounds = sizeof(T) == 1 ? 4 : sizeof(T) == 2 ? 3 : sizeof(T) == 4 ? 2 : 1;
  hn::Vec<Tag<T>> a[n];
#pragma GCC unroll 16
  for (int j = 0; j < n; ++j, s += s_stride) a[j] = load<T>(s);
  Interleave<T, rounds>::run(a);
#pragma GCC unroll 16
  for (int i = 0; i < n; ++i, d += d_stride) store<T>(a[i], d);
}

// A cache line of 64 bytes in one go, so that the caches need not read it first.
template <class T>
HWY_INLINE void store_line(hn::Vec<Tag<T>> a, hn::Vec<Tag<T>> b, hn::Vec<Tag<T>> c, hn::Vec<Tag<T>> d, char* p) {
#if HWY_TARGET == HWY_NEON
  asm volatile("stp %q0, %q1, [%4]\n\tstp %q2, %q3, [%4, #32]"
               :
               : "w"(a.raw), "w"(b.raw), "w"(c.raw), "w"(d.raw), "r"(p)
               : "memory");
#else
  store<T>(a, p);
  store<T>(b, p + 16);
  store<T>(c, p + 32);
  store<T>(d, p + 48);
#endif
}

// Lines of 64 bytes of kSide rows of dst.
template <class T>
HWY_INLINE void transpose_lines(const char* s, int64_t s_stride, char* d, int64_t d_stride) {
  constexpr int n = kSide<T>, rounds = sizeof(T) == 4 ? 2 : 1;
  hn::Vec<Tag<T>> a[4][n];
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
#pragma GCC unroll 16
    for (int j = 0; j < n; ++j, s += s_stride) a[k][j] = load<T>(s);
    Interleave<T, rounds>::run(a[k]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < n; ++i, d += d_stride) store_line<T>(a[0][i], a[1][i], a[2][i], a[3][i], d);
}
// Of two bytes, four rows: the eight of a square would take 32 registers. Two elements of a column are
// joined first, then four such pairs are transposed as elements of four bytes.
template <>
HWY_INLINE void transpose_lines<uint16_t>(const char* s, int64_t s_stride, char* d, int64_t d_stride) {
  const hn::Half<Tag<uint16_t>> half;
  const Tag<uint16_t> whole;
  const Tag<uint32_t> pairs;
  hn::Vec<Tag<uint32_t>> a[4][4];
  auto four = [&](const char* p) HWY_ATTR {
    const hn::Half<Tag<uint8_t>> bytes;
    return hn::ZeroExtendVector(whole, hn::BitCast(half, hn::LoadU(bytes, reinterpret_cast<const uint8_t*>(p))));
  };
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j, s += 2 * s_stride) {
      a[k][j] = hn::BitCast(pairs, hn::InterleaveLower(whole, four(s), four(s + s_stride)));
    }
    Interleave<uint32_t, 2>::run(a[k]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i, d += d_stride) store_line<uint32_t>(a[0][i], a[1][i], a[2][i], a[3][i], d);
}

#if HWY_TARGET == HWY_AVX3
// 16 cache lines of 64 bytes, each read and written once: of src, more of whose rows may share a set than L1 has ways,
// and of dst, which can then go past the caches. Four rounds of 16 shuffles.
template <int k>
HWY_INLINE __m512i interleave_blocks(__m512i a, __m512i b) {
  return _mm512_shuffle_i32x4(a, b, k ? 0xdd : 0x88);
}
HWY_INLINE void transpose_16(__m512i* a) {
  __m512i b[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
    a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
    a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
    a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    b[i] = interleave_blocks<0>(a[i], a[i + 4]);
    b[i + 4] = interleave_blocks<1>(a[i], a[i + 4]);
    b[i + 8] = interleave_blocks<0>(a[i + 8], a[i + 12]);
    b[i + 12] = interleave_blocks<1>(a[i + 8], a[i + 12]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    a[i] = interleave_blocks<0>(b[i], b[i + 8]);
    a[i + 4] = interleave_blocks<0>(b[i + 4], b[i + 12]);
    a[i + 8] = interleave_blocks<1>(b[i], b[i + 8]);
    a[i + 12] = interleave_blocks<1>(b[i + 4], b[i + 12]);
  }
}
// Column j of a block: elements of four bytes, or two neighbouring columns of elements of two.
template <class T>
HWY_INLINE __m512i load_column(const char* s, int64_t s_stride, int j) {
  if constexpr (sizeof(T) == 4) {
    return _mm512_loadu_si512(s + j * s_stride);
  } else {
    const auto wide = [&](int64_t k) HWY_ATTR {
      return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(s + k * s_stride)));
    };
    return _mm512_or_si512(wide(2 * j), _mm512_slli_epi32(wide(2 * j + 1), 16));
  }
}
template <class T>
HWY_INLINE void transpose_16_lines(const char* s, int64_t s_stride, char* d, int64_t d_stride, bool stream) {
  __m512i a[16];
#pragma GCC unroll 16
  for (int j = 0; j < 16; ++j) a[j] = load_column<T>(s, s_stride, j);
  transpose_16(a);
  if (stream) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) _mm512_stream_si512(reinterpret_cast<__m512i*>(d + i * d_stride), a[i]);
  } else {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) _mm512_storeu_si512(d + i * d_stride, a[i]);
  }
}
// As transpose_whole_lines(), of at least 16 rows.
template <class T>
int64_t transpose_wide_lines(TransposeBlock b) {
  constexpr int64_t size = sizeof(T), line = 64 / size;
  const int64_t lines = b.cols / line * line;
  const bool stream = b.stream && (reinterpret_cast<uintptr_t>(b.dst) | static_cast<uintptr_t>(b.dst_stride)) % 64 == 0;
  for (int64_t j = 0; j < lines; j += line) {
    for (int64_t i = 0; i < b.rows; i += 16) {
      const int64_t from = std::min(i, b.rows - 16);
      transpose_16_lines<T>(b.src + j * b.src_stride + from * size, b.src_stride,
                            b.dst + j * size + from * b.dst_stride, b.dst_stride, stream);
    }
  }
  return lines;
}
#endif

// A band of kSide columns (by_rows: rows) of squares, the last of which overlaps its neighbour.
template <class T, bool by_rows>
HWY_INLINE void transpose_band(const char* s, int64_t s_stride, char* d, int64_t d_stride, int64_t length) {
  constexpr int64_t n = kSide<T>, size = sizeof(T);
  const int64_t s_step = by_rows ? s_stride : size, d_step = by_rows ? size : d_stride;
  int64_t k = 0;
  for (; k + n <= length; k += n) transpose_square<T>(s + k * s_step, s_stride, d + k * d_step, d_stride);
  if (k == length) return;
  k = length - n;
  transpose_square<T>(s + k * s_step, s_stride, d + k * d_step, d_stride);
}

// The columns that make whole cache lines of dst; the last rows overlap where they must.
template <class T>
int64_t transpose_whole_lines(TransposeBlock b) {
  constexpr int64_t size = sizeof(T), line = 64 / size, rows = std::min<int64_t>(4, kSide<T>);
#if HWY_TARGET == HWY_AVX3
  if constexpr (size == 2 || size == 4) {
    if (b.rows >= 16) return transpose_wide_lines<T>(b);
  }
#endif
  const int64_t lines = b.cols / line * line, last = b.rows - rows;
  for (int64_t j = 0; j < lines; j += line) {
    const char* s = b.src + j * b.src_stride;
    char* d = b.dst + j * size;
    int64_t i = 0;
    for (; i <= last; i += rows, s += rows * size, d += rows * b.dst_stride) {
      transpose_lines<T>(s, b.src_stride, d, b.dst_stride);
    }
    if (i == b.rows) continue;
    transpose_lines<T>(s + (last - i) * size, b.src_stride, d + (last - i) * b.dst_stride, b.dst_stride);
  }
  return lines;
}

// rows, cols >= kSide. Elements of 4 and 8 bytes go row by row. With 8 or 16 rows in a square that makes many open
// lines at once and takes two to three times as long as going by columns.
template <class T>
void transpose_squares(TransposeBlock b) {
  constexpr int64_t n = kSide<T>, size = sizeof(T);
  constexpr bool by_rows = size >= 4;
  if constexpr (size > 1) {
    const int64_t lines = transpose_whole_lines<T>(b);
    if (lines == b.cols) return;
    const int64_t first = std::min(lines, b.cols - n);  // of the columns that are left, at least a square
    b.src += first * b.src_stride;
    b.dst += first * size;
    b.cols -= first;
  }
  const int64_t bands = by_rows ? b.rows : b.cols, length = by_rows ? b.cols : b.rows;
  const int64_t s_step = by_rows ? size : b.src_stride, d_step = by_rows ? b.dst_stride : size;
  for (int64_t k = 0;; k = std::min(k + n, bands - n)) {
    transpose_band<T, by_rows>(b.src + k * s_step, b.src_stride, b.dst + k * d_step, b.dst_stride, length);
    if (k + n >= bands) return;
  }
}

// Fewer columns than a vector has elements: a row stores a whole vector, and the next row overwrites the excess.
template <class T>
void transpose_narrow(TransposeBlock b) {
  constexpr int64_t n = kSide<T>, size = sizeof(T);
  hn::Vec<Tag<T>> a[n];
  for (int64_t i = 0;; i = std::min(i + n, b.rows - n)) {
#pragma GCC unroll 16
    for (int64_t j = 0; j < n; ++j) a[j] = load<T>(b.src + std::min(j, b.cols - 1) * b.src_stride + i * size);
    Interleave<T, sizeof(T) == 1 ? 4 : sizeof(T) == 2 ? 3 : sizeof(T) == 4 ? 2 : 1>::run(a);
#pragma GCC unroll 16
    for (int64_t k = 0; k < n; ++k) store<T>(a[k], b.dst + (i + k) * b.dst_stride);
    if (i + n >= b.rows) return;
  }
}

// Fewer rows than a vector has elements: columns are read with the elements behind them, as long as these are src.
template <class T>
void transpose_flat(TransposeBlock b) {
  constexpr int64_t n = kSide<T>, size = sizeof(T);
  const int64_t readable = b.src_stride * (b.cols - 1) + b.rows * size;
  hn::Vec<Tag<T>> a[n];
  int64_t j = 0;
  for (; j + n <= b.cols && (j + n - 1) * b.src_stride + 16 <= readable; j += n) {
#pragma GCC unroll 16
    for (int64_t k = 0; k < n; ++k) a[k] = load<T>(b.src + (j + k) * b.src_stride);
    Interleave<T, sizeof(T) == 1 ? 4 : sizeof(T) == 2 ? 3 : sizeof(T) == 4 ? 2 : 1>::run(a);
#pragma GCC unroll 16
    for (int64_t i = 0; i < n; ++i) {
      if (i < b.rows) store<T>(a[i], b.dst + i * b.dst_stride + j * size);
    }
  }
  move_rest<T>(b, j);
}

// Interleaves two to four dense planes, and back.
template <class T>
void interleave(TransposeBlock b) {
  const hn::ScalableTag<T> d;
  const hn::Repartition<uint8_t, decltype(d)> bytes;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), size = sizeof(T);
  const auto plane = [&](int64_t j, int64_t i) {
    return hn::BitCast(d, hn::LoadU(bytes, reinterpret_cast<const uint8_t*>(b.src + j * b.src_stride + i * size)));
  };
  int64_t i = 0;
  for (; i + lanes <= b.rows; i += lanes) {
    T* to = reinterpret_cast<T*>(b.dst + i * b.dst_stride);
    if (b.cols == 2) {
      hn::StoreInterleaved2(plane(0, i), plane(1, i), d, to);
    } else if (b.cols == 3) {
      hn::StoreInterleaved3(plane(0, i), plane(1, i), plane(2, i), d, to);
    } else {
      hn::StoreInterleaved4(plane(0, i), plane(1, i), plane(2, i), plane(3, i), d, to);
    }
  }
  TransposeBlock rest = b;
  rest.src += i * size;
  rest.dst += i * b.dst_stride;
  rest.rows -= i;
  move_each<T>(rest);
}
template <class T>
void deinterleave(TransposeBlock b) {
  const hn::ScalableTag<T> d;
  const hn::Repartition<uint8_t, decltype(d)> bytes;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), size = sizeof(T);
  const auto put = [&](hn::Vec<decltype(d)> v, int64_t i, int64_t j) {
    hn::StoreU(hn::BitCast(bytes, v), bytes, reinterpret_cast<uint8_t*>(b.dst + i * b.dst_stride + j * size));
  };
  int64_t j = 0;
  hn::Vec<decltype(d)> v0, v1, v2, v3;
  for (; j + lanes <= b.cols; j += lanes) {
    const T* from = reinterpret_cast<const T*>(b.src + j * b.src_stride);
    if (b.rows == 2) {
      hn::LoadInterleaved2(d, from, v0, v1);
    } else if (b.rows == 3) {
      hn::LoadInterleaved3(d, from, v0, v1, v2);
      put(v2, 2, j);
    } else {
      hn::LoadInterleaved4(d, from, v0, v1, v2, v3);
      put(v2, 2, j);
      put(v3, 3, j);
    }
    put(v0, 0, j);
    put(v1, 1, j);
  }
  move_rest<T>(b, j);
}

template <class T>
void transpose_elements(TransposeBlock b) {
  constexpr int64_t size = sizeof(T);
  if (b.src_step != size) return move_each<T>(b);
  if (b.cols >= 2 && b.cols <= 4 && b.dst_stride == b.cols * size) return interleave<T>(b);
  if (b.rows >= 2 && b.rows <= 4 && b.src_stride == b.rows * size) return deinterleave<T>(b);
  if (b.rows >= kSide<T> && b.cols >= kSide<T>) return transpose_squares<T>(b);
  if (b.rows >= kSide<T> && b.cols > 1 && b.dst_stride <= 16) return transpose_narrow<T>(b);
  if (b.cols >= kSide<T> && b.rows > 1 && b.src_stride >= 0) return transpose_flat<T>(b);
  move_each<T>(b);
}

#else

template <class T>
void transpose_elements(TransposeBlock b) {
  move_each<T>(b);
}

#endif

void transpose_any(const TransposeBlock& b) {
  switch (b.size) {
    case 1:
      return transpose_elements<uint8_t>(b);
    case 2:
      return transpose_elements<uint16_t>(b);
    case 4:
      return transpose_elements<uint32_t>(b);
    case 8:
      return transpose_elements<uint64_t>(b);
    default:
      return b.size >= 16 ? move_long(b) : move_odd(b);
  }
}

}  // namespace
}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft::cpu {
HWY_EXPORT(transpose_any);

void transpose_block(const TransposeBlock& b) { HWY_DYNAMIC_DISPATCH(transpose_any)(b); }

}  // namespace deft::cpu
#endif  // HWY_ONCE
