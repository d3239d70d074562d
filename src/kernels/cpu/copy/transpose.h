// Transposes of blocks that fit in the cache.
#pragma once

#include <cstddef>
#include <cstdint>

namespace deft::cpu {

// dst[i][j] = src[j][i] for i < rows, j < cols: elements of `size` bytes (any size), strides in bytes. The columns of
// dst are dense; src_step is the distance of the rows in src, src_stride that of the columns.
struct TransposeBlock {
  size_t size;
  const char* src;
  int64_t src_step, src_stride;
  char* dst;
  int64_t dst_stride;
  int64_t rows, cols;
  bool stream = false;  // whole cache lines of dst may be written past the caches; the caller calls end_stream()
};

// Where cols * size < 16, the 16 bytes after the last element of dst may be written, and rows must not be further
// apart than 16 bytes unless the gaps may be written too.
void transpose_block(const TransposeBlock& b);

}  // namespace deft::cpu
