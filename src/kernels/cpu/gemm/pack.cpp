#include "kernels/cpu/gemm/pack.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "kernels/cpu/copy/interleave.h"
#include "kernels/cpu/gemm/pack_rows.h"
#include "kernels/cpu/gemm/pack_split.h"
#include "runtime/cpu_isa.h"
#include "runtime/half.h"
#if defined(__x86_64__)
#include "kernels/cpu/x86/pack_words.h"
#endif

namespace deft::cpu {

namespace {

// Bytes are converted where the panel's sign differs: x - 128 as signed is x as unsigned with its top bit flipped.
template <class To, class From>
To convert(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (std::is_integral_v<From>) {
    return static_cast<To>(x ^ From(-128));
  } else if constexpr (std::is_same_v<To, float> && std::is_same_v<From, Half>) {
#if defined(__aarch64__)
    return static_cast<float>(std::bit_cast<__fp16>(x.bits));
#else
    return static_cast<float>(x);
#endif
  } else {
    return static_cast<To>(static_cast<float>(x));
  }
}

// ---- Any strides. Writes the panel of lines [0, live) of `in`, zeros beyond.
template <class To, class From>
void pack_any(const From* in, int64_t line, int64_t step, int64_t live, int64_t k, int width, int group, To* out) {
  for (int64_t p = 0; p < k; ++p) {
    To* to = out + p / group * group * width + p % group;
    for (int64_t l = 0; l < live; ++l) to[l * group] = convert<To>(in[l * line + p * step]);
  }
}

// Lines adjacent in memory (line == 1), all of them live, k a multiple of the group. Several panels at a time, so that
// whole cache lines of a row are used before the next row (on x86 a KB of it: 256 x 1024 of 1568 positions take 7.4 ms,
// with four panels 7.8), in blocks of four lines.
#if defined(__x86_64__)
constexpr int64_t kTogether = 8;
#else
constexpr int64_t kTogether = 4;
#endif
template <int group, class To, class From>
void pack_columns(int width, int64_t panels, int64_t panel_size, const From* in, int64_t step, int64_t k, To* out) {
  constexpr int64_t kAhead = 16;  // of k
  for (int64_t p = 0; p < k; p += group, out += width * group) {
    for (int64_t panel = 0; panel < panels; ++panel) {
      const From* from = in + p * step + panel * width;
      To* to = out + panel * panel_size;
      if constexpr (group * sizeof(To) == 4 && group > 1 && std::is_same_v<To, From>) {
        const void* rows[group];
        for (int g = 0; g < group; ++g) rows[g] = from + g * step;
        if (p + kAhead < k) {  // rows far apart, where no hardware prefetches
          for (int g = 0; g < group; ++g) __builtin_prefetch(from + (kAhead + g) * step);
        }
        interleave_words<group>(rows, width, to);
        continue;
      }
      if constexpr (group == 4 && sizeof(To) == 2 && std::is_same_v<To, From>) {
        const auto* row = reinterpret_cast<const uint16_t*>(from);
        const uint16_t* rows[4] = {row, row + step, row + 2 * step, row + 3 * step};
        interleave_four(rows, width, reinterpret_cast<uint16_t*>(to));
        continue;
      }
      if constexpr (group == 8 && sizeof(To) == 1 && std::is_same_v<To, From>) {
        const uint8_t* rows[8];
        for (int g = 0; g < 8; ++g) rows[g] = reinterpret_cast<const uint8_t*>(from + g * step);
        if (panel == 0 && p + 2 * group <= k) {  // rows far apart, where no hardware prefetches
          for (int g = 0; g < 8; ++g) __builtin_prefetch(rows[g] + 8 * step);
        }
        interleave_eight(rows, width, reinterpret_cast<uint8_t*>(to));
        continue;
      }
      int l = 0;
      for (; l + 4 <= width; l += 4) {
        To block[4 * group];
        for (int g = 0; g < group; ++g) {
          for (int i = 0; i < 4; ++i) block[i * group + g] = convert<To>(from[g * step + l + i]);
        }
        std::memcpy(to + l * group, block, sizeof block);
      }
      for (; l < width; ++l) {
        for (int g = 0; g < group; ++g) to[l * group + g] = convert<To>(from[g * step + l]);
      }
    }
  }
}
// The same without groups or conversion. Rows are far apart, where no hardware prefetches: prefetching them and knowing
// the width takes 0.15 to 0.2 ns a value instead of 0.35 to 0.7. Tiles that pack b as they run instead read half a
// cache line of each row at a time: 55 instead of 75 % of the peak for 49 x 2048 x 1024.
template <int width, class T>
void copy_columns(int64_t panels, int64_t panel_size, const T* in, int64_t step, int64_t k, T* out) {
  constexpr int64_t kAhead = 16, kLine = 64 / sizeof(T);
  const int64_t row = panels * width;
  const auto copy = [&](int64_t p, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(out + i * panel_size + p * width, in + p * step + i * width, width * sizeof(T));
    }
  };
  for (int64_t p = 0; p < k; ++p) {
    if (p + kAhead < k) {
      for (int64_t i = 0; i < row; i += kLine) __builtin_prefetch(in + (p + kAhead) * step + i);
    }
    panels == kTogether ? copy(p, kTogether) : copy(p, panels);
  }
}
template <class T>
bool copy_columns_any(int width, int64_t panels, int64_t panel_size, const T* in, int64_t step, int64_t k, T* out) {
  const auto run = [&]<int w>() { return copy_columns<w>(panels, panel_size, in, step, k, out), true; };
  if (width == 7) return run.template operator()<7>();
  if (width == 8) return run.template operator()<8>();
  if (width == 12) return run.template operator()<12>();
  if (width == 16) return run.template operator()<16>();
  if (width == 32) return run.template operator()<32>();
  return false;
}

#if defined(__x86_64__)
// Panels of 32 values whose groups have four bytes, which all AVX-512 tiles use. Returns false for others.
template <class T>
bool pack_columns_512(int width, int group, int64_t panels, int64_t panel_size, const T* in, int64_t step, int64_t k,
                      T* out) {
  if (width != 32 || group * sizeof(T) != 4 || !cpu_has("avx512bw")) return false;
  if constexpr (sizeof(T) == 2) {
    columns_of_halves_512(reinterpret_cast<const uint16_t*>(in), step, panels, k, panel_size,
                          reinterpret_cast<uint16_t*>(out));
    return true;
  } else if constexpr (sizeof(T) == 1) {
    columns_of_bytes_512(reinterpret_cast<const uint8_t*>(in), step, panels, k, panel_size,
                         reinterpret_cast<uint8_t*>(out));
    return true;
  }
  return false;
}
#endif

template <class To, class From>
bool pack_columns_any(int width, int group, int64_t panels, int64_t panel_size, const From* in, int64_t step, int64_t k,
                      To* out) {
  if constexpr (std::is_same_v<To, From>) {
    if (group == 1 && copy_columns_any(width, panels, panel_size, in, step, k, out)) return true;
#if defined(__x86_64__)
    if (pack_columns_512(width, group, panels, panel_size, in, step, k, out)) return true;
#endif
  }
  const auto run = [&]<int g>() { pack_columns<g>(width, panels, panel_size, in, step, k, out); };
  if (group == 1) return run.template operator()<1>(), true;
  if constexpr (sizeof(To) <= 2) {
    if (group == 2) return run.template operator()<2>(), true;
    if (group == 4) return run.template operator()<4>(), true;
    if (group == 8) return run.template operator()<8>(), true;
    if (group == 32) return run.template operator()<32>(), true;
    if (group == 64) return run.template operator()<64>(), true;
  }
  return false;
}

#if defined(__x86_64__)
// Lines adjacent in memory, for the left operand of AMX: 32 values of k of a line together. Panels as in
// pack_columns().
template <class T>
void transpose_columns(int64_t width, const T* in, int64_t step, int64_t lines, int64_t k, int64_t panel_size, T* out) {
  constexpr int64_t kStep = 32;
  const uint16_t* places[kStep];
  for (int64_t p = 0; p < k; p += kStep, in += kStep * step, out += kStep * width) {
    for (int64_t i = 0; i < kStep; ++i) {
      places[i] = p + i < k ? reinterpret_cast<const uint16_t*>(in + i * step) : nullptr;
    }
    for (int64_t l = 0; l < lines; l += width) {
      const int64_t live = std::min(width, lines - l);
      T* to = out + l / width * panel_size;
      for (int64_t i = 0; p + kStep + i < k && i < kStep; ++i) __builtin_prefetch(in + (kStep + i) * step + l);
      transpose_halves_512(places, l, live, reinterpret_cast<uint16_t*>(to));
      if (live < width) std::memset(to + live * kStep, 0, static_cast<size_t>((width - live) * kStep) * sizeof(T));
    }
  }
}
#endif

template <class From>
void add_sums(const From* in, int64_t line, int64_t step, int64_t lines, int64_t k, bool flipped, int32_t* sums) {
  const int32_t shift = flipped ? static_cast<int32_t>(k) * (std::is_signed_v<From> ? 128 : -128) : 0;
  if (line == 1 && step != 1) {  // vectors over lines, a cache line of them at a time
    for (int64_t l = 0; l < lines; l += 64) {
      const int64_t count = std::min<int64_t>(64, lines - l);
      int32_t some[64] = {};
      for (int64_t p = 0; p < k; ++p) {
        const From* row = in + p * step + l;
        for (int64_t i = 0; i < count; ++i) some[i] += row[i];
      }
      for (int64_t i = 0; i < count; ++i) sums[l + i] += some[i] + shift;
    }
    return;
  }
  for (int64_t l = 0; l < lines; ++l) {
    int32_t sum = shift;
    if (step == 1) {  // vectors over k
      for (int64_t p = 0; p < k; ++p) sum += static_cast<int32_t>(in[l * line + p]);
    } else {
      for (int64_t p = 0; p < k; ++p) sum += static_cast<int32_t>(in[l * line + p * step]);
    }
    sums[l] += sum;
  }
}

template <class To, class From>
void pack_typed(const GemmTile& tile, Side side, const From* in, int64_t line, int64_t step, int64_t lines, int64_t k,
                To* out) {
  const int width = tile.width(side), group = tile.group(side);
  const int64_t padded = tile.padded_k(k), whole = (k + group - 1) / group * group, panel_size = width * padded;
  const auto clear = [&](To* panel, int64_t from, int64_t to) {
    if (from < to) std::memset(panel + from * width, 0, static_cast<size_t>((to - from) * width) * sizeof(To));
  };
  PanelRows rows(tile, side, dtype_of<From>);
  int64_t l = 0;
#if defined(__x86_64__)
  if constexpr (sizeof(To) == 2 && std::is_same_v<To, From>) {
    const int64_t some = kTogether * width;
    for (; line == 1 && step != 1 && group == 32 && l < lines; l += some, out += kTogether * panel_size) {
      transpose_columns(width, in + l, step, std::min(some, lines - l), k, panel_size, out);
    }
  }
#endif
  if (line == 1 && step != 1 && k == whole) {
    const int64_t together = std::max<int64_t>(kTogether, 64 / (width * static_cast<int64_t>(sizeof(From))));
    while (lines - l >= width) {
      const int64_t panels = std::min(together, (lines - l) / width);
      if (!pack_columns_any(width, group, panels, panel_size, in + l, step, k, out)) break;
      for (int64_t i = 0; i < panels; ++i) clear(out + i * panel_size, whole, padded);
      l += panels * width, out += panels * panel_size;
    }
  }
  for (; l < lines; l += width, out += panel_size) {
    const int64_t live = std::min<int64_t>(width, lines - l);
    const From* from = in + l * line;
    const bool short_enough = live == width || k * static_cast<int64_t>(sizeof(From)) <= kZeroLineBytes;
    if (step == 1 && rows.known() && short_enough) {
      rows.set(from, line, live, lines - l >= 2 * width);
      rows.pack(k, out);
      clear(out, whole, padded);
    } else {
      clear(out, 0, padded);
      pack_any(from, line, step, live, k, width, group, out);
    }
  }
}

template <class To>
void pack_floats(const GemmTile& tile, Side side, const StridedMatrix& m, int64_t at, int64_t lines, int64_t k,
                 To* out) {
  const auto run = [&]<class From>() {
    pack_typed(tile, side, static_cast<const From*>(m.in) + at, m.line, m.step, lines, k, out);
  };
  if (m.dtype == DType::f32) return run.template operator()<float>();
  if (m.dtype == DType::bf16) return run.template operator()<BFloat16>();
  if (m.dtype == DType::f16) return run.template operator()<Half>();
  DEFT_CHECK(false, DTypeError, "matrix product: cannot pack {} values; convert them with to()", name_of(m.dtype));
}
template <class To>
void pack_bytes(const GemmTile& tile, Side side, const StridedMatrix& m, int64_t at, int64_t lines, int64_t k, To* out,
                int32_t* sums) {
  const auto run = [&]<class From>() {
    const From* in = static_cast<const From*>(m.in) + at;
    pack_typed(tile, side, in, m.line, m.step, lines, k, out);
    if (sums) add_sums(in, m.line, m.step, lines, k, !std::is_same_v<To, From>, sums);
  };
  if (m.dtype == DType::i8) return run.template operator()<int8_t>();
  if (m.dtype == DType::u8) return run.template operator()<uint8_t>();
  DEFT_CHECK(false, DTypeError, "matrix product: cannot pack {} values as bytes; convert them with to()",
             name_of(m.dtype));
}

}  // namespace

