// Packing of groups of four bytes (kernels/cpu/pack_rows.h) with AVX-512.
#pragma once

#include <cstdint>

namespace deft::cpu {

// The whole groups of `width` lines of so many bytes to the panel at out, every byte xor `flip`; returns how many bytes
// those are. `ahead`: bytes from a line to the line that is packed after it; 0: unknown.
int64_t pack_words_512(const void* const* lines, int width, int64_t bytes, int64_t ahead, unsigned char flip,
                       void* out);

}  // namespace deft::cpu
