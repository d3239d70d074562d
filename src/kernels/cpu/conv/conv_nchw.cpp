// Implicit im2col in NCHW: packs the windows of an image straight into panels.
//
// Note [Padded rows]: one channel at a time, the input of the positions is copied to rows with zero padding, columns
// sorted by their residue modulo the stride. There each tap has the same distance from every position, and the
// positions of a row are contiguous: a row of a panel is a few runs, which are copied in vectors.
#include <cstring>

#include "kernels/cpu/conv/conv_internal.h"

namespace deft::cpu::detail {

namespace {

constexpr int64_t kGatherBytes = 32768;     // a buffer within L1
constexpr int64_t kBlockBytes = 512 << 10;  // panels that are written together, within L2
constexpr int64_t kVector = 16;             // bytes copied at once

// The input that positions [q0, q1) of (n, position) read, per dim. Dim 2 is always whole, and so are the others where
// more than one index of the dim before takes part.
struct Reach {
  Reach(const Window& w, int64_t q0, int64_t q1) {
    const int64_t plane = w.count[1] * w.count[2], volume = w.count[0] * plane;
    sample = q0 / volume, samples = (q1 - 1) / volume + 1 - sample;
    const int64_t per[2] = {plane, w.count[2]};
    bool one = samples == 1;
    for (int d = 0; d < 3; ++d) {
      const int64_t begin = one && d < 2 ? q0 / per[d] % w.count[d] : 0;
      const int64_t end = one && d < 2 ? (q1 - 1) / per[d] % w.count[d] + 1 : w.count[d];
      const int64_t last_tap = (w.taps[d] - 1) * w.tap_step[d];
      position[d] = begin;
      first[d] = begin * w.step[d] + w.base[d] + std::min<int64_t>(0, last_tap);
      size[d] = (end - 1 - begin) * w.step[d] + std::abs(last_tap) + 1;
      tap_base[d] = -std::min<int64_t>(0, last_tap);
      one = one && end - begin == 1;
      every[d] = w.taps[d] == 1 || w.tap_step[d] % w.step[d] == 0 ? w.step[d] : 1;
    }
  }
  int64_t sample, samples;
  int64_t position[3];  // the first position
  int64_t first[3];     // of the source; may lie outside the image
  int64_t size[3];      // of the source
  int64_t tap_base[3];  // makes distances of taps positive
  int64_t every[3];     // the stride of the source indices that are read
};

// One channel of the source, padded.
template <class T>
class PaddedChannel {
 public:
  PaddedChannel(const Window& w, const Source& s, int64_t q0, int64_t q1)
      : w_(w),
        source_(s),
        reach_(w, q0, q1),
        residue_((reach_.size[2] + w.step[2] - 1) / w.step[2]),
        line_(residue_ * w.step[2]),
        data_(reach_.samples * reach_.size[0] * reach_.size[1] * line_ + kVector) {}  // room to read beyond the end

  const T* data() const { return data_.data(); }
  // The offset of a position's first tap.
  int64_t place(int64_t n, int64_t z, int64_t y, int64_t x) const {
    const int64_t plane = (n - reach_.sample) * reach_.size[0] + (z - reach_.position[0]) * w_.step[0];
    return (plane * reach_.size[1] + (y - reach_.position[1]) * w_.step[1]) * line_ + x;
  }
  // The distance from there to tap t.
  int64_t distance(int64_t t) const {
    const int64_t at[3] = {t / (w_.taps[2] * w_.taps[1]), t / w_.taps[2] % w_.taps[1], t % w_.taps[2]};
    int64_t d[3];
    for (int i = 0; i < 3; ++i) d[i] = at[i] * w_.tap_step[i] + reach_.tap_base[i];
    return (d[0] * reach_.size[1] + d[1]) * line_ + d[2] % w_.step[2] * residue_ + d[2] / w_.step[2];
  }