int64_t packed_bytes(const GemmTile& tile, Side side, int64_t lines, int64_t k) {
  const int64_t width = tile.width(side);
  return (lines + width - 1) / width * width * tile.padded_k(k) * size_of(tile.panel);
}

void pack(const GemmTile& tile, Side side, const StridedMatrix& from, int64_t l0, int64_t lines, int64_t k0, int64_t k,
          void* out, int32_t* sums) {
  const int64_t at = l0 * from.line + k0 * from.step;
  switch (tile.panel) {
    case Panel::f32:
      return pack_floats(tile, side, from, at, lines, k, static_cast<float*>(out));
    case Panel::f64:
      DEFT_CHECK(from.dtype == DType::f64, DTypeError, "matrix product: found {} values, expected f64",
                 name_of(from.dtype));
      return pack_typed(tile, side, static_cast<const double*>(from.in) + at, from.line, from.step, lines, k,
                        static_cast<double*>(out));
    case Panel::f16:
      return pack_floats(tile, side, from, at, lines, k, static_cast<Half*>(out));
    case Panel::bf16:
      return pack_floats(tile, side, from, at, lines, k, static_cast<BFloat16*>(out));
    case Panel::s8:
      return pack_bytes(tile, side, from, at, lines, k, static_cast<int8_t*>(out), sums);
    case Panel::u8s8:
      if (side == Side::a) return pack_bytes(tile, side, from, at, lines, k, static_cast<uint8_t*>(out), sums);
      return pack_bytes(tile, side, from, at, lines, k, static_cast<int8_t*>(out), sums);
    case Panel::split:
#if defined(__x86_64__)
      pack_split(StridedSource(from), tile, side, l0, lines, k0, k, out);
#endif
      return;
  }
}

}  // namespace deft::cpu
