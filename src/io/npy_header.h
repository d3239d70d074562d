// The header of an npy file: a Python dict literal of which exactly three keys are understood; nothing is evaluated.
#pragma once

#include "core/shape.h"
#include "io/load_options.h"
#include "io/source.h"

namespace deft::io {

struct NpyHeader {
  DType dtype = DType::f32;
  bool swapped = false;  // big-endian
  bool fortran = false;
  Shape sizes;
  uint64_t data = 0;   // offset of the first element
  uint64_t bytes = 0;  // of the elements: what follows `data` in the file, exactly
};

// `start` is the beginning of a file of `file_bytes`: all of it, or at least npy_header_room() bytes.
NpyHeader parse_npy_header(std::span<const std::byte> start, uint64_t file_bytes, const Source& source,
                           const LoadLimits& limits);
inline uint64_t npy_header_room(const LoadLimits& limits) { return limits.npy_header_bytes + 12; }

// Version 1, padded so that the data begins at a multiple of 64 bytes.
std::string npy_header_text(DType dtype, const Shape& sizes);

}  // namespace deft::io