  void fill(const T* x, int64_t channel) {
    const auto inside = [&](int d, int64_t at) { return at >= 0 && at < w_.size[d]; };
    for (int64_t n = 0; n < reach_.samples; ++n) {
      const T* image = x + ((reach_.sample + n) * source_.all_channels + channel) * w_.source();
      for (int64_t z = 0; z < reach_.size[0]; z += reach_.every[0]) {
        const int64_t from_z = reach_.first[0] + z;
        T* to = data_.data() + (n * reach_.size[0] + z) * reach_.size[1] * line_;
        for (int64_t y = 0; y < reach_.size[1]; y += reach_.every[1], to += reach_.every[1] * line_) {
          const int64_t from_y = reach_.first[1] + y;
          if (inside(0, from_z) && inside(1, from_y)) {
            fill_row(image + (from_z * w_.size[1] + from_y) * w_.size[2], to);
          } else {
            std::fill_n(to, line_, T());
          }
        }
      }
    }
  }

 private:
  void fill_row(const T* from, T* to) const {
    const int64_t step = w_.step[2];
    const auto steps = [&](int64_t distance) { return step == 1 ? distance : (distance + step - 1) / step; };
    for (int64_t r = 0; r < step; r += reach_.every[2], to += residue_) {
      const int64_t first = reach_.first[2] + r;  // to[i] is from[first + i * step]
      const int64_t lo = std::clamp<int64_t>(steps(-first), 0, residue_);
      const int64_t hi = std::clamp(steps(w_.size[2] - first), lo, residue_);
      std::fill_n(to, lo, T());
      if (step == 1) {
        std::copy_n(from + first + lo, hi - lo, to + lo);
      } else {
        for (int64_t i = lo; i < hi; ++i) to[i] = from[first + i * step];
      }
      std::fill(to + hi, to + residue_, T());
    }
  }

