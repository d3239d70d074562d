#include "kernels/cpu/conv/padded_lines.h"

#include <cstring>

#include "kernels/cpu/gemm/pack_split.h"

namespace deft::cpu::detail {

namespace {

constexpr int64_t kCopyBytes = 512 << 10;  // at a time, at most; half as much again for split values
constexpr int64_t kStepValues = 32;        // of a step of split values

void fill(char* to, int zero, int64_t bytes) { std::memset(to, zero, static_cast<size_t>(bytes)); }

// bytes: kBytes, or up to twice as many.
template <int64_t kBytes>
void copy_two(const char* from, int64_t distance, int64_t count, char* to, int64_t step, int64_t bytes) {
  for (int64_t i = 0; i < count; ++i, from += distance, to += step) {
    std::memcpy(to, from, kBytes);
    std::memcpy(to + bytes - kBytes, from + bytes - kBytes, kBytes);
  }
}
// Copies `count` pieces of `bytes` bytes.
void copy_each(const char* from, int64_t distance, int64_t count, char* to, int64_t step, int64_t bytes) {
  if (bytes >= 16 && bytes <= 32) return copy_two<16>(from, distance, count, to, step, bytes);
  if (bytes > 32 && bytes <= 64) return copy_two<32>(from, distance, count, to, step, bytes);
  if (bytes > 64 && bytes <= 128) return copy_two<64>(from, distance, count, to, step, bytes);
  for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * step, from + i * distance, static_cast<size_t>(bytes));
}
int64_t round_up(int64_t x, int64_t step) { return (x + step - 1) / step * step; }

}  // namespace

PaddedRows::PaddedRows(const Window& w, const Source& source, DType dtype, const void* x, const PaddedForm& form)
    : w_(w),
      x_(static_cast<const char*>(x)),
      zero_(form.zero),
      joined_(form.joined > 0),
      split_(form.split),
      bytes_(source.channels * static_cast<int64_t>(size_of(dtype))),
      distance_(source.all_channels * static_cast<int64_t>(size_of(dtype))),
      low_{std::min<int64_t>(0, (w.taps[1] - 1) * w.tap_step[1]),
           std::min<int64_t>(0, (w.taps[2] - 1) * w.tap_step[2])},
      apart_{form.apart || joined_ ? w.step[1] : 1, form.apart && !joined_ ? w.step[2] : 1},
      pixel_(joined_  ? round_up(w.taps[2] * bytes_, form.joined)
             : split_ ? round_up(source.channels, kStepValues) * size_of(Panel::split)
                      : bytes_ + form.gap * static_cast<int64_t>(size_of(dtype))),
      pixels_(joined_ ? w.count[2] : (w.count[2] - 1) * w.step[2] + reach(2) + 1),
      columns_((pixels_ + apart_[1] - 1) / apart_[1]) {
  if (joined_) low_[1] = 0;
  const int64_t bytes = w.step[1] * pixels_ * pixel_;
  most_ = std::max<int64_t>(1, std::min({w.count[1], form.positions / w.count[2], copy_bytes() / bytes}));
  plane_ = (read_by(most_) + apart_[0] - 1) / apart_[0] * columns_ * pixel_;
}

bool PaddedRows::near() const { return size() <= 2 * copy_bytes(); }

// As many values in either form.
int64_t PaddedRows::copy_bytes() const { return split_ ? kCopyBytes / 2 * 3 : kCopyBytes; }

void PaddedRows::copy(int64_t line, int64_t count, void* out) const {
  const int64_t image = line / w_.count[1], first = first_read(line);
  const int64_t z = image % w_.count[0] * w_.step[0] + w_.base[0], plane = image / w_.count[0] * w_.size[0] + z;
  const bool in_plane = z >= 0 && z < w_.size[0];
  for (int64_t y = 0; y < read_by(count); ++y) {
    const int64_t from = first + y;
    const bool inside = in_plane && from >= 0 && from < w_.size[1];
    const char* row = inside ? x_ + (plane * w_.size[1] + from) * w_.size[2] * distance_ : nullptr;
    char* to = static_cast<char*>(out) + place(y, 0);
    joined_ ? join_row(row, to) : copy_row(row, to);
  }
}

