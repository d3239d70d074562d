// Implicit im2col in NHWC: packs the windows of an image straight into panels.
#include <cstring>

#include "kernels/cpu/conv/conv_internal.h"
#include "kernels/cpu/copy/interleave.h"
#include "kernels/cpu/gemm/pack_rows.h"

namespace deft::cpu::detail {

bool same_values(DType dtype, Panel panel, Side side) {
  switch (panel) {
    case Panel::f32:
      return dtype == DType::f32;
    case Panel::f64:
      return dtype == DType::f64;
    case Panel::f16:
      return dtype == DType::f16;
    case Panel::bf16:
      return dtype == DType::bf16;
    case Panel::u8s8:
      return dtype == (side == Side::a ? DType::u8 : DType::i8);
    case Panel::split:
      return false;
    default:
      return dtype == DType::i8;
  }
}

bool reads_copies(const GemmTile& tile, DType dtype) {
  return tile.panel == Panel::split ? dtype == DType::f32 : same_values(dtype, tile.panel, Side::a);
}

namespace {

constexpr int64_t kChunk = 64;      // positions at a time where they run along k
constexpr int64_t kShortRun = 256;  // bytes: with few channels a kernel row is one run

void widen(DType dtype, const void* from, int64_t count, float* to) {
  if (dtype == DType::bf16) {
    std::copy_n(static_cast<const BFloat16*>(from), count, to);
  } else {
    std::copy_n(static_cast<const Half*>(from), count, to);
  }
}

// rows[p][j] for p < k, j < count goes to out[p * step + j]: adjacent lines, one value of k at a time.
template <int64_t kBytes>
void copy_rows(const char* const* rows, int64_t k, char* out, int64_t step) {
  for (int64_t p = 0; p < k; ++p) std::memcpy(out + p * step, rows[p], kBytes);
}
void copy_rows(const char* const* rows, int64_t k, int64_t bytes, char* out, int64_t step) {
  switch (bytes) {
    case 4:
      return copy_rows<4>(rows, k, out, step);
    case 16:
      return copy_rows<16>(rows, k, out, step);
    case 32:
      return copy_rows<32>(rows, k, out, step);
    case 48:
      return copy_rows<48>(rows, k, out, step);
    case 64:
      return copy_rows<64>(rows, k, out, step);
    case 128:
      return copy_rows<128>(rows, k, out, step);
    default:
      for (int64_t p = 0; p < k; ++p) std::memcpy(out + p * step, rows[p], static_cast<size_t>(bytes));
  }
}

// The same with groups of k: value (p, j) goes to out[p / group * step + j * group + p % group].
template <class T>
void interleave_rows(const char* const* rows, int64_t k, int64_t count, int64_t group, char* to, int64_t step) {
  T* out = reinterpret_cast<T*>(to);
  for (int64_t p = 0; p < k; ++p) {
    const T* from = reinterpret_cast<const T*>(rows[p]);
    if constexpr (sizeof(T) == 2) {
      if (group == 4) {
        const uint16_t* four[4];
        for (int g = 0; g < 4; ++g) four[g] = reinterpret_cast<const uint16_t*>(rows[p + g]);
        interleave_four(four, count, out + p / 4 * step);
        p += 3;
        continue;
      }
    }
    for (int64_t j = 0; j < count; ++j) out[p / group * step + j * group + p % group] = from[j];
  }
}

}  // namespace

// ---- NHWC.

struct NhwcOperand::Pixel {
  int64_t offset;  // of the first tap, in bytes; may lie outside the image
  int64_t at[3];   // position of the first tap
};

NhwcOperand::NhwcOperand(const Window& w, const Source& s, DType dtype, const void* x, Lines lines, int zero,
                         int64_t chunk)
    : window_(w),
      dtype_(dtype),
      x_(static_cast<const char*>(x)),
      lines_(lines),
      zero_(zero),
      size_(static_cast<int64_t>(size_of(dtype))),
      pixel_bytes_(s.all_channels * size_),
      together_(s.channels == s.all_channels && w.tap_step[2] == 1 && (chunk == 0 || chunk == s.channels)),
      run_(chunk > 0 ? chunk : s.channels),
      run_taps_(w.taps[2]),
      outside_(std::max<int64_t>(1, s.channels * w.taps[2]) * size_) {
  if (together_ && w.taps[2] > 1 && s.channels * w.taps[2] * size_ <= kShortRun) {
    run_ = s.channels * w.taps[2];
    run_taps_ = 1;
  }
  for (int d = 0; d < 3; ++d) {
    const int64_t last = (w.taps[d] - 1) * w.tap_step[d];
    low_[d] = std::min<int64_t>(0, last);
    high_[d] = std::max<int64_t>(0, last);
  }
  std::memset(outside_.data(), zero, static_cast<size_t>(std::max<int64_t>(1, s.channels * w.taps[2]) * size_));
}

void NhwcOperand::locate(int64_t q, int64_t count, Pixel* out) const {
  const Window& w = window_;
  int64_t x = q % w.count[2], y = q / w.count[2] % w.count[1];
  int64_t plane = q / (w.count[2] * w.count[1]), z = plane % w.count[0], n = plane / w.count[0];
  for (int64_t i = 0; i < count; ++i, ++out) {
    const int64_t sz = z * w.step[0] + w.base[0], sy = y * w.step[1] + w.base[1], sx = x * w.step[2] + w.base[2];
    *out = {(((n * w.size[0] + sz) * w.size[1] + sy) * w.size[2] + sx) * pixel_bytes_, {sz, sy, sx}};
    if (++x < w.count[2]) continue;
    x = 0;
    if (++y < w.count[1]) continue;
    y = 0;
    if (++z == w.count[0]) z = 0, ++n;
  }
}

bool NhwcOperand::inside(const Pixel* pixels, int64_t count) const {
  for (int d = 0; d < 3; ++d) {
    int64_t low = pixels[0].at[d], high = low;
    for (int64_t i = 1; i < count; ++i) {
      low = std::min(low, pixels[i].at[d]);
      high = std::max(high, pixels[i].at[d]);
    }
    if (low + low_[d] < 0 || high + high_[d] >= window_.size[d]) return false;
  }
  return true;
}

// Finds where the run begins for each position. Runs partly outside the image are assembled in `edges`.
void NhwcOperand::run_rows(int64_t run, const Pixel* pixels, int64_t count, bool all_inside, const char** rows,
                           char* edges) const {
  const Window& w = window_;
  const int64_t tx = run % run_taps_ * w.tap_step[2], ty = run / run_taps_ % w.taps[1] * w.tap_step[1];
  const int64_t lines = run / (run_taps_ * w.taps[1]), tz = lines % w.taps[0] * w.tap_step[0];
  const int64_t offset = ((tz * w.size[1] + ty) * w.size[2] + tx) * pixel_bytes_ + lines / w.taps[0] * run_ * size_;
  if (all_inside) {
    for (int64_t i = 0; i < count; ++i) rows[i] = x_ + pixels[i].offset + offset;
    return;
  }
  const auto in = [](int64_t at, int64_t size) { return static_cast<uint64_t>(at) < static_cast<uint64_t>(size); };
  const int64_t taps = edges ? w.taps[2] : 1;  // of one run
  for (int64_t i = 0; i < count; ++i) {
    const int64_t* at = pixels[i].at;
    rows[i] = outside_.data();
    if (!in(at[0] + tz, w.size[0]) || !in(at[1] + ty, w.size[1])) continue;
    const int64_t first = at[2] + tx, lo = std::clamp<int64_t>(-first, 0, taps);
    const int64_t hi = std::clamp<int64_t>(w.size[2] - first, lo, taps);
    if (lo == hi) continue;
    rows[i] = x_ + pixels[i].offset + offset;
    if (hi - lo == taps) continue;
    char* edge = edges + i * run_ * size_;
    std::memset(edge, zero_, static_cast<size_t>(run_ * size_));
    std::memcpy(edge + lo * pixel_bytes_, rows[i] + lo * pixel_bytes_, static_cast<size_t>((hi - lo) * pixel_bytes_));
    rows[i] = edge;
  }
}

void NhwcOperand::pack(const GemmTile& tile, Side side, int64_t l0, int64_t lines, int64_t k0, int64_t k, void* out,
                       int32_t*) const {
  char* to = static_cast<char*>(out);
  lines_ == Lines::positions ? pack_positions(tile, side, l0, lines, k0, k, to)
                             : pack_values(tile, side, l0, lines, k0, k, to);
}

void NhwcOperand::pack_positions(const GemmTile& tile, Side side, int64_t l0, int64_t lines, int64_t k0, int64_t k,
                                 char* out) const {
  const int64_t width = tile.width(side), group = tile.group(side), bytes = size_of(tile.panel);
  const int64_t padded = tile.padded_k(k), whole = (k + group - 1) / group * group;
  const bool merged = run_taps_ != window_.taps[2];
  PanelRows panel(tile, side, dtype_);
  // Runs that begin at a group go straight to the panel. Otherwise lines are assembled first.
  const bool direct = panel.known() && run_ % group == 0 && k0 % group == 0;
  Workspace<char> edges(merged ? width * run_ * size_ : 0), copies(direct ? 0 : width * k * size_);
  Pixel pixels[kMostLines];
  const char* rows[kMostLines];
  for (int64_t l = 0; l < lines; l += width, out += width * padded * bytes) {
    const int64_t live = std::min(width, lines - l);
    locate(l0 + l, live, pixels);
    const bool all_inside = inside(pixels, live);
    for (int64_t i = live; i < width; ++i) panel.set_line(i, outside_.data());
    for (int64_t p = 0; p < k;) {
      const int64_t run = (k0 + p) / run_, at = (k0 + p) % run_;
      // Inside the image the taps of a kernel row are contiguous.
      const int64_t taps = all_inside && together_ ? run_taps_ - run % run_taps_ : 1;
      const int64_t length = std::min(taps * run_ - at, k - p);
      run_rows(run, pixels, live, all_inside, rows, edges.data());
      if (direct) {
        for (int64_t i = 0; i < live; ++i) panel.set_line(i, rows[i] + at * size_);
        panel.pack(length, out + p * width * bytes);
      } else {
        for (int64_t i = 0; i < live; ++i) {
          std::memcpy(copies.data() + (i * k + p) * size_, rows[i] + at * size_, static_cast<size_t>(length * size_));
        }
      }
      p += length;
    }
    if (!direct) {
      cpu::pack(tile, side, {dtype_, copies.data(), k, 1}, 0, live, 0, k, out);
    } else if (whole < padded) {
      std::memset(out + whole * width * bytes, 0, static_cast<size_t>((padded - whole) * width * bytes));
    }
  }
}

void NhwcOperand::pack_values(const GemmTile& tile, Side side, int64_t l0, int64_t lines, int64_t k0, int64_t k,
                              char* out) const {
  const int64_t width = tile.width(side), group = tile.group(side), bytes = size_of(tile.panel);
  const int64_t panel_bytes = width * tile.padded_k(k) * bytes, whole = (k + group - 1) / group * group;
  const bool merged = run_taps_ != window_.taps[2], same = same_values(dtype_, tile.panel, side);
  Workspace<char> edges(merged ? kChunk * run_ * size_ : 0), widened(same ? 0 : kChunk * run_ * bytes);
  const int64_t panels = (lines + width - 1) / width;
  if (lines % width) std::memset(out + (panels - 1) * panel_bytes, 0, static_cast<size_t>(panel_bytes));
  Pixel pixels[kChunk];
  const char* rows[kChunk];
  for (int64_t p = 0; p < k; p += kChunk) {
    const int64_t count = std::min(kChunk, k - p), filled = (count + group - 1) / group * group;
    locate(k0 + p, count, pixels);
    const bool all_inside = inside(pixels, count);
    for (int64_t l = 0; l < lines;) {
      const int64_t run = (l0 + l) / run_, at = (l0 + l) % run_, length = std::min(run_ - at, lines - l);
      run_rows(run, pixels, count, all_inside, rows, edges.data());
      for (int64_t i = 0; i < count; ++i) rows[i] += at * size_;
      if (!same) {
        for (int64_t i = 0; i < count; ++i) {
          char* to = widened.data() + i * run_ * bytes;
          widen(dtype_, rows[i], length, reinterpret_cast<float*>(to));
          rows[i] = to;
        }
      }
      for (int64_t i = count; i < filled; ++i) rows[i] = outside_.data();
      for (int64_t end = l + length; l < end;) {
        const int64_t j = l % width, some = std::min(end - l, width - j);
        char* to = out + l / width * panel_bytes + p * width * bytes + j * group * bytes;
        if (group == 1) {
          copy_rows(rows, count, some * bytes, to, width * bytes);
        } else if (bytes == 2) {
          interleave_rows<uint16_t>(rows, filled, some, group, to, width * group);
        } else {
          interleave_rows<uint8_t>(rows, filled, some, group, to, width * group);
        }
        for (int64_t i = 0; i < filled; ++i) rows[i] += some * bytes;
        l += some;
      }
    }
  }
  if (whole * width * bytes == panel_bytes) return;
  for (int64_t i = 0; i < panels; ++i) {
    std::memset(out + i * panel_bytes + whole * width * bytes, 0,
                static_cast<size_t>(panel_bytes - whole * width * bytes));
  }
}

// ---- Weights.

bool TapWeight::fits(const ConvCall& c, const GemmTile& tile) {
  const int64_t taps = c.kernel[0] * c.kernel[1] * c.kernel[2];
  return c.channels_last && taps >= 4 && c.stride[0] * c.stride[1] * c.stride[2] == 1 && tile.b_group == 1 &&
         same_values(c.dtype, tile.panel, Side::b);
}

// w: the first line of the panel.
template <class T>
void TapWeight::pack_panel(const T* w, int64_t width, int64_t live, int64_t k0, int64_t k, T* out) const {
  for (int64_t p = 0; p < k;) {
    const int64_t run = (k0 + p) / chunk_, first = (k0 + p) % chunk_, t = run % taps_;
    const T* from = w + (run / taps_ * chunk_ + first) * channels_ * taps_ + t;
    const int64_t runs = first == 0 && live == width && width % 4 == 0 ? std::min(taps_ - t, (k - p) / chunk_) : 0;
    if (runs < 4) {  // one tap
      for (const int64_t end = p + std::min(chunk_ - first, k - p); p < end; ++p, from += channels_ * taps_) {
        for (int64_t i = 0; i < live; ++i) out[p * width + i] = from[i * taps_];
      }
      continue;
    }
    using B = Block4<T>;
    for (int64_t o = 0; o < chunk_; ++o, from += channels_ * taps_) {
      const char* ahead = reinterpret_cast<const char*>(from + 4 * channels_ * taps_ - t);
      for (int64_t i = 0; o + 4 < chunk_ && i < width * taps_ * static_cast<int64_t>(sizeof(T)); i += 64) {
        __builtin_prefetch(ahead + i);
      }
      for (int64_t r = 0; r < runs; r += 4) {
        r = std::min(r, runs - 4);  // the last block overlaps the previous one
        for (int64_t i = 0; i < width; i += 4) {
          const T* q = from + i * taps_ + r;
          B b{B::load(q), B::load(q + taps_), B::load(q + 2 * taps_), B::load(q + 3 * taps_)};
          b.transpose();
          T* to = out + (p + r * chunk_ + o) * width + i;
          B::store(b.a, to);
          B::store(b.b, to + chunk_ * width);
          B::store(b.c, to + 2 * chunk_ * width);
          B::store(b.d, to + 3 * chunk_ * width);
        }
      }
    }
    p += runs * chunk_;
  }
}

void TapWeight::pack(const GemmTile& tile, Side side, int64_t l0, int64_t lines, int64_t k0, int64_t k, void* out,
                     int32_t*) const {
  const int64_t width = tile.width(side), padded = tile.padded_k(k);
  dispatch_bits(dtype_, [&]<class T>() {
    T* to = static_cast<T*>(out);
    for (int64_t l = 0; l < lines; l += width, to += width * padded) {
      const int64_t live = std::min(width, lines - l);
      if (live < width || k < padded) std::memset(to, 0, static_cast<size_t>(width * padded) * sizeof(T));
      pack_panel(static_cast<const T*>(w_) + (l0 + l) * taps_, width, live, k0, k, to);
    }
  });
}

// Joined taps are copied once for each position. Where separate taps need as many steps (24 channels of bf16) or few
// more, every tap has its own.
int64_t JoinedWeight::taps_joined(const GemmTile& tile, DType dtype, int64_t channels, const int64_t taps[3]) {
  const bool reads = tile.begin && reads_copies(tile, dtype) && taps[0] == 1 && taps[1] * taps[2] > 1;
  if (!reads || channels % tile.k_step == 0) return 0;
  const int64_t together = tile.padded_k(taps[2] * channels), alone = taps[2] * tile.padded_k(channels);
  return alone == together || tile.panel == Panel::split ? 1 : taps[2];
}

// Panels of a run hold its own values only.
void JoinedWeight::pack(const GemmTile& tile, Side side, int64_t l0, int64_t lines, int64_t k0, int64_t k, void* out,
                        int32_t* sums) const {
  const int64_t width = tile.width(side), bytes = size_of(tile.panel);
  char* to = static_cast<char*>(out);
  for (int64_t l = 0; l < lines; l += width) {
    for (int64_t p = 0, count = 0; p < k; p += count, to += count * width * bytes) {
      const int64_t at = (k0 + p) % step_;
      count = std::min(step_ - at, k - p);
      weight_.pack(tile, side, l0 + l, std::min(width, lines - l), (k0 + p) / step_ * run_ + at,
                   std::min(count, run_ - at), to, sums ? sums + l : nullptr);
    }
  }
}

}  // namespace deft::cpu::detail