  const Window& w_;
  const Source& source_;
  Reach reach_;
  int64_t residue_, line_;  // columns of one residue; of a line
  Workspace<T> data_;
};

// Part of a row of a panel, in bytes. It may run over: the rest of the row, or the next row, overwrites that.
struct Copy {
  int64_t from, to;
};
template <int kCount>
void copy_rows(const char* from, const int64_t* taps, int64_t tap_count, const Copy* copies, int64_t count, char* out,
               int64_t row) {
  for (int64_t t = 0; t < tap_count; ++t, out += row) {
    const char* tap = from + taps[t];
    for (int64_t i = 0; i < (kCount ? kCount : count); ++i) {
      std::memcpy(out + copies[i].to, tap + copies[i].from, kVector);
    }
  }
}
void copy_rows(const char* from, const int64_t* taps, int64_t tap_count, const Copy* copies, int64_t count, char* out,
               int64_t row) {
  constexpr decltype(&copy_rows<0>) known[] = {copy_rows<0>, copy_rows<1>, copy_rows<2>,
                                               copy_rows<3>, copy_rows<4>, copy_rows<5>};
  known[count < 6 ? count : 0](from, taps, tap_count, copies, count, out, row);
}

bool same_floats(DType dtype, Panel panel) {
  return (dtype == DType::f32 && panel == Panel::f32) || (dtype == DType::f64 && panel == Panel::f64) ||
         (dtype == DType::f16 && panel == Panel::f16);
}

// Lines [q0, q0 + lines) over k: rows (channel, tap), one value of k at a time.
template <class T>
void pack_positions(const Window& w, const Source& s, const T* x, int64_t width, int64_t padded_k, int64_t q0,
                    int64_t lines, int64_t k0, int64_t k, char* out) {
  constexpr int64_t size = sizeof(T);
  const int64_t taps = w.tap_count(), row = width * size, panel = padded_k * row, panels = (lines + width - 1) / width;
  PaddedChannel<T> padded(w, s, q0, q0 + lines);
  Workspace<int64_t> distances(taps), counts(panels);
  for (int64_t t = 0; t < taps; ++t) distances[t] = padded.distance(t) * size;
  Workspace<Copy> copies(panels * width);
  for (int64_t i = 0; i < panels; ++i) {
    int64_t lane = 0, count = 0;
    const int64_t q = q0 + i * width, end = std::min(q + width, q0 + lines);
    for_each_run(w, q, end, [&](int64_t n, int64_t z, int64_t y, int64_t x0, int64_t x1) {
      const int64_t from = padded.place(n, z, y, x0) * size, bytes = (x1 - x0) * size;
      for (int64_t b = 0; b < bytes; b += kVector) copies[i * width + count++] = {from + b, lane * size + b};
      lane += x1 - x0;
    });
    counts[i] = count;
  }
  Workspace<char> last_row(row + kVector);
  for (int64_t p = 0; p < k;) {
    const int64_t tap = (k0 + p) % taps, count = std::min(taps - tap, k - p);
    const bool last = p + count == k;  // the last row must end where the panel does, as nothing overwrites what follows
    padded.fill(x, (k0 + p) / taps);
    const char* from = reinterpret_cast<const char*>(padded.data());
    for (int64_t i = 0; i < panels; ++i) {
      const Copy* these = copies.data() + i * width;
      char* to = out + i * panel + p * row;
      copy_rows(from, distances.data() + tap, count - last, these, counts[i], to, row);
      if (!last) continue;
      copy_rows(from, distances.data() + tap + count - 1, 1, these, counts[i], last_row.data(), row);
      std::memcpy(to + (count - 1) * row, last_row.data(), static_cast<size_t>(row));
    }
    p += count;
  }
  for (int64_t i = 0; k < padded_k && i < panels; ++i) {
    std::memset(out + i * panel + k * row, 0, static_cast<size_t>((padded_k - k) * row));
  }
  const int64_t live = lines - (panels - 1) * width;
  for (int64_t p = 0; live < width && p < k; ++p) {
    std::memset(out + (panels - 1) * panel + p * row + live * size, 0, static_cast<size_t>((width - live) * size));
  }
}

}  // namespace

void NchwOperand::pack(const GemmTile& tile, Side side, int64_t l0, int64_t lines, int64_t k0, int64_t k, void* out,
                       int32_t*) const {
  if (lines <= 0 || k <= 0) return;
  const int64_t width = tile.width(side), padded = tile.padded_k(k), bytes = size_of(tile.panel);
  const bool by_position = lines_ == Lines::positions;
  char* to = static_cast<char*>(out);
  dispatch_bits(dtype_, [&]<class T>() {
    if (by_position && tile.group(side) == 1 && same_floats(dtype_, tile.panel)) {
      const int64_t most = std::max<int64_t>(1, kBlockBytes / (width * padded * bytes)) * width;
      for (int64_t l = 0; l < lines; l += most) {
        pack_positions(window_, source_, static_cast<const T*>(x_), width, padded, l0 + l, std::min(most, lines - l),
                       k0, k, to + l * padded * bytes);
      }
      return;
    }
    T zero;
    std::memset(&zero, zero_, sizeof zero);
    // Whole panels at a time, as many as fit into the buffer.
    const int64_t most = std::max<int64_t>(1, kGatherBytes / (k * width * static_cast<int64_t>(sizeof(T)))) * width;
    Workspace<T> copy(std::min(most, lines) * k);
    for (int64_t l = 0; l < lines; l += most, to += most * padded * bytes) {
      const int64_t some = std::min(most, lines - l), at = l0 + l;
      const int64_t q0 = by_position ? at : k0, q1 = q0 + (by_position ? some : k);
      const int64_t row0 = by_position ? k0 : at, row1 = row0 + (by_position ? k : some);
      const int64_t count = q1 - q0;
      gather_rows(window_, source_, static_cast<const T*>(x_), q0, q1, row0, row1, copy.data(), zero);
      cpu::pack(tile, side, {dtype_, copy.data(), by_position ? 1 : count, by_position ? count : 1}, 0, some, 0, k, to);
    }
  });
}

}  // namespace deft::cpu::detail