// row: null in the padding.
void PaddedRows::copy_row(const char* row, char* to) const {
  const int64_t left = w_.base[2] + low_[1], step = apart_[1];
  for (int64_t r = 0; r < step; ++r, to += plane_) {
    // Columns [lo, hi) of this residue lie inside the image.
    const int64_t before = std::max<int64_t>(0, -left - r), inside = std::max<int64_t>(0, w_.size[2] - left - r);
    const int64_t lo = std::min((before + step - 1) / step, columns_);
    const int64_t hi = row ? std::clamp((inside + step - 1) / step, lo, columns_) : lo;
    fill(to, zero_, lo * pixel_);
    if (lo < hi) copy_pixels(row + (left + r + lo * step) * distance_, step * distance_, hi - lo, to + lo * pixel_);
    fill(to + hi * pixel_, zero_, (columns_ - hi) * pixel_);
  }
}

// Copies what a row of taps reads at position x, which may lie partly in the padding.
void PaddedRows::join_taps(const char* row, int64_t x, char* to) const {
  for (int64_t t = 0; t < w_.taps[2]; ++t, to += bytes_) {
    const int64_t from = x * w_.step[2] + w_.base[2] + t * w_.tap_step[2];
    if (row && from >= 0 && from < w_.size[2]) {
      std::memcpy(to, row + from * distance_, static_cast<size_t>(bytes_));
    } else {
      fill(to, zero_, bytes_);
    }
  }
}

void PaddedRows::join_row(const char* row, char* to) const {
  // Positions [lo, hi) read no padding.
  const int64_t least = w_.base[2] + std::min<int64_t>(0, (w_.taps[2] - 1) * w_.tap_step[2]);
  const int64_t most = least + reach(2), step = w_.step[2];
  const int64_t lo = row ? std::min((std::max<int64_t>(0, -least) + step - 1) / step, columns_) : columns_;
  const int64_t hi = std::clamp((w_.size[2] - most + step - 1) / step, lo, columns_);
  for (int64_t x = 0; x < lo; ++x) join_taps(row, x, to + x * pixel_);
  const bool together = w_.tap_step[2] == 1 && bytes_ == distance_;
  const int64_t pieces = together ? 1 : w_.taps[2], bytes = together ? w_.taps[2] * bytes_ : bytes_;
  for (int64_t t = 0; t < pieces && lo < hi; ++t) {
    const char* from = row + (lo * step + w_.base[2] + t * w_.tap_step[2]) * distance_;
    copy_each(from, step * distance_, hi - lo, to + lo * pixel_ + t * bytes, pixel_, bytes);
  }
  for (int64_t x = hi; x < columns_; ++x) join_taps(row, x, to + x * pixel_);
}

void PaddedRows::copy_pixels(const char* from, int64_t distance, int64_t count, char* to) const {
#if defined(__x86_64__)
  if (split_) {
    const int64_t values = bytes_ / static_cast<int64_t>(sizeof(float));
    const bool together = distance == bytes_ && values % kStepValues == 0;
    const int64_t pieces = together ? 1 : count, length = together ? count * values : values;
    for (int64_t i = 0; i < pieces; ++i) {
      split_values(reinterpret_cast<const float*>(from + i * distance), length, to + i * pixel_);
    }
    return;
  }
#endif
  if (pixel_ == distance) return std::memcpy(to, from, static_cast<size_t>(count * pixel_)), void();
  copy_each(from, distance, count, to, pixel_, bytes_);
}

PaddedRows::Range PaddedRows::read(int64_t line, int64_t count) const {
  if (count == 0) return {};
  const int64_t first = std::max<int64_t>(0, first_read(line)), bytes = w_.size[2] * distance_;
  const int64_t end = std::min(w_.size[1], first_read(line) + read_by(count));
  return {x_ + (line / w_.count[1] * w_.size[1] + first) * bytes, std::max<int64_t>(0, end - first) * bytes};
}

}  // namespace deft::cpu::detail
