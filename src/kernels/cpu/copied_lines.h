// Lines of an image, channels last, copied with their padding: every tap of a window then reads the copy, at one
// distance from position to position. Packing would copy them once for each tap.
#pragma once

#include "kernels/cpu/conv_internal.h"

namespace deft::cpu::detail {

// An output line is one of (n, y). f32; one plane.
class CopiedLines {
 public:
  // gap: values between copied pixels.
  CopiedLines(const Window& w, int64_t channels, int64_t gap, const void* x);
  int64_t most() const { return most_; }  // output lines at a time
  bool near() const;                      // whether so many stay in the second cache level
  int64_t size(int64_t lines) const { return read_by(lines) * pixels_ * pixel_; }
  int64_t step() const { return w_.step[2] * pixel_; }            // from position to position
  int64_t line() const { return w_.step[1] * pixels_ * pixel_; }  // from line to line of them
  int64_t tap(int64_t y, int64_t x) const {
    return ((y * w_.tap_step[1] - low_[0]) * pixels_ + x * w_.tap_step[2] - low_[1]) * pixel_;
  }
  // How many come next, of one image.
  int64_t count(int64_t line, int64_t end) const {
    return std::min({most_, w_.count[1] - line % w_.count[1], end - line});
  }
  void copy(int64_t line, int64_t count, float* to) const;
  struct Range {
    const float* first = nullptr;
    int64_t values = 0;
  };
  Range read(int64_t line, int64_t count) const;  // what copy() reads

 private:
  int64_t reach(int d) const { return (w_.taps[d] - 1) * std::abs(w_.tap_step[d]); }
  int64_t read_by(int64_t lines) const { return (lines - 1) * w_.step[1] + reach(1) + 1; }
  int64_t first_read(int64_t line) const { return line % w_.count[1] * w_.step[1] + w_.base[1] + low_[0]; }
  void copy_pixels(const float* from, int64_t count, float* to) const;

  const Window& w_;
  const float* x_;
  int64_t channels_;
  int64_t low_[2];          // the least of a tap, along y and x
  int64_t pixel_, pixels_;  // values from one copied pixel to the next; copied pixels of a line
  int64_t most_;
};

}  // namespace deft::cpu::detail
