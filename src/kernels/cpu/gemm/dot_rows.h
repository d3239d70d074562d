// Dot products of a few rows with the columns of a large b, in assembly. Rows and columns are contiguous over k; b is
// not packed. A line is a column of b.
//
// Note [Packed rows]: rows are taken in blocks of 8, 4, 3, 2 or 1, the sizes kernels have. A block of several rows is
// copied in pieces of 16 bytes (64 on x86-64), zeros at the end: [piece][row][16], or for matrix instructions
// [piece][row / 2][half][row % 2][8]. A single row is read in place.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/workspace.h"
#include "runtime/dtype.h"

namespace deft::cpu {

struct DotsKernel {
  void (*run)(int64_t steps, const void* rows, const void* const* lines, void* out);
  int rows, step;  // step: bytes of each line
  bool pairs;      // of rows, for matrix instructions
};

class Dots {
 public:
  static constexpr int kLines = 4;
  static constexpr int64_t kMostRows = 16;

  // Whether there are kernels for a's and b's types, and k is long enough.
  static bool apply(DType a, DType b, int64_t k);
  // The rows must outlive this object. apply() must hold.
  Dots(DType a, DType b, std::span<const void* const> rows, int64_t k);
  Dots(const Dots&) = delete;
  Dots& operator=(const Dots&) = delete;

  // out[4 * i + j] = row i times line j, of kLines; f32, f64 for f64, int32 for bytes. out has room for kMostRows rows.
  void run(const void* const* lines, void* out) const;

 private:
  static constexpr int64_t kSmallBytes = 8192;
  struct Block {
    const DotsKernel* kernel;
    const char *rows, *tail;  // tail: the last step where k ends within one
  };
  void add_tail(const Block& block, const void* const* lines, void* out) const;

  int64_t bytes_;  // of a line
  DType sums_;
  int count_ = 0;
  Block blocks_[kMostRows];
  Workspace<char> large_;
  alignas(64) char small_[kSmallBytes], single_tail_[64];
};

}  // namespace deft::cpu
