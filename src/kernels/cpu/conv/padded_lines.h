// Rows of an NHWC image copied with their padding: every tap of a window reads the copy, at one distance from position
// to position. Packing would copy them once for each tap.
#pragma once

#include "kernels/cpu/conv/conv_internal.h"

namespace deft::cpu::detail {

struct PaddedForm {
  int64_t gap = 0;          // values between copied pixels
  int zero = 0;             // the bytes of the padding
  bool apart = false;       // rows and columns by residue modulo the window's step: positions are adjacent
  int64_t joined = 0;       // apart, and each position has the pixels of its row of taps, padded with zeros to a
                            // multiple of `joined` bytes. Copies must be zero before
  int64_t positions = 224;  // at a time, at most
  bool split = false;       // f32 values in the form of Panel::split, pixels as whole steps; without gap or joined
};

// A row index runs over (n, z, y) of the output; windows have one tap along z. Distances are in bytes.
class PaddedRows {
 public:
  PaddedRows(const Window& w, const Source& source, DType dtype, const void* x, const PaddedForm& form = {});
  int64_t most() const { return most_; }                           // output rows at a time
  bool near() const;                                               // whether a copy stays in L2
  int64_t size() const { return apart_[0] * apart_[1] * plane_; }  // of a copy
  int64_t pixel() const { return pixel_; }
  int64_t pixels() const { return columns_; }                                          // of a padded row
  int64_t step() const { return joined_ ? pixel_ : w_.step[2] / apart_[1] * pixel_; }  // from position to position
  int64_t row_step() const { return w_.step[1] / apart_[0] * columns_ * pixel_; }      // from output row to output row
  // The offset of a tap; x is 0 where taps are joined.
  int64_t tap(int64_t y, int64_t x) const { return place(y * w_.tap_step[1] - low_[0], x * w_.tap_step[2] - low_[1]); }
  // How many rows come next, of one image.
  int64_t count(int64_t line, int64_t end) const {
    return std::min({most_, w_.count[1] - line % w_.count[1], end - line});
  }
  void copy(int64_t line, int64_t count, void* to) const;
  struct Range {
    const char* first = nullptr;
    int64_t bytes = 0;
  };
  Range read(int64_t line, int64_t count) const;  // what copy() reads

 private:
  int64_t copy_bytes() const;  // at a time, at most
  int64_t reach(int d) const { return (w_.taps[d] - 1) * std::abs(w_.tap_step[d]); }
  int64_t read_by(int64_t lines) const { return (lines - 1) * w_.step[1] + reach(1) + 1; }
  int64_t first_read(int64_t line) const { return line % w_.count[1] * w_.step[1] + w_.base[1] + low_[0]; }
  // The offset of pixel x of row y.
  int64_t place(int64_t y, int64_t x) const {
    const int64_t plane = y % apart_[0] * apart_[1] + x % apart_[1];
    return plane * plane_ + (y / apart_[0] * columns_ + x / apart_[1]) * pixel_;
  }
  void copy_row(const char* row, char* to) const;
  void join_row(const char* row, char* to) const;
  void join_taps(const char* row, int64_t x, char* to) const;
  void copy_pixels(const char* from, int64_t distance, int64_t count, char* to) const;

  const Window& w_;
  const char* x_;
  int zero_;
  bool joined_, split_;
  int64_t bytes_, distance_;  // of a pixel of x; from pixel to pixel
  int64_t low_[2];            // the lowest offset of a tap, along y and x
  int64_t apart_[2];          // residues along y and x
  int64_t pixel_, pixels_;    // from one copied pixel to the next; pixels read of a row
  int64_t columns_, plane_;   // pixels of a residue; from one residue's pixels to the next one's
  int64_t most_;
};

}  // namespace deft::cpu::detail
