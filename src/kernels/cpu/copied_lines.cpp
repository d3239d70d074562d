#include "kernels/cpu/copied_lines.h"

#include <cstring>

namespace deft::cpu::detail {

namespace {
constexpr int64_t kPositions = 224;        // at a time, at most
constexpr int64_t kCopyBytes = 512 << 10;  // the same
}  // namespace

CopiedLines::CopiedLines(const Window& w, int64_t channels, int64_t gap, const void* x)
    : w_(w),
      x_(static_cast<const float*>(x)),
      channels_(channels),
      low_{std::min<int64_t>(0, (w.taps[1] - 1) * w.tap_step[1]),
           std::min<int64_t>(0, (w.taps[2] - 1) * w.tap_step[2])},
      pixel_(channels + gap),
      pixels_((w.count[2] - 1) * w.step[2] + reach(2) + 1) {
  const int64_t bytes = line() * static_cast<int64_t>(sizeof(float));
  most_ = std::max<int64_t>(1, std::min({w.count[1], kPositions / w.count[2], kCopyBytes / bytes}));
}

bool CopiedLines::near() const { return size(most_) * static_cast<int64_t>(sizeof(float)) <= 2 * kCopyBytes; }

void CopiedLines::copy(int64_t line, int64_t count, float* to) const {
  const int64_t n = line / w_.count[1], first = first_read(line), left = w_.base[2] + low_[1];
  const int64_t lo = std::clamp<int64_t>(-left, 0, pixels_);  // pixels [lo, hi) lie inside
  const int64_t hi = std::clamp<int64_t>(w_.size[2] - left, lo, pixels_);
  for (int64_t y = first; y < first + read_by(count); ++y, to += pixels_ * pixel_) {
    const bool inside = y >= 0 && y < w_.size[1] && lo < hi;
    std::fill_n(to, (inside ? lo : pixels_) * pixel_, 0.0f);
    if (!inside) continue;
    copy_pixels(x_ + ((n * w_.size[1] + y) * w_.size[2] + left + lo) * channels_, hi - lo, to + lo * pixel_);
    std::fill_n(to + hi * pixel_, (pixels_ - hi) * pixel_, 0.0f);
  }
}

void CopiedLines::copy_pixels(const float* from, int64_t count, float* to) const {
  const auto bytes = static_cast<size_t>(channels_) * sizeof(float);
  if (pixel_ == channels_) return std::memcpy(to, from, static_cast<size_t>(count) * bytes), void();
  for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * pixel_, from + i * channels_, bytes);
}

CopiedLines::Range CopiedLines::read(int64_t line, int64_t count) const {
  if (count == 0) return {};
  const int64_t first = std::max<int64_t>(0, first_read(line)), values = w_.size[2] * channels_;
  const int64_t end = std::min(w_.size[1], first_read(line) + read_by(count));
  return {x_ + (line / w_.count[1] * w_.size[1] + first) * values, std::max<int64_t>(0, end - first) * values};
}

}  // namespace deft::cpu::detail
